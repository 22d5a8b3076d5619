// Merged results: the newest line of each run, in the order of the first.
#include <gtest/gtest.h>

#include "experiments/report/results.h"
#include "tests/experiments/report/made_results.h"
#include "tests/experiments/report/results_files.h"

namespace foretoken::test {
namespace {

Result dated(const std::string& name, const std::string& date, int mark = 0) {
  Result result = made(line_of(name));
  result.date = date;
  result.seconds = mark;
  return result;
}

TEST(Merge, KeepsTheNewestLineOfEachRun) {
  MergedResults merged;
  EXPECT_TRUE(merged.add(dated("a", "2026-11-21T08:00:00Z", 1)));
  EXPECT_TRUE(merged.add(dated("b", "2026-11-20", 2)));
  EXPECT_FALSE(merged.add(dated("a", "2026-11-21T07:59:59Z", 3))) << "older";
  EXPECT_TRUE(merged.add(dated("a", "2026-11-21T08:00:00Z", 5))) << "of the same second, and later";
  EXPECT_FALSE(merged.add(dated("a", "2026-11-21T08:00:00Z", 5))) << "there already";
  EXPECT_TRUE(merged.add(dated("b", "2026-11-21T08:00:00Z", 6)));
  ASSERT_EQ(merged.lines().size(), 2u);
  EXPECT_EQ(to_json(merged.lines()[0]), to_json(dated("a", "2026-11-21T08:00:00Z", 5)));
  EXPECT_EQ(to_json(merged.lines()[1]), to_json(dated("b", "2026-11-21T08:00:00Z", 6)));
  EXPECT_EQ(merged.of(key("b")), &merged.lines()[1]);
  EXPECT_EQ(merged.of(key("c")), nullptr);
}

TEST(Merge, KnowsWhatWasMeasured) {
  MergedResults merged;
  Result failed = dated("b", "2026-11-21T08:00:00Z"), empty = dated("c", "2026-11-21T08:00:00Z");
  failed.error = "no";
  empty.repeats[0].baseline.requests.clear();
  for (const Result& result : {dated("a", "2026-11-21T08:00:00Z"), failed, empty}) merged.add(result);
  EXPECT_TRUE(merged.measured(key("a")));
  EXPECT_FALSE(merged.measured(key("b"))) << "failed";
  EXPECT_FALSE(merged.measured(key("c"))) << "has no figures";
  EXPECT_FALSE(merged.measured(key("d"))) << "is not there";
}

}  // namespace
}  // namespace foretoken::test
