// Where `foretoken bench` keeps its figures: a file of JSON lines of one of its kinds. This module must not know how
// they are measured.
#pragma once
#include <optional>
#include <string>

#include <nlohmann/json.hpp>

#include "experiments/report/json_lines.h"

namespace foretoken {

class BenchFile {
 public:
  // `file`: "" keeps nothing. Another file than an absent or an empty one, or one of lines that have the key `measured`
  // beside their machine and commit ("products", "scenario" or "soak"), is an Error and stays as it is.
  BenchFile(const std::string& file, const std::string& measured);
  void append(const nlohmann::json& line);

 private:
  std::optional<JsonLinesFile> file_;
};

}  // namespace foretoken
