// Queues that are run again with other prompts.
#include <algorithm>
#include <cmath>
#include <random>
#include <set>
#include <vector>

#include <gtest/gtest.h>

#include "experiments/report/experiment.h"
#include "experiments/report/report.h"
#include "experiments/report/summary.h"
#include "tests/experiments/report/fitted_loop.h"
#include "tests/experiments/report/made_results.h"

namespace foretoken::test {
namespace {

struct Shape {
  int rounds, prompt_tokens;
};

// One alternation of requests that share two places: a step costs `step` seconds, and each row and prompt token its
// own.
Alternation queue_of(const std::vector<Shape>& shapes, double step, double row, double prompt_token) {
  std::vector<double> until(1, 0.0), free{0, 0};
  std::vector<std::pair<int, int>> stays;
  for (const Shape& s : shapes) {
    double& place = *std::ranges::min_element(free);
    stays.push_back({int(place), int(place) + s.rounds});
    place += s.rounds;
  }
  const int steps = int(*std::ranges::max_element(free));
  for (int t = 0; t < steps; ++t) {
    double seconds = step;
    for (std::size_t i = 0; i < shapes.size(); ++i) {
      if (stays[i].first == t) seconds += prompt_token * shapes[i].prompt_tokens;
      if (stays[i].first <= t && t < stays[i].second) seconds += 3 * row;
    }
    until.push_back(until.back() + seconds);
  }
  Alternation found;
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    RequestRecord& r = found.baseline.requests.emplace_back();
    r.prompt = int(i);
    r.rounds = shapes[i].rounds;
    r.drafted = r.tokens = 2 * r.rounds;
    r.prompt_tokens = shapes[i].prompt_tokens;
    r.seconds = until[std::size_t(stays[i].second)] - until[std::size_t(stays[i].first)];
  }
  found.baseline.steps = steps;
  found.baseline.seconds = until.back();
  return found;
}

std::optional<ClosedLoop> loop_of(const std::vector<Alternation>& repeats) {
  return closed_loop_of(repeats, &Alternation::baseline, 2);
}

const std::vector<Shape> kShapes = {{5, 10}, {9, 30}, {2, 7}, {7, 12}, {4, 50}, {3, 20}, {8, 9}, {13, 40}};

TEST(ClosedLoop, FindsWhatStepsCost) {
  const auto loop = loop_of({queue_of(kShapes, 0.5, 0.01, 0.002)});
  ASSERT_TRUE(loop);
  EXPECT_EQ(loop->requests.size(), kShapes.size());
  EXPECT_NEAR(loop->step, 0.5, 1e-3);
  EXPECT_NEAR(loop->row, 0.01, 1e-4);
  EXPECT_NEAR(loop->prompt_token, 0.002, 1e-5);
}

// Where all prompts are alike the queue is the same again.
TEST(ClosedLoop, OfEqualPromptsDoesNotVary) {
  const auto loop = loop_of({queue_of(std::vector<Shape>(9, {5, 10}), 0.5, 0.01, 0)});
  ASSERT_TRUE(loop);
  const ServedAgain again = served_again(*loop);
  ASSERT_EQ(again.whole.size(), std::size_t(kResamples));
  for (int b = 0; b < kResamples; ++b) {
    EXPECT_NEAR(again.whole[std::size_t(b)], 0, 1e-12);
    EXPECT_NEAR(again.steady[std::size_t(b)], 0, 1e-12);
  }
}

// By hand: with steps alone, a resample of one prompt in all places takes ceil(8 / 2) times its rounds, and all emit
// two tokens a round.
TEST(ClosedLoop, RunsTheQueueOfTheDrawnPrompts) {
  ClosedLoop loop;
  loop.slots = 2, loop.step = 1;
  for (int p = 0; p < 3; ++p) loop.requests.push_back({p, p == 2 ? 4.0 : 1.0, 1, 1, 1, 1});
  const ServedAgain again = served_again(loop);
  double all = 0;
  std::vector<double> seconds;
  for (int b = 0; b < kResamples; ++b) {
    double free[2] = {};
    for (int p = 0; p < 3; ++p) *std::ranges::min_element(free) += resampled_prompt(b, p, 3) == 2 ? 4 : 1;
    seconds.push_back(std::max(free[0], free[1])), all += seconds.back();
  }
  for (int b = 0; b < kResamples; ++b)
    EXPECT_NEAR(again.whole[std::size_t(b)], std::log(all / kResamples / seconds[std::size_t(b)]), 1e-12);
}

// Requests of one prompt go together: they are replaced by those of one other prompt.
TEST(ClosedLoop, PromptsBringAllTheirRequests) {
  ClosedLoop loop;
  loop.slots = 1, loop.row = 1;
  for (int i = 0; i < 6; ++i) loop.requests.push_back({i % 2, 1, i % 2 ? 3.0 : 1.0, 1, 1, 1});
  std::set<long> seen;
  for (const double deviation : served_again(loop).whole) seen.insert(std::lround(1e6 * deviation));
  EXPECT_EQ(seen.size(), 3) << "both prompts, or one of them three times twice";
}

TEST(ClosedLoop, IsNotRunAgainWhereItIsNotTheQueueThatWasMeasured) {
  const Alternation good = queue_of(kShapes, 0.5, 0.01, 0.002);
  EXPECT_TRUE(loop_of({good, good}));
  Alternation failed = good, other = good, waited = good, endless = good;
  failed.baseline.requests[3].finish = "failed";
  other.baseline.requests.pop_back();
  waited.baseline.steps = 2 * good.baseline.steps;
  endless.baseline.requests[3].rounds = 300000000;  // would be so many steps in memory
  for (const Alternation& bad : {failed, other, waited, endless}) EXPECT_FALSE(loop_of({good, bad}));
}

TEST(ClosedLoop, TurnsOfAConversationKeepAPlace) {
  Alternation queue = queue_of({{5, 10}, {9, 30}, {4, 7}, {7, 12}}, 0.5, 0.01, 0.002);
  RequestRecord& second = queue.baseline.requests[2];
  second.prompt = 0;
  second.turn = 1;
  const auto loop = loop_of({queue});
  ASSERT_TRUE(loop);
  ASSERT_EQ(loop->requests.size(), 3);
  EXPECT_EQ(loop->requests[0].rounds, 9);
  EXPECT_EQ(loop->requests[0].prompt_tokens, 17);
}

// Intervals of a batch that cannot be run again say so.
TEST(ClosedLoop, SharesAreMarked) {
  json line = worked_line();
  const auto marked = [&] { return show({line}, {"markdown", {"main"}, 118}).find(", shares") != std::string::npos; };
  EXPECT_FALSE(marked());
  line["run"]["engine"]["batch"] = 2;
  for (json& repeat : line["repeats"])
    for (const char* side : {"speculative", "baseline"}) repeat[side]["steps"] = 1000;
  EXPECT_TRUE(marked());
}

// A few experiments of the nightly simulation: shares of the time cover nearly all truths, and are much wider.
TEST(ClosedLoop, IntervalsCoverAsTheySayAtBatch64) {
  LoopCoverages coverage;
  std::mt19937 random(1);
  const std::vector<FittedLoop> loops = fitted_loops(64);
  for (std::size_t i = 0; i < loops.size(); i += 3) coverage.add(loops[i], 384, 20, 100, random);
  EXPECT_GE(coverage.speedup.share(), 0.9);
  EXPECT_LT(coverage.speedup.share(), 0.99);
  EXPECT_GE(coverage.speedup.share_of_shares(), 0.99);
  EXPECT_LT(coverage.speedup.width, 0.8 * coverage.speedup.width_of_shares);
}

}  // namespace
}  // namespace foretoken::test
