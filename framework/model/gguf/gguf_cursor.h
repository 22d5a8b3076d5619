// Reads the numbers and strings of a GGUF file one after another, never beyond its end. This module must not know what
// they mean.
#pragma once
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "framework/text/printable.h"
#include "kernels/error.h"

namespace foretoken {

class GgufCursor {
 public:
  GgufCursor(std::string_view bytes, std::string where) : bytes_(bytes), where_(std::move(where)) {}

  // `what` names the number in messages.
  template <class T> T read(const char* what) {
    T value;
    const std::string_view bytes = take(sizeof value, what);
    std::memcpy(&value, bytes.data(), bytes.size());
    return value;
  }
  // A length of 64 bits, then so many bytes.
  std::string_view string(const char* what) { return take(read<std::uint64_t>(what), what); }
  std::string_view take(std::uint64_t count, const char* what) {
    if (count > left())
      throw Error(where_ + " is truncated or damaged: " + what + " at byte " + std::to_string(at_) + " needs " +
                  std::to_string(count) + " bytes, but " + std::to_string(left()) + " follow; download it again");
    const std::string_view taken = bytes_.substr(at_, count);
    at_ += count;
    return taken;
  }
  std::uint64_t at() const { return at_; }
  std::uint64_t left() const { return bytes_.size() - at_; }
  const std::string& where() const { return where_; }

 private:
  std::string_view bytes_;
  std::string where_;
  std::uint64_t at_ = 0;
};

// A name from a file as messages show it.
inline std::string shown_name(std::string_view name) {
  constexpr std::size_t kMost = 80;
  return name.size() <= kMost ? printable(name) : printable(name.substr(0, kMost)) + "...";
}

}  // namespace foretoken
