#include "framework/text/regular_file.h"

#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "kernels/error.h"

namespace foretoken {
namespace {

const char* kind_of(mode_t mode) {
  if (S_ISDIR(mode)) return "a directory";
  if (S_ISFIFO(mode)) return "a pipe";
  if (S_ISSOCK(mode)) return "a socket";
  return "a device";
}

// A pipe that has no name: some process holds its other end, or has closed it.
bool is_open_pipe(const std::filesystem::path& file) {
  struct statfs system{};
  return ::statfs(file.c_str(), &system) == 0 && system.f_type == PIPEFS_MAGIC;
}

}  // namespace

Descriptor::~Descriptor() {
  if (number_ >= 0) ::close(number_);
}

Descriptor open_input(const std::filesystem::path& file, const std::string& who, const std::string& remedy,
                      Pipes pipes) {
  struct stat status{};
  const bool known = ::stat(file.c_str(), &status) == 0;
  const bool pipe = known && S_ISFIFO(status.st_mode) && pipes == Pipes::opened && is_open_pipe(file);
  if (known && !S_ISREG(status.st_mode) && !pipe)  // before opening, which would unblock a pipe's writer
    throw Error(who + " is " + kind_of(status.st_mode) + ", but a regular file is needed; " + remedy);
  // O_NONBLOCK: a pipe that has replaced the file since must not block open().
  const int number = ::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | (pipe ? 0 : O_NONBLOCK));
  if (number < 0 && errno == ENOENT) throw Error(who + " does not exist; " + remedy);
  if (number < 0) throw Error(who + " cannot be opened (" + std::strerror(errno) + "); " + remedy);
  return Descriptor(number);
}

std::string read_to_end(const Descriptor& from, const std::string& who, const std::string& remedy) {
  constexpr std::size_t kPiece = 1 << 20;
  std::string bytes;
  for (std::size_t size = 0;;) {
    bytes.resize(size + kPiece);
    const ssize_t n = ::read(from.number(), bytes.data() + size, kPiece);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw Error(who + " cannot be read to its end (" + std::strerror(errno) + "); " + remedy);
    size += std::size_t(n);
    if (n > 0) continue;
    bytes.resize(size);
    return bytes;
  }
}

std::string read_bytes(const std::filesystem::path& file, const std::string& who, const std::string& remedy,
                       Pipes pipes) {
  return read_to_end(open_input(file, who, remedy, pipes), who, "check the disk that it is on");
}

}  // namespace foretoken
