// A simulated engine against steps that were added up by hand.
#include "experiments/costs/predicted_run.h"

#include <cmath>
#include <map>

#include <gtest/gtest.h>

#include "experiments/costs/predict.h"
#include "tests/experiments/report/made_results.h"

namespace foretoken {
namespace {

// Always so many levels, or what there is room for.
class Chains : public LengthPolicy {
 public:
  explicit Chains(int length) : length_(length) {}
  std::vector<Budget> budgets(std::span<const PastOnly> past) override {
    std::vector<Budget> found;
    for (const PastOnly& p : past) found.push_back(level_budget(std::min(length_, p.room.depth), 1));
    return found;
  }

 private:
  int length_;
};

FreshPolicy chains(int length) {
  return [length] { return std::make_unique<Chains>(length); };
}

// Of one sequence: a forward takes 9.5 ms and 0.5 ms a row, a draft 0.5 ms and 1.5 ms a level; a token of a prompt
// 0.1 ms, and 0.02 ms of the drafter.
CostModel costs_by_hand(double level = 1.5e-3) {
  std::vector<CostedStep> steps;
  for (int depth = 0; depth <= 4; ++depth) {
    const double draft = depth == 0 ? 0 : 0.5e-3 + level * depth;
    steps.push_back({.shape = {.batch = 1, .depth = depth, .levels = double(depth), .rows = 1.0 + depth},
                     .seconds = 9.5e-3 + 0.5e-3 * (1 + depth) + draft,
                     .draft_seconds = draft});
  }
  return {std::move(steps), {.seconds = 1e-4, .draft_seconds = 2e-5}};
}

const std::vector<PredictedRequest> kOne{{.prompt_tokens = 10, .new_tokens = 5}};

TEST(SimulatedEngine, TakesTheStepsThatWereAddedUp) {
  const CostModel costs = costs_by_hand();
  Chains two(2);
  // Three tokens of a draft of 2, then 2 of a draft of 1: 11 + 3.5, 10.5 + 2, and the prompt's 1.2 ms.
  const PredictedSide all = served(costs, kOne, 1, &two, {{1}, {1}}, 0);
  EXPECT_EQ(all.steps, 2);
  EXPECT_EQ(all.rounds, 2);
  EXPECT_EQ(all.tokens, 5);
  EXPECT_NEAR(all.seconds, 28.2e-3, 1e-6);
  EXPECT_NEAR(all.draft_seconds, 5.7e-3, 1e-6);
  // Five rounds, whose last two have room for drafts of 1 and 0.
  const PredictedSide none = served(costs, kOne, 1, &two, {{0}, {1}}, 0);
  EXPECT_EQ(none.steps, 5);
  EXPECT_NEAR(none.seconds, (3 * 14.5 + 12.5 + 10 + 1.2) * 1e-3, 1e-6);
  const PredictedSide plain = served(costs, kOne, 1, nullptr, {}, 0);
  EXPECT_EQ(plain.steps, 5);
  EXPECT_NEAR(plain.seconds, 51e-3, 1e-6) << "whose drafter reads no prompt";
  EXPECT_EQ(plain.draft_seconds, 0);
}

TEST(SimulatedEngine, DraftsThatAreNotFoundHaveNoRows) {
  Chains two(2);
  const PredictedSide first = served(costs_by_hand(), kOne, 1, &two, {{0}, {1, 0}}, 0);
  // Four drafts with a row, of whatever length was asked for.
  EXPECT_NEAR(first.seconds - first.draft_seconds, (4 * 10.5 + 10 + 1) * 1e-3, 1e-6);
}

TEST(SimulatedEngine, PositionsOfAPromptCostMoreTheMoreAreBeforeThem) {
  const CostModel costs(costs_by_hand().steps(), {.position_seconds = 1e-6});
  EXPECT_NEAR(served(costs, kOne, 1, nullptr, {}, 0).seconds, (50 + 0.05) * 1e-3, 1e-7);
}

TEST(SimulatedEngine, SlotsAreFilledWhenTheyAreFree) {
  const std::vector<PredictedRequest> requests(3, {.prompt_tokens = 1, .new_tokens = 2});
  const PredictedSide side = served(costs_by_hand(), requests, 2, nullptr, {}, 0);
  EXPECT_EQ(side.steps, 4);
  EXPECT_EQ(side.rounds, 6);
  EXPECT_EQ(side.tokens, 6);
}

TEST(SimulatedEngine, ASharedRateIsMetOnAverage) {
  const std::vector<PredictedRequest> requests(400, {.prompt_tokens = 1, .new_tokens = 100});
  Chains two(2);
  const PredictedSide side = served(costs_by_hand(), requests, 1, &two, {{0.6}, {1}}, 0);
  EXPECT_NEAR(side.tokens / side.rounds, 1 + 0.6 + 0.36, 0.03);
}

// One level more after a round that accepted all of its draft; one less after another.
class Followers : public LengthPolicy {
 public:
  std::vector<Budget> budgets(std::span<const PastOnly> past) override {
    std::vector<Budget> found;
    for (const PastOnly& p : past) {
      const auto known = lengths_.try_emplace(p.id, 1).first;
      EXPECT_EQ(known->second.rounds, p.rounds);
      if (p.rounds > 0) {
        EXPECT_EQ(p.acceptance, known->second.length > 1 ? 1 : 0);
      }
      found.push_back(level_budget(std::min(known->second.length, p.room.depth), 1));
    }
    return found;
  }
  void observe(const StepReport& report) override {
    for (const SequenceReport& s : report.sequences) {
      EXPECT_EQ(s.levels.size(), std::size_t(s.tested()));
      Known& known = lengths_.at(s.id);
      ++known.rounds;
      if (s.depth == 0) continue;
      known.length = std::max(1, known.length + (s.rejected ? -1 : 1));
    }
  }
  void forget(const Sequence& sequence) override { ended += lengths_.erase(sequence.id); }
  std::size_t ended = 0;

 private:
  struct Known {
    int length = 1, rounds = 0;
    Known(int first) : length(first) {}
  };
  std::map<SequenceId, Known> lengths_;
};

TEST(SimulatedEngine, TellsPoliciesOfPastRounds) {
  const CostModel costs = costs_by_hand();
  Followers follower;
  const std::vector<PredictedRequest> requests(2, {.prompt_tokens = 0, .new_tokens = 20});
  // 2, 3, 4, 5 and 6 tokens of drafts of 1 to 5 levels.
  const PredictedSide all = served(costs, requests, 1, &follower, {{1}, {1}}, 0);
  EXPECT_EQ(all.rounds, 2 * 5);
  EXPECT_TRUE(all.varies);
  EXPECT_EQ(follower.ended, 2u);
  Followers other;
  EXPECT_EQ(served(costs, requests, 1, &other, {{0}, {1}}, 0).rounds, 2 * 20);
}

TEST(Predictions, OfPoliciesThatFollowBeginAnewAndHaveNoBreakEven) {
  const CostModel costs = costs_by_hand();
  const std::vector<PredictedRequest> requests(2, {.prompt_tokens = 0, .new_tokens = 20});
  const KnownAcceptance always({1.0});
  const Prediction p = predicted(costs, requests, 1, [] { return std::make_unique<Followers>(); }, &always);
  EXPECT_DOUBLE_EQ(p.tau.value, 4) << "as in the first serving: each asks a policy that knows nothing";
  EXPECT_TRUE(std::isnan(p.break_even));
}

TEST(Predictions, OfAnExactCaseAreThoseByHand) {
  const CostModel costs = costs_by_hand();
  const KnownAcceptance always({1.0});
  const Prediction p = predicted(costs, kOne, 1, chains(2), &always);
  EXPECT_DOUBLE_EQ(p.tau.value, 2.5);
  EXPECT_NEAR(p.speedup.value, 51 / 28.2, 1e-3);
  EXPECT_LE(p.speedup.low, p.speedup.value);
  EXPECT_GE(p.speedup.high, p.speedup.value);
  EXPECT_NEAR(p.plain_tokens_per_second, 5 / 51e-3, 0.1);
  EXPECT_FALSE(p.beyond);
}

// 14.5 ms of a draft of 2 against 10: 1 + a + a^2 = 1.45.
TEST(Predictions, SayWhichAcceptanceBreaksEven) {
  const CostModel costs = costs_by_hand();
  const std::vector<PredictedRequest> requests{{.prompt_tokens = 0, .new_tokens = 50}};
  const FreshPolicy two = chains(2), none = chains(0), nine = chains(9);
  const Prediction p = predicted(costs, requests, 1, two, nullptr);
  EXPECT_NEAR(p.break_even, (std::sqrt(1 + 4 * 0.45) - 1) / 2, 1e-3);
  EXPECT_FALSE(p.speedup.known());
  EXPECT_FALSE(p.tau.known());
  EXPECT_TRUE(std::isnan(predicted(costs, requests, 1, none, nullptr).break_even)) << "nothing is drafted";
  EXPECT_TRUE(std::isnan(predicted(costs_by_hand(30e-3), requests, 1, two, nullptr).break_even)) << "too dear";
  EXPECT_TRUE(predicted(costs, requests, 1, nine, nullptr).beyond);
  const KnownAcceptance known({p.break_even});
  const std::vector<PredictedRequest> longer{{.prompt_tokens = 0, .new_tokens = 3000}};
  EXPECT_NEAR(predicted(costs, longer, 1, two, &known).speedup.value, 1, 0.02);
}

// The end of an output has no room for a whole draft.
TEST(SimulatedEngine, AFewSmallerStepsAreNotBeyond) {
  std::vector<CostedStep> steps = costs_by_hand().steps();
  std::erase_if(steps, [](const CostedStep& s) { return s.shape.depth == 1; });
  const CostModel costs(steps, {});
  Chains one(1), two(2);
  const std::vector<PredictedRequest> requests{{.prompt_tokens = 0, .new_tokens = 200}};
  EXPECT_FALSE(served(costs, requests, 1, &two, {{0.5}, {1}}, 0).beyond);
  EXPECT_TRUE(served(costs, requests, 1, &one, {{0.5}, {1}}, 0).beyond);
  EXPECT_FALSE(served(costs, requests, 1, &two, {{0.1}, {0.2}}, 0).beyond) << "seldom found, but as wide";
}

TEST(Predictions, OfCostsWithoutAnErrorHaveNoBoundsOfTimes) {
  std::vector<CostedStep> two = costs_by_hand().steps();
  two.resize(2);
  const CostModel costs(two, {});
  ASSERT_TRUE(std::isnan(costs.cross_validation().median));
  const KnownAcceptance half({0.5});
  const Prediction p = predicted(costs, kOne, 1, chains(1), &half);
  EXPECT_TRUE(p.tau.bounded());
  EXPECT_TRUE(p.speedup.known());
  EXPECT_FALSE(p.speedup.bounded());
  EXPECT_TRUE(p.tokens_per_second.known());
  EXPECT_FALSE(p.tokens_per_second.bounded());
  PredictedCell cell{.run = test::run("draft_model", 1), .axes = nlohmann::json::object(), .prediction = p};
  const std::string text = prediction_report({cell}, {"F", costs.document(), costs}, {});
  EXPECT_NE(text.find("Error of its step times: not known, from so few steps."), std::string::npos) << text;
}

TEST(Predictions, AreHeldAgainstWhatWasMeasured) {
  std::vector<PredictedCell> cells;
  for (const double value : {1.6, 1.76, 2.4}) {
    PredictedCell& cell = cells.emplace_back();
    cell.prediction.speedup = Interval::of(value);
    cell.measured = summarize(test::worked_line());  // 1.6
  }
  cells.emplace_back().refusal = "no";
  cells.emplace_back();  // not measured
  const PredictionErrors e = errors_of(cells);
  EXPECT_EQ(e.cells, 3u);
  EXPECT_NEAR(e.speedup.median, 0.1, 1e-9);
  EXPECT_NEAR(e.speedup.worst, 0.5, 1e-9);
  EXPECT_TRUE(std::isnan(e.tau.median)) << "none was predicted";
}

}  // namespace
}  // namespace foretoken
