#include "framework/model/mapped_file.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <string_view>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "kernels/error.h"

namespace foretoken {
namespace {

void unmap(void* data, std::size_t size) {
  if (data && data != MAP_FAILED) ::munmap(data, size);
}

}  // namespace

MappedFile::MappedFile(const std::filesystem::path& file, const char* kind) {
  map(file, kind);
  if (!std::string_view(data(), std::min<std::size_t>(size_, 64)).starts_with("version https://git-lfs")) return;
  unmap(data_, size_);  // there is no object to destroy
  throw Error(file.string() +
              " is a Git LFS pointer, not the weights; run `git lfs pull` where it was cloned, or download it again");
}

MappedFile::~MappedFile() { unmap(data_, size_); }

void MappedFile::map(const std::filesystem::path& file, const char* kind) {
  const int fd = ::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // a pipe would block
  if (fd < 0)
    throw Error(file.string() + " cannot be opened (" + std::strerror(errno) + "); check the path and its permissions");
  struct stat status{};
  const bool regular = ::fstat(fd, &status) == 0 && S_ISREG(status.st_mode);
  if (regular && status.st_size > 0) {
    size_ = std::size_t(status.st_size);
    data_ = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, fd, 0);
  }
  const int why = errno;
  ::close(fd);
  if (!regular) throw Error(file.string() + " is not a regular file; give the path of a " + kind + " file");
  if (size_ == 0) throw Error(file.string() + " is empty; download it again");
  if (data_ == MAP_FAILED) throw Error(file.string() + " cannot be mapped into memory (" + std::strerror(why) + ")");
}

}  // namespace foretoken
