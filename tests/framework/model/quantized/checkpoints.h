// The checkpoints that the formats' own packages quantized (tests/golden/quantized_golden.py).
#pragma once
#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/framework/model/golden.h"

namespace foretoken::test {

const std::filesystem::path kQuantized = kRoot / "tests" / "data" / "quantized";

inline std::vector<std::string> names_of_checkpoints() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(kQuantized)) names.push_back(entry.path().filename());
  std::ranges::sort(names);
  return names;
}

// The same as the name of a test.
inline std::string test_name(std::string checkpoint) {
  std::ranges::replace(checkpoint, '-', '_');
  return checkpoint;
}

}  // namespace foretoken::test
