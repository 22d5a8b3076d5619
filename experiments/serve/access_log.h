// One line of JSON for each request that was answered or dropped. This module must not know connections.
#pragma once
#include <memory>
#include <string>

#include <nlohmann/json.hpp>

namespace spdlog {
class logger;
}

namespace foretoken::serve {

class AccessLog {
 public:
  // "-": standard output; "none": nowhere; else a file, to which lines are appended. What cannot be opened is an Error.
  explicit AccessLog(const std::string& where);

  // Adds the time. Never waits for who reads it: of lines that come faster than they are written the oldest are lost.
  void write(nlohmann::ordered_json line);

 private:
  std::shared_ptr<spdlog::logger> logger_;
};

}  // namespace foretoken::serve
