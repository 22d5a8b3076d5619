#include "experiments/sweep/child_process.h"

#include <cerrno>
#include <csignal>
#include <cstring>

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kernels/error.h"

namespace foretoken {
namespace {

constexpr int kNotStarted = 127;

// Of this process, with NAME=VALUE in place of another value.
std::vector<std::string> environment_with(const std::string& name, const std::string& value) {
  std::vector<std::string> all{name + "=" + value};
  for (char** entry = environ; *entry; ++entry)
    if (!std::string(*entry).starts_with(name + "=")) all.push_back(*entry);
  return all;
}

std::vector<char*> pointers_of(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

// In the new process, where only calls that are safe in a signal handler may be made.
[[noreturn]] void become(char* const* arguments, char* const* environment, pid_t parent, int null) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (::getppid() != parent) ::_exit(kNotStarted);  // it died before that
  ::dup2(null, STDIN_FILENO);
  ::dup2(null, STDOUT_FILENO);
  ::execve("/proc/self/exe", arguments, environment);
  ::_exit(kNotStarted);
}

}  // namespace

ChildProcess::ChildProcess(const std::vector<std::string>& arguments, const std::string& name,
                           const std::string& value) {
  std::vector<std::string> words{"foretoken"}, environment = environment_with(name, value);
  words.insert(words.end(), arguments.begin(), arguments.end());
  const std::vector<char*> word_pointers = pointers_of(words), environment_pointers = pointers_of(environment);
  const int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  const pid_t parent = ::getpid();
  process_ = null < 0 ? -1 : ::fork();
  const std::string why = std::strerror(errno);
  if (process_ == 0) become(word_pointers.data(), environment_pointers.data(), parent, null);
  if (null >= 0) ::close(null);
  if (process_ < 0) throw Error("no other process can be started (" + why + "); end others, then start it again");
}

ChildProcess::~ChildProcess() {
  if (process_ < 0 || ended()) return;
  terminate();
  ::waitpid(process_, nullptr, 0);
}

const std::optional<Ended>& ChildProcess::ended() {
  int status = 0;
  if (ended_) return ended_;
  const pid_t found = ::waitpid(process_, &status, WNOHANG);
  if (found < 0 && errno == ECHILD) ended_ = Ended{1, 0};  // SIGCHLD is ignored: nobody knows how it ended
  if (found != process_) return ended_;
  ended_ = WIFSIGNALED(status) ? Ended{0, WTERMSIG(status)} : Ended{WEXITSTATUS(status), 0};
  return ended_;
}

void ChildProcess::terminate() const {
  if (process_ > 0 && !ended_) ::kill(process_, SIGTERM);
}

}  // namespace foretoken
