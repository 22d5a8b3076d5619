#include "experiments/serve/content_filter.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <future>
#include <utility>

#include <nlohmann/json.hpp>
#include <poll.h>
#include <spawn.h>
#include <spdlog/spdlog.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kernels/error.h"

namespace foretoken::serve {

using nlohmann::json;

namespace {

using Clock = std::chrono::steady_clock;

constexpr double kStartSeconds = 60;
constexpr std::size_t kMostAnswer = 64 << 10;  // bytes

std::string line_of(const char* kind, const std::string& text) {
  return json{{"kind", kind}, {"text", text}}.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
}

// Whether the socket is ready for it before `until`, and before nobody wants to know any more.
bool ready(int socket, short what, Clock::time_point until, const std::atomic<bool>& done) {
  while (!done) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until - Clock::now()).count();
    if (left < 0) return false;
    pollfd one{.fd = socket, .events = what, .revents = 0};
    const int found = ::poll(&one, 1, int(std::min<long>(left + 1, 100)));
    if (found > 0) return true;
    if (found < 0 && errno != EINTR) return false;
  }
  return false;
}

// With the socket as its standard input and output, in a group of its own, so that Ctrl-C is the server's alone. -1:
// it cannot be started.
pid_t spawned(const std::string& command, int socket) {
  posix_spawn_file_actions_t files;
  posix_spawnattr_t how;
  posix_spawn_file_actions_init(&files);
  posix_spawnattr_init(&how);
  posix_spawn_file_actions_adddup2(&files, socket, STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&files, socket, STDOUT_FILENO);
  posix_spawn_file_actions_addclosefrom_np(&files, STDERR_FILENO + 1);  // connections of clients among them
  sigset_t usual;
  sigemptyset(&usual);
  sigaddset(&usual, SIGPIPE);
  posix_spawnattr_setsigdefault(&how, &usual);
  posix_spawnattr_setpgroup(&how, 0);
  posix_spawnattr_setflags(&how, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGDEF);
  std::string shell = "/bin/sh", option = "-c", text = command;
  char* const words[] = {shell.data(), option.data(), text.data(), nullptr};
  pid_t process = -1;
  const int failed = ::posix_spawn(&process, shell.c_str(), &files, &how, words, environ);
  posix_spawn_file_actions_destroy(&files);
  posix_spawnattr_destroy(&how);
  return failed == 0 ? process : -1;
}

Verdict verdict_of(const std::string& line) {
  const json answer = json::parse(line, nullptr, /*allow_exceptions=*/false);
  const auto allow = answer.is_object() ? answer.find("allow") : answer.end();
  if (!answer.is_object() || allow == answer.end() || !allow->is_boolean()) return Verdict::none;
  return allow->get<bool>() ? Verdict::allowed : Verdict::refused;
}

}  // namespace

ContentFilter::ContentFilter(std::string command, double seconds) : command_(std::move(command)), seconds_(seconds) {
  if (!start()) {
    end();
    throw Error("the filter '" + command_ +
                "' does not answer; it is to read lines of JSON, {\"kind\": ..., \"text\": ...}, and to write one for "
                "each at once, {\"allow\": true} or {\"allow\": false}");
  }
  thread_ = std::thread([this] { run(); });
}

ContentFilter::~ContentFilter() { stop(); }

void ContentFilter::stop() {
  {
    const std::lock_guard lock(mutex_);
    done_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
  end();
}

void ContentFilter::ask(const char* kind, const std::string& text, std::function<void(Verdict)> heard) {
  {
    const std::lock_guard lock(mutex_);
    if (!starting_ && !done_) {
      questions_.push_back({line_of(kind, text), std::move(heard)});
      changed_.notify_all();
      return;
    }
  }
  heard(Verdict::none);
}

Verdict ContentFilter::judge(const char* kind, const std::string& text) {
  const auto promise = std::make_shared<std::promise<Verdict>>();
  ask(kind, text, [promise](Verdict verdict) { promise->set_value(verdict); });
  return promise->get_future().get();
}

void ContentFilter::run() {
  for (std::unique_lock lock(mutex_);;) {
    changed_.wait(lock, [this] { return done_ || !questions_.empty(); });
    if (done_) {
      for (Question& question : questions_) question.heard(Verdict::none);
      return;
    }
    const Question question = std::move(questions_.front());
    questions_.pop_front();
    lock.unlock();
    const Verdict verdict = answer(question.line, seconds_);
    question.heard(verdict);
    lock.lock();
    if (verdict != Verdict::none || done_) continue;
    // Those that wait are not to wait until it is back.
    starting_ = true;
    const std::deque<Question> waiting = std::exchange(questions_, {});
    lock.unlock();
    for (const Question& one : waiting) one.heard(Verdict::none);
    spdlog::warn("the filter did not answer as it should, so that requests are refused; it is started again");
    end();
    const bool back = start();
    lock.lock();
    starting_ = false;
    if (!back) spdlog::warn("the filter does not start; it is tried again with the next request");
  }
}

bool ContentFilter::start() {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return false;
  process_ = spawned(command_, ends[1]);
  ::close(ends[1]);
  socket_ = ends[0];
  return process_ > 0 && answer(line_of("prompt", ""), kStartSeconds) != Verdict::none;
}

void ContentFilter::end() {
  if (socket_ >= 0) ::close(std::exchange(socket_, -1));
  if (process_ <= 0) return;
  ::kill(-process_, SIGKILL);
  while (::waitpid(process_, nullptr, 0) < 0 && errno == EINTR) continue;
  process_ = -1;
}

Verdict ContentFilter::answer(const std::string& line, double seconds) {
  const auto until = Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  // A line that nobody asked for would be taken for the answer.
  if (char byte = 0; ::recv(socket_, &byte, 1, MSG_DONTWAIT) >= 0) return Verdict::none;
  for (std::size_t sent = 0; sent < line.size();) {
    if (!ready(socket_, POLLOUT, until, done_)) return Verdict::none;
    const auto some = ::send(socket_, line.data() + sent, line.size() - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (some < 0 && errno != EAGAIN && errno != EINTR) return Verdict::none;
    if (some > 0) sent += std::size_t(some);
  }
  for (std::string text; text.size() < kMostAnswer;) {
    char bytes[512];
    if (!ready(socket_, POLLIN, until, done_)) return Verdict::none;
    const auto some = ::recv(socket_, bytes, sizeof bytes, MSG_DONTWAIT);
    if (some == 0 || (some < 0 && errno != EAGAIN && errno != EINTR)) return Verdict::none;
    if (some > 0) text.append(bytes, std::size_t(some));
    if (text.ends_with('\n')) return verdict_of(text);  // two lines are none
  }
  return Verdict::none;
}

}  // namespace foretoken::serve
