// The policy `goodput` with simulated acceptance and times: which depths it asks for, and what that yields beside plain
// decoding and beside the best depth that is known in advance.
#include <algorithm>
#include <cmath>

#include <gtest/gtest.h>

#include "drafters/drafters.h"
#include "drafters/policies/cost_model.h"
#include "drafters/policies/step_costs.h"
#include "kernels/backend.h"
#include "kernels/philox.h"
#include "tests/support/sentence.h"

namespace foretoken::test {
namespace {

using nlohmann::json;

// Draws of this test alone.
double uniform(std::uint64_t seed, std::uint32_t step, std::uint32_t which) {
  return Draws{.seed = seed, .root = step}.uniform({Role::draft, which, 0});
}

// A machine and a drafter: seconds of a forward by its rows, of a level of the draft, and how often a level is
// accepted.
struct World {
  double forward = 10e-3, row = 0.1e-3, level = 1e-3, draft_row = 0, alpha = 0.7, hit = 1, noise = 0.05;

  double other(double rows) const { return forward + row * rows; }
  double draft(int depth, double levels) const { return depth == 0 ? 0 : level * depth + draft_row * levels; }
  // Tokens per second where every sequence of a batch asks for as many levels.
  double rate(int batch, int depth) const {
    double tokens = 1, reach = hit;
    for (int i = 0; i < depth; ++i) tokens += reach *= alpha;
    return batch * tokens / (other(batch * (1.0 + hit * depth)) + draft(depth, double(batch) * depth));
  }
  double best(int batch, int most = 8) const {
    double found = 0;
    for (int depth = 0; depth <= most; ++depth) found = std::max(found, rate(batch, depth));
    return found;
  }
};

struct Simulation {
  Simulation() { policy = goodput().make({{"most", 8}, {"width", 1}, {"start", 4}}, host); }
  // With costs as they would have been measured in this world.
  void know(const World& world) {
    std::vector<CostedStep> steps;
    for (const int batch : {1, 4, 16, 64})
      for (const int depth : {0, 1, 4, 8}) {
        const double levels = double(batch) * depth;
        CostedStep s{.shape = {.batch = batch, .depth = depth, .levels = levels, .rows = batch + world.hit * levels}};
        s.shape.context = 100.0 * batch;
        s.draft_seconds = world.draft(depth, levels);
        s.seconds = s.draft_seconds + world.other(s.shape.rows);
        steps.push_back(s);
      }
    policy =
        goodput().make({{"most", 8}, {"width", 1}, {"start", 4}, {"costs", CostModel(steps, {}).document()}}, host);
  }

  // So many steps of a batch whose sequences end after 100 rounds each; returns its tokens per second.
  double run(const World& world, int batch, int steps) {
    double tokens = 0, seconds = 0;
    for (int i = 0; i < steps; ++i, ++step) {
      std::vector<PastOnly> past;
      for (int s = 0; s < batch; ++s)
        past.push_back({.id = id_of(s), .length = 100, .batch = batch, .room = {kMaxNodes, kMaxPath}});
      const std::vector<Budget> budgets = policy->budgets(past);
      StepReport report;
      depths.clear();
      int drafted = 0;
      for (int s = 0; s < batch; ++s) {
        const int depth = budgets[std::size_t(s)].depth;
        EXPECT_EQ(budgets[std::size_t(s)].nodes, depth + 1);
        depths.push_back(depth);
        SequenceReport r{};
        r.id = id_of(s);
        r.judged = true;
        r.prompt_rows = with_prompts && s == 0;
        const auto draw = [&](int level) { return uniform(id_of(s), step, std::uint32_t(level)); };
        if (depth > 0 && draw(99) < world.hit) {
          r.depth = r.drafted = depth;
          while (r.accepted < depth && draw(r.accepted) < world.alpha) ++r.accepted;
          r.rejected = r.accepted < depth;
        }
        r.emitted.assign(std::size_t(r.accepted + 1), 0);
        tokens += r.accepted + 1;
        drafted += r.drafted;
        report.sequences.push_back(r);
      }
      report.rows = batch + drafted;
      const double noise = 1 + world.noise * (2 * uniform(7, step, 98) - 1);
      double levels = 0;
      for (const int d : depths) levels += d;
      report.phases.draft_forward = noise * world.draft(std::ranges::max(depths), levels);
      report.phases.total = report.phases.draft_forward + noise * world.other(report.rows);
      seconds += report.phases.total;
      policy->observe(report);
    }
    return tokens / seconds;
  }
  SequenceId id_of(int slot) const { return SequenceId(1 + slot + 1000 * (step / 100)); }

  std::unique_ptr<Backend> backend = make_cpu_backend(1);
  PagePool pool{*backend, 64, 1};
  ModelInfo target;
  Host host{*backend, pool, target, {}, false};
  std::unique_ptr<LengthPolicy> policy;
  std::uint32_t step = 0;
  bool with_prompts = false;  // in every step
  std::vector<int> depths;    // of the last step
};

class Goodputs : public testing::Test, public Simulation {};

TEST_F(Goodputs, ComeNearTheBestDepthWhateverTheDrafterIsWorth) {
  for (const double alpha : {0.3, 0.6, 0.8, 0.95})
    for (const double level : {0.1e-3, 1e-3, 3e-3})
      for (const int batch : {1, 16, 64}) {
        Simulation fresh;
        const World world{.row = 0.2e-3, .level = level, .alpha = alpha};
        fresh.run(world, batch, 100);
        EXPECT_GT(fresh.run(world, batch, batch == 1 ? 3000 : 400), 0.95 * world.best(batch))
            << alpha << " " << level << " " << batch;
      }
}

TEST_F(Goodputs, LoseNextToNothingWhereNoDraftPays) {
  const World world{.row = 1e-3, .level = 5e-3, .alpha = 0.3};
  ASSERT_EQ(world.best(16), world.rate(16, 0));
  EXPECT_GT(run(world, 16, 1000), 0.97 * world.rate(16, 0)) << "the start included";
  EXPECT_GT(run(world, 16, 2000), 0.99 * world.rate(16, 0));
}

TEST_F(Goodputs, WithKnownCostsSpendNoStepOnMeasuringThem) {
  const World pays{.row = 0.2e-3, .level = 1e-3, .alpha = 0.8}, loses{.row = 1e-3, .level = 5e-3, .alpha = 0.3};
  know(pays);
  EXPECT_GT(run(pays, 4, 60), 0.93 * pays.best(4)) << "from the first step on";
  for (const int batch : {16, 64}) {
    Simulation told, alone;
    told.know(loses);
    const double rate = told.run(loses, batch, 40);
    // One draft of all finds out what is accepted, and one sequence tries again for three steps.
    EXPECT_GT(rate, 0.96 * loses.rate(batch, 0)) << batch;
    EXPECT_GT(rate, 1.02 * alone.run(loses, batch, 40)) << "which measures drafts that do not pay";
  }
}

// Costs of a machine on which drafts are far cheaper, and of one on which they are far dearer.
TEST_F(Goodputs, LearnWhereKnownCostsAreWrong) {
  const World world{.row = 0.2e-3, .level = 1e-3, .alpha = 0.8};
  for (const double level : {0.05e-3, 8e-3}) {
    Simulation fooled;
    fooled.know({.row = 0.2e-3, .level = level, .alpha = 0.8});
    fooled.run(world, 4, 1500);
    EXPECT_GT(fooled.run(world, 4, 500), 0.95 * world.best(4)) << level;
  }
}

TEST_F(Goodputs, RefuseCostsWithoutDrafts) {
  const CostModel plain({{.shape = {.batch = 1, .rows = 1}, .seconds = 0.01}}, {});
  const json options{{"most", 8}, {"width", 1}, {"start", 4}, {"costs", plain.document()}};
  EXPECT_THROW((void)goodput().make(options, host), Error);
}

TEST_F(Goodputs, FollowALoadThatRisesAndFalls) {
  const World world{.row = 0.5e-3, .level = 1e-3, .alpha = 0.6};
  for (const int batch : {1, 64, 4, 64, 1}) {
    run(world, batch, 50);
    EXPECT_GT(run(world, batch, 200), 0.95 * world.best(batch)) << batch;
  }
}

TEST_F(Goodputs, DraftAgainWhenDraftsAreAcceptedAgain) {
  run({.level = 3e-3, .alpha = 0.05}, 4, 600);
  EXPECT_EQ(std::ranges::max(depths), 0);
  const World better{.level = 3e-3, .alpha = 0.9};
  run(better, 4, 1000);
  EXPECT_GT(run(better, 4, 300), 0.95 * better.best(4));
}

TEST_F(Goodputs, CountALookupThatSeldomFindsAnything) {
  const World world{.row = 0.5e-3, .level = 0, .alpha = 0.8, .hit = 0.2};
  run(world, 8, 200);
  EXPECT_GT(run(world, 8, 400), 0.95 * world.best(8));
}

TEST_F(Goodputs, GiveMoreToTheSequenceWhoseDraftsAreAccepted) {
  std::vector<PastOnly> past{{.id = 1, .length = 9, .batch = 2, .room = {kMaxNodes, kMaxPath}},
                             {.id = 2, .length = 9, .batch = 2, .room = {kMaxNodes, kMaxPath}}};
  std::vector<Budget> budgets;
  for (int i = 0; i < 200; ++i) {
    budgets = policy->budgets(past);
    StepReport report;
    for (std::size_t s = 0; s < 2; ++s) {
      SequenceReport r{};
      r.id = past[s].id;
      r.judged = true;
      r.drafted = r.depth = budgets[s].depth;
      if (s == 1) r.accepted = r.depth;
      r.rejected = r.accepted < r.depth;
      r.emitted.assign(std::size_t(r.accepted + 1), 0);
      report.rows += 1 + r.drafted;
      report.sequences.push_back(r);
    }
    const int deepest = std::max(budgets[0].depth, budgets[1].depth);
    report.phases.draft_forward = 0.2e-3 * deepest;
    report.phases.total = report.phases.draft_forward + 10e-3 + 1e-3 * report.rows;
    policy->observe(report);
  }
  EXPECT_LE(budgets[0].depth, 1);
  EXPECT_EQ(budgets[1].depth, 8);
}

// A step of sequence 1, whose draft of so many levels was accepted as a whole.
StepReport accepted_whole(int depth) {
  StepReport report;
  SequenceReport& r = report.sequences.emplace_back();
  r.id = 1;
  r.judged = true;
  r.drafted = r.depth = r.accepted = depth;
  r.emitted.assign(std::size_t(depth + 1), 0);
  report.rows = 1 + depth;
  report.phases.total = 1e-2 + 1e-4 * depth;
  return report;
}

TEST_F(Goodputs, StayWithinTheRoomAndTheLargestBudget) {
  for (int i = 0; i < 100; ++i) {
    const std::vector<PastOnly> past{{.id = 1, .length = 9, .batch = 1, .room = {3, 2}}};
    const Budget b = policy->budgets(past).at(0);
    EXPECT_LE(b.depth, i < 60 ? 4 : 2) << "the start asks for more than there is room for, and gets less";
    EXPECT_LE(b.nodes, 9);
    policy->observe(accepted_whole(std::min(b.depth, 2)));
  }
}

// All steps read prompts of other requests.
TEST_F(Goodputs, MeasureStepsThatReadPromptsWhereThereAreNoOthers) {
  with_prompts = true;
  const World world{.row = 1e-3, .level = 5e-3, .alpha = 0.3};
  run(world, 16, 200);
  EXPECT_GT(run(world, 16, 1000), 0.98 * world.rate(16, 0));
}

TEST_F(Goodputs, BanditOfLengthsComesNearTheBestOfThem) {
  for (const bool prompts : {false, true}) {
    Simulation fresh;
    fresh.with_prompts = prompts;
    fresh.policy = bandit_length().make({{"lengths", {0, 2, 4, 8}},
                                         {"width", 1},
                                         {"rule", "thompson"},
                                         {"exploration", 0.3},
                                         {"explore", 8},
                                         {"trial", 4},
                                         {"seed", 1}},
                                        fresh.host);
    const World world{.level = 0.5e-3, .alpha = 0.8};
    fresh.run(world, 4, 300);
    EXPECT_GT(fresh.run(world, 4, 1000), 0.9 * world.rate(4, 8));
    EXPECT_GT(world.rate(4, 8), 1.3 * world.rate(4, 0));
  }
}

// Where a device records every step, none is measured.
TEST_F(Goodputs, BanditOfLengthsSaysThatItMeasuresNothing) {
  policy = bandit_length().make({{"lengths", {0, 2}},
                                 {"width", 1},
                                 {"rule", "thompson"},
                                 {"exploration", 0.3},
                                 {"explore", 4},
                                 {"trial", 2},
                                 {"seed", 1}},
                                host);
  const auto steps = [&](int count, int recorded) {
    for (int n = 0; n < count; ++n) {
      const std::vector<PastOnly> past{{.id = 1, .batch = 1, .room = {kMaxNodes, kMaxPath}}};
      StepReport report = accepted_whole(policy->budgets(past).front().depth);
      report.recorded = recorded;
      policy->observe(report);
    }
  };
  steps(15, 1);
  EXPECT_EQ(policy->notice(), "") << "it may still begin to";
  steps(5, 1);
  EXPECT_TRUE(test::says(policy->notice(), "'bandit_length' could measure 0 of 20 steps",
                         "has not compared all of its lengths"));
  steps(40, 0);
  EXPECT_EQ(policy->notice(), "");
}

TEST_F(Goodputs, TableGivesTheLengthOfTheBatch) {
  policy = table().make({{"lengths", {{2, 6}, {16, 2}, {64, 0}}}, {"width", 2}}, host);
  for (const auto& [batch, length] : {std::pair{1, 6}, {2, 6}, {15, 6}, {16, 2}, {63, 2}, {64, 0}, {500, 0}}) {
    const std::vector<PastOnly> past(2, {.batch = batch, .room = {kMaxNodes, kMaxPath}});
    for (const Budget& b : policy->budgets(past)) {
      EXPECT_EQ(b.depth, length) << batch;
      EXPECT_EQ(b.nodes, 1 + 2 * length);
    }
  }
}

TEST_F(Goodputs, TableHasLengthsOrAFileOfThem) {
  const json lengths{{1, 2}}, file{{"lengths", lengths}};
  EXPECT_EQ(table().traits({{"lengths", nullptr}, {"file", file}, {"width", 1}}, {}).most.depth, 2);
  EXPECT_EQ(table().traits({{"lengths", nullptr}, {"file", nullptr}, {"width", 1}}, {}).most.depth, 4);
  const json both{{"lengths", lengths}, {"file", file}, {"width", 1}};
  EXPECT_TRUE(test::says(test::sentence_of([&] { (void)table().traits(both, {}); }), "leave one of them out"));
}

TEST(StepCosts, AreThoseOfALinearMachineAndCorrectedWhereItIsNone) {
  StepCosts costs(0.995);
  const auto other = [](const StepShape& s) { return 5e-3 + 1e-4 * s.rows + (s.depth == 8 ? 3e-3 : 0); };
  const auto shape = [](int batch, int depth) {
    return StepShape{.batch = batch,
                     .depth = depth,
                     .levels = double(batch) * depth,
                     .rows = double(batch) * (1 + depth),
                     .context = 100.0 * batch};
  };
  EXPECT_EQ(costs.seconds(shape(1, 0)), 0);
  for (int i = 0; i < 300; ++i) {
    const StepShape s = shape(1 + i % 7, i % 3 == 0 ? 0 : i % 3 == 1 ? 4 : 8);
    Phases phases;
    phases.draft_forward = s.depth * 1e-3;
    phases.total = phases.draft_forward + other(s);
    costs.add(s, phases);
  }
  for (const int depth : {0, 4, 8}) {
    const StepShape s = shape(4, depth);
    EXPECT_NEAR(costs.seconds(s), depth * 1e-3 + other(s), 0.05 * (depth * 1e-3 + other(s))) << depth;
  }
  EXPECT_EQ(costs.measured(8), 100);
  const double before = costs.seconds(shape(4, 4));
  Phases stopped;
  stopped.total = 100;
  costs.add(shape(4, 4), stopped);
  EXPECT_LT(costs.seconds(shape(4, 4)), 1.2 * before) << "a process that was stopped once";
  stopped.total = NAN;
  costs.add(shape(4, 4), stopped);
  EXPECT_LT(costs.seconds(shape(4, 4)), 1.2 * before);
}

}  // namespace
}  // namespace foretoken::test
