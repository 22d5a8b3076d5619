#include "experiments/serve/access_log.h"

#include <spdlog/async.h>
#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_sinks.h>

#include "kernels/error.h"

namespace foretoken::serve {
namespace {

constexpr std::size_t kWaitingLines = 8192;

std::shared_ptr<spdlog::sinks::sink> sink_of(const std::string& where) {
  if (where == "-") return std::make_shared<spdlog::sinks::stdout_sink_mt>();
  try {
    return std::make_shared<spdlog::sinks::basic_file_sink_mt>(where);
  } catch (const spdlog::spdlog_ex&) {
    throw Error(where + " cannot be opened for the access log; check the folder and its permissions");
  }
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

AccessLog::AccessLog(const std::string& where) {
  if (where == "none") return;
  if (!spdlog::thread_pool()) spdlog::init_thread_pool(kWaitingLines, 1);
  logger_ = std::make_shared<spdlog::async_logger>("access", sink_of(where), spdlog::thread_pool(),
                                                   spdlog::async_overflow_policy::overrun_oldest);
  logger_->set_pattern("%v");
  logger_->flush_on(spdlog::level::info);
}

void AccessLog::write(nlohmann::ordered_json line) {
  if (!logger_) return;
  nlohmann::ordered_json whole{{"time", time_text()}};
  whole.update(line);
  logger_->info("{}", whole.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
}

}  // namespace foretoken::serve
