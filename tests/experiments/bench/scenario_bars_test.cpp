// What the bars of a scenario say: over another scenario, and shares of a step.
#include <gtest/gtest.h>

#include "experiments/bench/bench_steps.h"
#include "tests/support/sentence.h"

namespace foretoken::test {
namespace {

using nlohmann::json;

Scenario named(const std::string& name) {
  Scenario s{};
  s.name = name;
  return s;
}

TEST(ScenarioBars, CompareATimeWithThatOfAScenarioBefore) {
  ScenarioBars bars;
  json line;
  EXPECT_EQ(bars.judge(named("chain"), {.ms = 4}, line), "");
  EXPECT_FALSE(line.contains("bars"));
  Scenario tree = named("tree");
  tree.over = "chain", tree.most = 1.1;
  EXPECT_EQ(bars.judge(tree, {.ms = 4.2}, line), "1.05 of 'chain' (at most 1.1: met)");
  EXPECT_EQ(line["bars"],
            json::array({{{"bar", "over"}, {"value", 1.05}, {"most", 1.1}, {"met", true}, {"over", "chain"}}}));
  EXPECT_EQ(bars.judge(tree, {.ms = 4.6}, line), "1.15 of 'chain' (at most 1.1: MISSED)");
  EXPECT_EQ(line["bars"][0]["met"], false);
  tree.most = 0;
  EXPECT_EQ(bars.judge(tree, {.ms = 2}, line), "0.5 of 'chain'");
  EXPECT_FALSE(line["bars"][0].contains("met"));
}

TEST(ScenarioBars, AScenarioThatWasNotMeasuredIsNoBar) {
  ScenarioBars bars;
  json line;
  Scenario tree = named("tree");
  tree.over = "chain", tree.most = 1.1;
  EXPECT_EQ(bars.judge(tree, {.ms = 4.2}, line), "");
  EXPECT_FALSE(line.contains("bars"));
}

TEST(ScenarioBars, SharesOfAStep) {
  ScenarioBars bars;
  json line;
  Scenario s = named("step");
  s.bar_ms = 9, s.verify_share = 0.05, s.host_share = 0.05, s.draft_most = 1.15;
  const std::string text =
      bars.judge(s, {.ms = 10, .verify_ms = 0.4, .host_ms = 0.6, .draft_ms = 2.4, .draft_forward_ms = 2}, line);
  EXPECT_TRUE(text.starts_with("MISSED; ")) << text;
  EXPECT_TRUE(says(text, "0.04 of the step verifies (at most 0.05: met)", "0.06 of the step is the host's",
                   "1.2 of the draft's forwards (at most 1.15: MISSED)"));
  ASSERT_EQ(line["bars"].size(), 4u);
  const std::vector<bool> met = {false, true, false, false};
  for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(line["bars"][i]["met"], bool(met[i])) << i;
}

}  // namespace
}  // namespace foretoken::test
