// One line of JSON for each request that was answered or dropped. This module must not know connections.
#pragma once
#include <memory>
#include <string>

#include <nlohmann/json.hpp>

namespace foretoken::serve {

class AccessLog {
 public:
  // "-": standard output; "none": nowhere; else a file, to which lines are appended. What cannot be opened is an Error,
  // as is a named pipe that nobody reads.
  explicit AccessLog(const std::string& where);
  // Writes what waits. Lines that nobody has read a second later are lost.
  ~AccessLog();
  AccessLog(const AccessLog&) = delete;

  // Adds the time. Never waits for who reads it: of lines that come faster than they are read the oldest are lost.
  void write(nlohmann::ordered_json line);

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;  // null: nowhere
};

}  // namespace foretoken::serve
