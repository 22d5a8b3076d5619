// Where figures have no intervals.
#include <gtest/gtest.h>

#include "experiments/report/summary.h"
#include "tests/experiments/report/made_results.h"

namespace foretoken {
namespace {

using nlohmann::json;

// One alternation does not say how the machine varies; a GPU's does so little that its prompts are worth an interval,
// which says so.
TEST(Summary, OneAlternationHasNoIntervalOfTimes) {
  json line = test::swept_line("ngram", 2, 0, 1, 1.5);
  line["repeats"].erase(1);
  Summary s = summarize(line);
  EXPECT_NEAR(s.speedup.value, 1.5, 0.02);
  EXPECT_FALSE(s.speedup.bounded() || s.tokens_per_second.bounded() || s.prompts_alone);
  EXPECT_TRUE(s.alpha.bounded() && s.tau.bounded()) << "acceptance does not depend on the machine";
  line["machine"]["device"] = "cuda";
  s = summarize(line);
  EXPECT_TRUE(s.speedup.bounded() && s.prompts_alone);
  EXPECT_FALSE(summarize(test::swept_line("ngram", 2, 0, 1, 1.5)).prompts_alone);
}

TEST(Summary, AFewPromptsOfACategoryHaveNoInterval) {
  json line = test::swept_line("ngram", 2, 0, 1, 1.5);  // three prompts a category
  for (const CategoryFigures& category : summarize(line).categories)
    EXPECT_FALSE(category.alpha.bounded() || category.tau.bounded() || category.speedup.bounded()) << category.name;
  for (json& repeat : line["repeats"])
    for (const char* side : {"speculative", "baseline"}) {
      json& all = repeat[side];
      const json once = all["requests"];
      for (int copy = 1; copy < 4; ++copy)
        for (json request : once) {
          request["prompt"] = request["prompt"].get<int>() + 6 * copy;
          all["requests"].push_back(request);
        }
      for (const char* key : {"tokens", "rounds", "drafted", "tested", "accepted", "prompt_tokens", "seconds"})
        all[key] = 4 * all[key].get<double>();
    }
  const Summary many = summarize(line);
  ASSERT_EQ(many.error, "");
  ASSERT_EQ(many.categories.size(), 2u);
  for (const CategoryFigures& category : many.categories) {
    EXPECT_EQ(category.prompts, 12);
    EXPECT_TRUE(category.alpha.bounded() && category.tau.bounded() && category.speedup.bounded());
  }
}

}  // namespace
}  // namespace foretoken
