// The memory that lines tell of: in summaries, tables and comparisons; lines that are older than these figures.
#include <cmath>

#include <gtest/gtest.h>

#include "experiments/report/report.h"
#include "experiments/report/summary.h"
#include "tests/experiments/report/made_results.h"
#include "tests/support/sentence.h"
#include "tests/support/source.h"

namespace foretoken {
namespace {

using nlohmann::json;
using test::holds;

// The worked line; the second repeat took more of the pool and less scratch than the first.
json line_with_memory() {
  json line = test::worked_line();
  const json memory = {
      {"target_weights", 28e6}, {"draft_weights", 2e6}, {"cache", 256e6}, {"cache_used", 3e6}, {"scratch", 7e6}};
  for (json& repeat : line["repeats"]) repeat["speculative"]["memory"] = repeat["baseline"]["memory"] = memory;
  line["repeats"][1]["speculative"]["memory"]["cache_used"] = 4e6;
  line["repeats"][1]["speculative"]["memory"]["scratch"] = 5e6;
  line["repeats"][0]["baseline"]["memory"]["draft_weights"] =
      line["repeats"][1]["baseline"]["memory"]["draft_weights"] = 0;
  return line;
}

TEST(Memory, IsTheMostOfTheRepeats) {
  const Summary s = summarize(line_with_memory());
  ASSERT_EQ(s.error, "");
  EXPECT_EQ(s.speculative.memory.cache_used, 4e6);
  EXPECT_EQ(s.speculative.memory.scratch, 7e6);
  EXPECT_EQ(s.speculative.memory.total(), 293e6);
  EXPECT_EQ(s.baseline.memory.total(), 291e6);
  const json figures = to_json(s)["figures"]["speculative"]["memory"];
  EXPECT_EQ(figures["target_weights"], 28e6);
  EXPECT_EQ(figures["total"], 293e6);
}

TEST(Memory, HasATableAndColumns) {
  const std::string text = show({line_with_memory()}, {"markdown", {"memory"}, 120});
  for (const char* cell : {"28.0", "2.0", "256.0", "4.0", "7.0", "293.0", "291.0"})
    EXPECT_TRUE(holds(text, cell)) << cell << "\n" << text;
  EXPECT_TRUE(holds(show({line_with_memory()}, {"csv", {"main"}, 0}), "target_weights_mb"));
  CompareOptions options;
  EXPECT_TRUE(holds(compare({line_with_memory()}, {line_with_memory()}, options), "MB A"));
  options.format = "json";
  const json pair = json::parse(compare({line_with_memory()}, {test::worked_line()}, options))["matched"][0];
  EXPECT_EQ(pair["memory"]["a"]["scratch"], 7e6);
  EXPECT_EQ(pair["memory"]["b"]["scratch"], nullptr);
}

// A device that does not count, and lines that say nothing.
TEST(Memory, MayBeUnknown) {
  json line = line_with_memory();
  for (json& repeat : line["repeats"]) repeat["speculative"]["memory"]["scratch"] = nullptr;
  const Summary s = summarize(line), old = summarize(test::worked_line());
  EXPECT_EQ(s.error, "");
  EXPECT_TRUE(std::isnan(s.speculative.memory.scratch) && std::isnan(s.speculative.memory.total()));
  EXPECT_EQ(s.speculative.memory.target_weights, 28e6);
  EXPECT_TRUE(holds(show({line}, {"markdown", {"memory"}, 120}), "| 28.0"));
  EXPECT_EQ(old.error, "");
  EXPECT_TRUE(std::isnan(old.speculative.memory.target_weights));
  EXPECT_FALSE(holds(show({test::worked_line()}, {"terminal", {}, 120}), "Memory"));
  EXPECT_FALSE(holds(compare({test::worked_line()}, {test::worked_line()}, {}), "MB A"));
}

}  // namespace
}  // namespace foretoken
