#include "experiments/serve/access_log.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <limits>

#include <fcntl.h>
#include <poll.h>
#include <spdlog/async.h>
#include <spdlog/sinks/base_sink.h>
#include <unistd.h>

#include "kernels/error.h"

namespace foretoken::serve {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kWaitingLines = 8192;
constexpr std::chrono::milliseconds kLastLines(1000);  // that these have once the log ends
constexpr std::size_t kPipe = 4096;                    // bytes that a pipe takes whole where it can take any (PIPE_BUF)

// A descriptor that may be a pipe: where nobody reads it, a line waits, but not longer than until end() and a second.
class PatientSink : public spdlog::sinks::base_sink<std::mutex> {
 public:
  explicit PatientSink(int file, bool own) : file_(file), own_(own) {}
  ~PatientSink() override {
    if (own_) ::close(file_);
  }
  void end() { until_ = (Clock::now() + kLastLines).time_since_epoch().count(); }

 protected:
  void sink_it_(const spdlog::details::log_msg& line) override {
    std::string bytes(line.payload.data(), line.payload.size());
    bytes += '\n';
    for (std::size_t sent = 0; sent < bytes.size();) {
      if (!takes_more()) return;
      const auto wrote = ::write(file_, bytes.data() + sent, std::min(kPipe, bytes.size() - sent));
      if (wrote > 0) sent += std::size_t(wrote);
      if (wrote < 0 && errno != EAGAIN && errno != EINTR) return;  // nobody reads it any more, or the disk is full
    }
  }
  void flush_() override {}

 private:
  bool takes_more() const {
    for (;;) {
      pollfd file{.fd = file_, .events = POLLOUT, .revents = 0};
      const bool late = Clock::now().time_since_epoch().count() >= until_;
      if (::poll(&file, 1, late ? 0 : 50) > 0) return true;
      if (late) return false;
    }
  }

  const int file_;
  const bool own_;
  std::atomic<Clock::rep> until_ = std::numeric_limits<Clock::rep>::max();
};

std::shared_ptr<PatientSink> sink_of(const std::string& where) {
  if (where == "-") return std::make_shared<PatientSink>(STDOUT_FILENO, false);
  const int file = ::open(where.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_NONBLOCK | O_CLOEXEC, 0644);
  if (file < 0)
    throw Error(where + " cannot be opened for the access log; check the folder and its permissions" +
                (errno == ENXIO ? ", and that somebody reads the pipe" : ""));
  return std::make_shared<PatientSink>(file, true);
}

std::string time_text() {
  const auto now = std::chrono::system_clock::now();
  const std::time_t seconds = std::chrono::system_clock::to_time_t(now);
  const long ms = long(std::chrono::duration_cast<std::chrono::milliseconds>(now.time_since_epoch()).count() % 1000);
  std::tm parts{};
  gmtime_r(&seconds, &parts);
  char text[40];
  const std::size_t size = std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &parts);
  std::snprintf(text + size, sizeof text - size, ".%03ldZ", ms);
  return text;
}

}  // namespace

struct AccessLog::Parts {
  std::function<void()> end;                             // from now on a line waits no longer than kLastLines from here
  std::shared_ptr<spdlog::details::thread_pool> thread;  // its own, which ends with it
  std::shared_ptr<spdlog::async_logger> logger;
};

AccessLog::AccessLog(const std::string& where) {
  if (where == "none") return;
  parts_ = std::make_unique<Parts>();
  const std::shared_ptr<PatientSink> sink = sink_of(where);
  parts_->end = [sink] { sink->end(); };
  parts_->thread = std::make_shared<spdlog::details::thread_pool>(kWaitingLines, 1);
  parts_->logger = std::make_shared<spdlog::async_logger>("access", sink, parts_->thread,
                                                          spdlog::async_overflow_policy::overrun_oldest);
}

AccessLog::~AccessLog() {
  if (!parts_) return;
  parts_->end();
  parts_->logger.reset();
  parts_->thread.reset();  // once it has seen to all lines
}

void AccessLog::write(nlohmann::ordered_json line) {
  if (!parts_) return;
  nlohmann::ordered_json whole{{"time", time_text()}};
  whole.update(line);
  parts_->logger->info("{}", whole.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
}

}  // namespace foretoken::serve
