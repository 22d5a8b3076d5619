// The marks of a figure of the page, of all its panels. This module must not know the code under test.
#pragma once
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace foretoken::test {

using nlohmann::json;

// Of all series, or of one.
inline std::vector<json> marks_of(const json& figure, const std::string& series = "") {
  std::vector<json> found;
  for (const json& panel : figure["panels"])
    for (const json& one : panel["series"])
      for (const json& point : one["points"])
        if (series.empty() || one["name"] == series) found.insert(found.end(), point.begin(), point.end());
  return found;
}

}  // namespace foretoken::test
