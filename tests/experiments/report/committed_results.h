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
    if (std::filesystem::exists(file + ending)) return load_results(file + ending);
  throw std::runtime_error("no results are committed as " + file + ", .gz or .xz");
}

}  // namespace foretoken::test
