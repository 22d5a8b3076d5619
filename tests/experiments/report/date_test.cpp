// Dates in results are dates.
#include <gtest/gtest.h>

#include "experiments/report/machine.h"
#include "experiments/report/result.h"
#include "experiments/report/results.h"
#include "tests/experiments/report/made_results.h"
#include "tests/framework/text/temporary_folder.h"

namespace foretoken::test {
namespace {

TEST(Dates, AreDaysOfTheCalendar) {
  for (const char* good : {"2026-11-21", "2026-11-21T08:00:00Z", "2024-02-29", "2026-12-31T23:59:60Z"})
    EXPECT_TRUE(is_date(good)) << good;
  EXPECT_TRUE(is_date(utc_now()));
  for (const char* bad :
       {"", "today", "2026-13-01", "2026-11-31", "2025-02-29", "2026-00-10", "2026-11-00", "26-11-21", "2026-11-21T",
        "2026-11-21T24:00:00Z", "2026-11-21T08:60:00Z", "2026-11-21T08:00:61Z", "2026-11-21T08:00:00", "2026/11/21",
        "2026-11-21 08:00:00Z", "2026-1a-21", "-026-11-21", "2026-11-21T-8:00:00Z", "2026-11-21T08:00:00Z "})
    EXPECT_FALSE(is_date(bad)) << bad;
}

TEST(Dates, OfResultsAreChecked) {
  const TemporaryFolder folder;
  const auto refusal = [&](const char* pointer, const json& value) {
    json line = whole(worked_line());
    line["key"] = key_of(line["run"]);
    line[json::json_pointer(pointer)] = value;
    const auto file = folder.write("r.jsonl", line.dump() + "\n");
    return sentence_of([&] { load_results(file); });
  };
  EXPECT_EQ(refusal("/date", "2026-11-21T08:00:00Z"), "");
  EXPECT_EQ(refusal("/repeats/1/began", "2026-11-21T08:00:00Z"), "");
  EXPECT_TRUE(says(refusal("/date", "2026-99-99T08:00:00Z"), "r.jsonl:1", "'date' is \"2026-99-99", "must be a date",
                   "remove it"));
  EXPECT_TRUE(says(refusal("/date", 20261121), "'date' is 20261121"));
  EXPECT_TRUE(says(refusal("/repeats/1/began", "soon"), "'repeats/1/began' is \"soon\"", "must be a date"));
}

}  // namespace
}  // namespace foretoken::test
