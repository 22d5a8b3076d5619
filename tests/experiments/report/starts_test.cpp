// Tables name the state that a run which learns was measured from.
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "experiments/report/report.h"
#include "tests/experiments/report/made_results.h"
#include "tests/support/sentence.h"
#include "tests/support/source.h"

namespace foretoken {
namespace {

using nlohmann::json;
using test::holds;

json line_from(const std::string& start, double gain) {
  json line = test::swept_line("remembers", 2, 0, 1, gain);
  if (!start.empty()) line["run"]["workload"]["start"] = start, line["axes"]["/workload/start"] = start;
  line["key"] = start.empty() ? "cc" : start;
  return line;
}

TEST(Starts, AreAColumnANoteAndASentence) {
  json other = test::swept_line("ngram", 2, 0, 1, 1.2);
  const std::vector<json> lines{other, line_from("cold", 1.5), line_from("warm", 3)};
  const std::string text = show(lines, {"markdown", {"main"}, 118});
  EXPECT_TRUE(holds(text, "| drafter | start |")) << text;
  EXPECT_TRUE(holds(text, "| ngram | - |") && holds(text, "| remembers | cold |") &&
              holds(text, "| remembers | warm |"))
      << text;
  EXPECT_TRUE(holds(text, "exact ✓, cold") && holds(text, "exact ✓, warm")) << text;
  EXPECT_TRUE(holds(text, "Cold: what learns began with") && holds(text, "Warm: what learns had served")) << text;
  EXPECT_TRUE(holds(show(lines, {"csv", {}, 0}), "workload.start"));
  const std::string alone = show({line_from("warm", 3)}, {"markdown", {"main"}, 118});
  EXPECT_TRUE(holds(alone, "exact ✓, warm") && holds(alone, "Warm:")) << "also where there is no other";
  EXPECT_FALSE(holds(alone, "Cold:"));
  EXPECT_TRUE(
      holds(show({line_from("others", 3)}, {"markdown", {"main"}, 118}), "Others: what learns had served other"));
  EXPECT_FALSE(holds(show({other}, {"markdown", {"main"}, 118}), "Warm:"));
}

TEST(Starts, AreTwoRunsForCompareAndBest) {
  const std::vector<json> lines{line_from("cold", 1.5), line_from("warm", 3)};
  const json same = json::parse(compare(lines, lines, {"json", "A", "B", {}, 118}));
  EXPECT_EQ(same["matched"].size(), 2u);
  EXPECT_EQ(same["matched"][0]["speedup"]["ratio"]["value"], 1);
  const json changed =
      json::parse(compare({lines[0]}, {lines[1]}, {"json", "A", "B", {"/workload/start"}, 118}))["matched"];
  ASSERT_EQ(changed.size(), 1u);
  EXPECT_NEAR(changed[0]["speedup"]["ratio"]["value"].get<double>(), 2, 1e-9);
  EXPECT_EQ(json::parse(show(lines, {"json", {}, 118}))["best"].size(), 2u) << "one for each state";
}

}  // namespace
}  // namespace foretoken
