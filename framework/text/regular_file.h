// Reads a file that a user named to its end. Whatever is in the way is one sentence, and nothing is waited for: a named
// pipe without a writer would block forever. This module must not know what the bytes mean.
#pragma once
#include <filesystem>
#include <string>

namespace foretoken {

enum class Pipes {
  refused,
  opened,  // a pipe that is open already is read to its end: `command | foretoken show /dev/stdin`, or <(command)
};

// An open file descriptor that is closed with its owner.
class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  ~Descriptor();
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int number() const { return number_; }

 private:
  int number_;
};

// Opens a regular file for reading (and a pipe, where `pipes` says so). A directory, a named pipe, a device, a socket
// or a file that cannot be opened is an Error "WHO ...; REMEDY".
Descriptor open_input(const std::filesystem::path& file, const std::string& who, const std::string& remedy,
                      Pipes pipes = Pipes::refused);

// All that follows in an open file. A read error is an Error: it is not the end of the file.
std::string read_to_end(const Descriptor& from, const std::string& who, const std::string& remedy);

// Both: all bytes of a file, which may be empty.
std::string read_bytes(const std::filesystem::path& file, const std::string& who, const std::string& remedy,
                       Pipes pipes = Pipes::refused);

}  // namespace foretoken
