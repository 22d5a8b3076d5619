#include "experiments/conformance/workers.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <optional>

#include <fcntl.h>
#include <malloc.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "framework/components/thrown.h"
#include "framework/text/printable.h"
#include "kernels/error.h"

namespace foretoken::conformance {
namespace {

using Clock = std::chrono::steady_clock;

pid_t worker = 0;  // this process, if it is one

// The first character of a line from a worker.
constexpr char kGreeting = 'G', kAnswer = 'A', kRefusal = 'R';

void send_line(int wire, char kind, const std::string& text) {
  const std::string line = kind + text + "\n";
  for (std::size_t sent = 0; sent < line.size();) {
    const ssize_t n = ::send(wire, line.data() + sent, line.size() - sent, MSG_NOSIGNAL);
    if (n < 0 && errno != EINTR) return;  // nobody waits for it any more
    sent += std::size_t(std::max<ssize_t>(n, 0));
  }
}

void answer_tasks(int wire, const std::function<Service()>& set_up) {
  Service service;
  try {
    service = set_up();
  } catch (...) {
    return send_line(wire, kRefusal, printable(thrown()));
  }
  send_line(wire, kGreeting, service.greeting);
  for (std::size_t task = 0; ::recv(wire, &task, sizeof task, MSG_WAITALL) == ssize_t(sizeof task);) {
    const std::string text = service.answer(task);
    std::fflush(stdout);
    send_line(wire, kAnswer, text);
  }
}

// Tasks make and end thousands of engines a second: what one frees the next one takes, and the system need not clear it
// again.
void keep_memory() {
#ifdef __GLIBC__
  constexpr int kMost = 64 << 20;
  ::mallopt(M_TRIM_THRESHOLD, kMost), ::mallopt(M_TOP_PAD, 4 << 20), ::mallopt(M_MMAP_THRESHOLD, 16 << 20);
#endif
}

[[noreturn]] void be_worker(int wire, int words, const std::function<Service()>& set_up) {
  worker = getpid();
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  ::dup2(words, STDOUT_FILENO), ::dup2(words, STDERR_FILENO);
  keep_memory();
  answer_tasks(wire, set_up);
  // Nothing of the caller's is destroyed or written here: no exit().
  syscall(SYS_exit_group, 0);
  __builtin_unreachable();
}

// What there is to read now, though not for ever; whether the other end is still open.
bool drain(int from, std::string& to) {
  constexpr int kMost = 32;
  char bytes[4096];
  for (int i = 0; i < kMost; ++i) {
    const ssize_t n = ::read(from, bytes, sizeof bytes);
    if (n > 0) to.append(bytes, std::size_t(n));
    if (n == 0 || (n < 0 && errno != EINTR)) return n < 0 && errno == EAGAIN;
  }
  return true;
}

// Removes the first line and returns it.
std::optional<std::string> take_line(std::string& text) {
  const std::size_t end = text.find('\n');
  if (end == std::string::npos) return std::nullopt;
  std::string line = text.substr(0, end);
  text.erase(0, end + 1);
  return line;
}

// "ended with signal 11 (Segmentation fault)".
std::string ended_with(int status) {
  if (!WIFSIGNALED(status)) return "ended with exit code " + std::to_string(WEXITSTATUS(status));
  const int signal = WTERMSIG(status);
  return "ended with signal " + std::to_string(signal) + " (" + strsignal(signal) + ")";
}

std::string brief(double seconds) {
  char text[40];
  std::snprintf(text, sizeof text, "%g s", seconds);
  return text;
}

}  // namespace

bool is_worker() { return worker == getpid(); }

struct Workers::Process {
  pid_t pid = 0;  // 0: there is none
  int wire = -1, words = -1;
  bool ready = false;  // its service is set up
  std::optional<std::size_t> task;
  Clock::time_point since{};  // it was given the task, or started
  double computed = 0;        // of its processor, in seconds, until then
  std::string lines;          // what came, up to a whole line
  std::string last;           // the last line that it printed, not yet passed on

  double processor() const {
    clockid_t clock{};
    timespec t{};
    const bool known = ::clock_getcpuclockid(pid, &clock) == 0 && ::clock_gettime(clock, &t) == 0;
    return known ? double(t.tv_sec) + 1e-9 * double(t.tv_nsec) : computed;
  }
  // Since it was given the task, or started.
  double seconds() const {
    return std::max(processor() - computed, std::chrono::duration<double>(Clock::now() - since).count() / 4);
  }
  // Passes on what it printed but for the last line.
  void listen() {
    drain(words, last);
    const std::size_t end = last.size() < 2 ? std::string::npos : last.rfind('\n', last.size() - 2);
    if (end != std::string::npos) pass_on(end + 1);
    constexpr std::size_t kLongest = 4096;
    if (last.size() > kLongest) pass_on(last.size() - kLongest);
  }
  void pass_on(std::size_t n) {
    std::fwrite(last.data(), 1, n, stderr);
    last.erase(0, n);
  }
};

Workers::Workers(int processes, double longest, std::function<Service()> set_up)
    : longest_(longest), set_up_(std::move(set_up)) {
  for (int i = 0; i < processes; ++i) start(*processes_.emplace_back(std::make_unique<Process>()));
}

Workers::~Workers() {
  for (const auto& p : processes_) {
    if (p->pid == 0) continue;
    ::kill(p->pid, SIGKILL);
    ::waitpid(p->pid, nullptr, 0);
    p->listen();
    p->pass_on(p->last.size());
    ::close(p->wire), ::close(p->words);
  }
}

void Workers::start(Process& p) {
  int wire[2] = {-1, -1}, words[2] = {-1, -1};
  std::fflush(nullptr);  // or the worker would write it again
  const bool connected =
      ::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, wire) == 0 && ::pipe2(words, O_CLOEXEC) == 0;
  const pid_t pid = connected ? ::fork() : -1;
  if (pid < 0) {
    const std::string why = std::strerror(errno);
    for (const int d : {wire[0], wire[1], words[0], words[1]})
      if (d >= 0) ::close(d);
    throw Error("no process can be started: " + why + "; end others, or raise the limit of processes (ulimit -u)");
  }
  if (pid == 0) be_worker(wire[1], words[1], set_up_);
  ::close(wire[1]), ::close(words[1]);
  for (const int d : {wire[0], words[0]}) ::fcntl(d, F_SETFL, O_NONBLOCK);
  p.pid = pid, p.wire = wire[0], p.words = words[0], p.since = Clock::now();
}

void Workers::give(Process& p, std::size_t task) {
  p.listen();
  p.pass_on(p.last.size());  // it is of another task
  p.task = task, p.since = Clock::now(), p.computed = p.processor();
  (void)::send(p.wire, &task, sizeof task, MSG_NOSIGNAL);  // a process that has ended is seen when it is read
}

// Until a process has sent something, or a while has passed.
void Workers::wait() {
  std::vector<pollfd> all;
  for (const auto& p : processes_)
    if (p->pid != 0) all.push_back({p->wire, POLLIN, 0});
  constexpr int kMilliseconds = 100;
  ::poll(all.data(), all.size(), kMilliseconds);
}

void Workers::read(Process& p, const std::function<void(const Answer&)>& take) {
  p.listen();
  const bool open = drain(p.wire, p.lines);
  while (const auto line = take_line(p.lines)) {
    const std::string text = line->substr(1);
    if (line->front() == kRefusal) failure_ = text;
    if (line->front() == kGreeting) {
      p.ready = true;
      if (greeting_.empty()) greeting_ = text;
    }
    if (line->front() != kAnswer) continue;
    const std::size_t task = *p.task;
    p.task.reset();
    take({task, text, "", false, p.seconds()});
  }
  if (!open || ((p.task || !p.ready) && p.seconds() > longest_)) end(p, open, take);
}

// The process has ended, or is late: says how, and replaces it.
void Workers::end(Process& p, bool late, const std::function<void(const Answer&)>& take) {
  const double seconds = p.seconds();
  ::kill(p.pid, SIGKILL);  // that of one that has ended changes nothing
  int status = 0;
  ::waitpid(p.pid, &status, 0);
  p.listen();
  std::string how =
      late ? "did not end within " + brief(longest_) + " and was stopped" : "its process " + ended_with(status);
  if (const std::string last = p.last.substr(0, p.last.find_last_not_of('\n') + 1); !last.empty())
    how += "; its last line: " + printable(last);
  ::close(p.wire), ::close(p.words);
  const bool ready = p.ready;
  const std::optional<std::size_t> task = p.task;
  p = {};
  if (task) take({*task, "", how, late, seconds});
  if (ready)
    start(p);
  else if (failure_.empty())
    failure_ = "while plugins were loaded and their components made, " + (late ? "a process " + how : how);
}

std::string Workers::greeting() {
  const auto nobody = [](const auto& p) { return p->pid == 0; };
  while (greeting_.empty() && !std::ranges::all_of(processes_, nobody)) {
    wait();
    for (const auto& p : processes_)
      if (p->pid != 0) read(*p, {});
  }
  if (greeting_.empty()) throw Error(failure_);
  return greeting_;
}

void Workers::run(std::size_t tasks, const std::function<bool()>& go_on,
                  const std::function<void(const Answer&)>& take) {
  for (std::size_t next = 0;;) {
    bool busy = false, coming = false;
    for (const auto& p : processes_) {
      if (p->ready && !p->task && next < tasks && go_on()) give(*p, next++);
      busy = busy || p->task, coming = coming || (p->pid != 0 && !p->ready);
    }
    const bool more = next < tasks && go_on();
    if (more && !busy && !coming) throw Error(failure_);
    if (!busy && !more) return;
    wait();
    for (const auto& p : processes_)
      if (p->pid != 0) read(*p, take);
  }
}

}  // namespace foretoken::conformance
