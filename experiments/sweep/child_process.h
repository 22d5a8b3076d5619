// Another process of this program. This module must not know what it does.
#pragma once
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <sys/types.h>

namespace foretoken {

// How a process ended: an exit code, or else a signal.
struct Ended {
  int code = 0, signal = 0;
  bool well() const { return code == 0 && signal == 0; }
};

class ChildProcess {
 public:
  // Starts this program with these arguments and NAME=VALUE in its environment; its standard output is dropped. It is a
  // process group of its own, so that Ctrl-C comes from its parent alone, and gets SIGTERM where its parent dies.
  ChildProcess(const std::vector<std::string>& arguments, const std::string& name, const std::string& value);
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess(ChildProcess&& other) noexcept : process_(std::exchange(other.process_, -1)), ended_(other.ended_) {}
  ~ChildProcess();  // ends it

  const std::optional<Ended>& ended();  // without waiting
  void terminate() const;               // SIGTERM

 private:
  pid_t process_ = -1;
  std::optional<Ended> ended_;
};

}  // namespace foretoken
