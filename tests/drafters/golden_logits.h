// The logits of draft heads along a decode, as the scripts of tests/golden have them.
#pragma once
#include <cmath>
#include <filesystem>
#include <fstream>
#include <string>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace foretoken::test {

inline const std::filesystem::path kHeads = std::filesystem::path(FORETOKEN_SOURCE_DIR) / "tests/data/heads";

inline nlohmann::json golden_of(const std::string& name) {
  return nlohmann::json::parse(std::ifstream(kHeads / name / "golden.json"));
}

// The greatest difference of by_hand.round(tokens, drafts) from the golden logits; tokens that the draft lacks are
// -infinity in both.
template <class ByHand> double golden_error(ByHand& by_hand, const nlohmann::json& golden) {
  double worst = 0;
  for (const auto& r : golden.at("rounds")) {
    const auto found = by_hand.round(r.at("tokens"), r.at("drafts"));
    EXPECT_EQ(found.size(), r.at("logits").size());
    for (std::size_t i = 0; i < found.size(); ++i)
      for (std::size_t x = 0; x < found[i].size(); ++x) {
        const auto& expected = r.at("logits").at(i).at(x);
        EXPECT_EQ(std::isinf(found[i][x]), expected.is_null()) << i << " " << x;
        if (!expected.is_null())
          worst = std::max(worst, std::abs(expected.template get<double>() - double(found[i][x])));
      }
  }
  return worst;
}

}  // namespace foretoken::test
