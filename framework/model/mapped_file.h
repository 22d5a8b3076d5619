// A file of weights, mapped into memory and read-only. If the file shrinks meanwhile, a read faults: replace files of
// weights by renaming, as downloaders do. This module must not know formats.
#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>

namespace foretoken {

class MappedFile {
 public:
  // `kind`: what the file should be, for messages: ".safetensors". An empty file, one that is no regular file, or a Git
  // LFS pointer in place of the weights is an Error.
  MappedFile(const std::filesystem::path& file, const char* kind);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  char* data() const { return static_cast<char*>(data_); }
  std::uint64_t size() const { return size_; }

 private:
  void map(const std::filesystem::path& file, const char* kind);

  void* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace foretoken
