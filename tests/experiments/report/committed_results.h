// The committed results, for tests that measure with their noise or check that they stay readable. This module must not
// know how a file is compressed.
#pragma once
#include <filesystem>
#include <stdexcept>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "experiments/report/results.h"

namespace foretoken::test {

// The lines of experiments/results/NAME.jsonl ("cpu/quickstart"), which may be compressed: NAME.jsonl.gz,
// NAME.jsonl.xz.
inline std::vector<nlohmann::json> committed_results(const std::string& name) {
  const std::string file = std::string(FORETOKEN_SOURCE_DIR) + "/experiments/results/" + name + ".jsonl";
  for (const char* ending : {"", ".gz", ".xz"})
    if (std::filesystem::exists(file + ending)) {
      std::vector<nlohmann::json> lines;
      for (const Result& result : load_results(file + ending)) lines.push_back(to_json(result));
      return lines;
    }
  throw std::runtime_error("no results are committed as " + file + ", .gz or .xz");
}

}  // namespace foretoken::test
