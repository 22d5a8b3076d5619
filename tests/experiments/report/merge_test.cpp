// Merged results: the newest line of each run, in the order of the first.
#include "experiments/report/merge.h"

#include <gtest/gtest.h>

#include "tests/experiments/report/results_files.h"

namespace foretoken::test {
namespace {

json dated(const std::string& name, const json& date, int mark = 0) {
  json line = line_of(name);
  line["date"] = date, line["seconds"] = mark;
  return line;
}

TEST(Merge, KeepsTheNewestLineOfEachRun) {
  MergedResults merged;
  EXPECT_TRUE(merged.add(dated("a", "2026-11-21T08:00:00Z", 1)));
  EXPECT_TRUE(merged.add(dated("b", nullptr, 2)));
  EXPECT_FALSE(merged.add(dated("a", "2026-11-21T07:59:59Z", 3))) << "older";
  EXPECT_FALSE(merged.add(dated("a", nullptr, 4))) << "of an unknown date";
  EXPECT_TRUE(merged.add(dated("a", "2026-11-21T08:00:00Z", 5))) << "of the same second, and later";
  EXPECT_FALSE(merged.add(dated("a", "2026-11-21T08:00:00Z", 5))) << "there already";
  EXPECT_TRUE(merged.add(dated("b", "2026-11-21T08:00:00Z", 6)));
  ASSERT_EQ(merged.lines().size(), 2u);
  EXPECT_EQ(merged.lines()[0], dated("a", "2026-11-21T08:00:00Z", 5));
  EXPECT_EQ(merged.lines()[1], dated("b", "2026-11-21T08:00:00Z", 6));
  EXPECT_EQ(merged.of(key("b")), &merged.lines()[1]);
  EXPECT_EQ(merged.of(key("c")), nullptr);
}

TEST(Merge, KnowsWhatWasMeasured) {
  MergedResults merged;
  json failed = dated("b", "2026-11-21T08:00:00Z");
  failed["error"] = "no";
  merged.add(dated("a", "2026-11-21T08:00:00Z")), merged.add(failed), merged.add(empty_line_of("c"));
  EXPECT_TRUE(merged.measured(key("a")));
  EXPECT_FALSE(merged.measured(key("b"))) << "failed";
  EXPECT_FALSE(merged.measured(key("c"))) << "has no figures";
  EXPECT_FALSE(merged.measured(key("d"))) << "is not there";
}

}  // namespace
}  // namespace foretoken::test
