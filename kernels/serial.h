// A number that identifies an object within this process. It is never reused, also not for a later object at the same
// address.
#pragma once
#include <atomic>
#include <cstdint>

namespace foretoken {

class Serial {
 public:
  Serial() = default;
  Serial(const Serial&) = delete;
  std::uint64_t number() const { return number_; }

 private:
  static inline std::atomic<std::uint64_t> next_{0};
  const std::uint64_t number_ = next_++;
};

}  // namespace foretoken
