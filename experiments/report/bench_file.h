// The file of `foretoken bench --results` and `foretoken quality --results`: JSON lines of one kind. This module must
// not know how figures are measured.
#pragma once
#include <optional>
#include <string>

#include <nlohmann/json.hpp>

#include "experiments/report/json_lines.h"

namespace foretoken {

class BenchFile {
 public:
  // `file`: "" stores nothing. The file must be absent, empty, or have lines with a machine, a commit and the key
  // `measured` ("products", "scenario", "soak" or "quality"), as `command` writes them; any other file is an Error and
  // is not changed.
  BenchFile(const std::string& file, const std::string& measured, const std::string& command = "foretoken bench");
  void append(const nlohmann::json& line);

 private:
  std::optional<JsonLinesFile> file_;
};

}  // namespace foretoken
