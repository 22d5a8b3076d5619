// Shared by the fuzz targets: input bytes as a file, and the check that a reader accepts any bytes or refuses them with
// an Error that has a message. This module must not know whether libFuzzer or seeds.cpp calls a target.
#pragma once
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <string>
#include <string_view>

#include <sys/mman.h>
#include <unistd.h>

#include "kernels/error.h"

// The entry of a target: https://llvm.org/docs/LibFuzzer.html.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace foretoken::fuzz {

[[noreturn]] inline void finding(const std::string& what) {
  std::fprintf(stderr, "finding: %s\n", what.c_str());
  std::abort();
}

inline void expect(bool holds, const char* what) {
  if (!holds) finding(std::string("this does not hold: ") + what);
}

// A file in memory, removed with its object.
class MemoryFile {
 public:
  explicit MemoryFile(std::string_view bytes) : descriptor_(::memfd_create("input", MFD_CLOEXEC)) {
    expect(descriptor_ >= 0, "there are files in memory");
    while (!bytes.empty()) {
      const ssize_t n = ::write(descriptor_, bytes.data(), bytes.size());
      expect(n > 0, "a file in memory is written");
      bytes.remove_prefix(std::size_t(n));
    }
  }
  ~MemoryFile() { ::close(descriptor_); }
  MemoryFile(const MemoryFile&) = delete;

  std::filesystem::path path() const { return "/proc/self/fd/" + std::to_string(descriptor_); }

 private:
  int descriptor_;
};

// Feeds the input to a reader, which takes a std::string_view.
template <class F> int feed(const std::uint8_t* data, std::size_t size, const F& reader) {
  try {
    reader(std::string_view(reinterpret_cast<const char*>(data), size));
  } catch (const Error& e) {
    expect(std::string_view(e.what()).size() > 10, "a refusal is a sentence");
  } catch (const std::exception& e) {
    finding(std::string("a reader lets through what is no Error: ") + e.what());
  }
  return 0;
}

}  // namespace foretoken::fuzz
