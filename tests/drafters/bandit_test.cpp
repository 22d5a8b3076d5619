// The bandit with simulated arms and times: which arm it asks, what it learns, and what that costs.
#include <cmath>

#include <gtest/gtest.h>

#include "kernels/philox.h"
#include "tests/drafters/parts_by_hand.h"

namespace foretoken::test {
namespace {

json bandit_of(int arms, const json& more = json::object()) {
  json config{{"name", "bandit"}, {"drafters", json::array()}};
  for (int k = 0; k < arms; ++k) config["drafters"].push_back(arm(k, {{5}}));
  config.update(more);
  return config;
}

// Draws of this test alone.
double uniform(std::uint64_t seed, std::uint32_t step, std::uint32_t which) {
  return Draws{.seed = seed, .root = step}.uniform({Role::draft, which, 0});
}

// An arm whose chain of `length` tokens is accepted with `alpha` each, in steps of `seconds`.
struct SimulatedArm {
  double alpha;
  int length;
  double seconds;

  double rate() const { return (1 - std::pow(alpha, length + 1)) / (1 - alpha) / seconds; }
  int tokens(std::uint64_t seed, std::uint32_t step) const {
    int accepted = 0;
    while (accepted < length && uniform(seed, step, std::uint32_t(accepted)) < alpha) ++accepted;
    return accepted + 1;
  }
};

class Simulated {
 public:
  Simulated(const json& config, std::vector<SimulatedArm> arms) : parts_(config), arms_(std::move(arms)) {}

  using Change = std::function<void(StepReport&, int chosen)>;
  // One step; returns the arm that drafted.
  int step(std::uint64_t seed, std::uint32_t number, const std::vector<std::string>& categories = {""},
           const Change& change = {}) {
    parts_.draft(std::vector<Budget>(categories.size(), {9, 8}), categories);
    int chosen = -1;
    for (int k = 0; k < int(arms_.size()); ++k) {
      ArmLog& log = parts_.log(k);
      if (log.drafted.empty()) continue;
      EXPECT_EQ(chosen, -1) << "one arm drafts for all";
      EXPECT_EQ(log.drafted.size(), categories.size());
      chosen = k;
      log.drafted.clear();
    }
    const SimulatedArm& a = arms_.at(std::size_t(chosen));
    StepReport report;
    for (std::size_t i = 0; i < categories.size(); ++i) {
      report.sequences.emplace_back();
      report.sequences.back().emitted.assign(std::size_t(a.tokens(seed + i, number)), 0);
      tokens_ += double(report.sequences.back().emitted.size());
    }
    report.phases.total = a.seconds * (0.9 + 0.2 * uniform(seed, number, 99));
    seconds_ += report.phases.total;
    if (change) change(report, chosen);
    parts_.drafter().observe_step(report);
    return chosen;
  }
  // Tokens per second since the last call.
  double rate() {
    const double rate = tokens_ / seconds_;
    tokens_ = seconds_ = 0;
    return rate;
  }
  PartsByHand& parts() { return parts_; }

 private:
  PartsByHand parts_;
  std::vector<SimulatedArm> arms_;
  double tokens_ = 0, seconds_ = 0;
};

// Rates 108 to 186 tokens a second; the best is neither the longest nor the cheapest.
const std::vector<SimulatedArm> kFive{
    {0.5, 2, 0.0161}, {0.7, 4, 0.0190}, {0.8, 4, 0.0181}, {0.6, 8, 0.0150}, {0.35, 1, 0.0116}};

double best_of(const std::vector<SimulatedArm>& arms) {
  double best = 0;
  for (const SimulatedArm& a : arms) best = std::max(best, a.rate());
  return best;
}

// The bar: rounds 201 to 1,000 at 0.9 of the best arm of hindsight, whatever the seed and the place of the best arm.
TEST(Bandit, IsNearTheBestOfFiveArms) {
  for (const char* rule : {"thompson", "ucb"}) {
    double sum = 0, worst = 1e9;
    int runs = 0;
    for (std::uint64_t seed = 1; seed <= 8; ++seed)
      for (std::size_t turn = 0; turn < kFive.size(); ++turn, ++runs) {
        std::vector<SimulatedArm> arms = kFive;
        std::ranges::rotate(arms, arms.begin() + std::ptrdiff_t(turn));
        Simulated run(bandit_of(5, {{"rule", rule}, {"seed", seed}}), arms);
        for (std::uint32_t n = 1; n <= 1000; ++n) {
          run.step(seed * 1000, n);
          if (n == 200) run.rate();
        }
        const double share = run.rate() / best_of(arms);
        sum += share, worst = std::min(worst, share);
      }
    EXPECT_GE(sum / runs, 0.95) << rule;
    EXPECT_GE(worst, 0.9) << rule;
    std::printf("%s: rounds 201 to 1000 at %.3f of the best arm on average, %.3f at worst of %d runs\n", rule,
                sum / runs, worst, runs);
  }
}

TEST(Bandit, TriesEveryArmFirstInOrderAndInTrials) {
  Simulated run(bandit_of(3, {{"explore", 3}, {"trial", 2}}), {{0.5, 2, 0.01}, {0.5, 2, 0.01}, {0.5, 2, 0.01}});
  std::vector<int> arms;
  for (std::uint32_t n = 1; n <= 18; ++n) arms.push_back(run.step(1, n));
  // The first step of an arm is not measured, so that it has 2 measured steps after 3, and 4 after a second trial.
  EXPECT_EQ(arms, (std::vector<int>{0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, arms[15], arms[16], arms[17]}));
}

TEST(Bandit, TakesTheFirstOfEqualArms) {
  Simulated run(bandit_of(3, {{"explore", 1}, {"trial", 1}, {"rule", "ucb"}, {"exploration", 0}}),
                {{0, 2, 0.01}, {0, 2, 0.01}, {0, 2, 0.01}});
  const auto same = [](StepReport& r, int) { r.phases.total = 0.25; };  // sums without rounding
  for (std::uint32_t n = 1; n <= 6; ++n) EXPECT_EQ(run.step(1, n, {""}, same), int(n - 1) / 2);
  for (std::uint32_t n = 7; n <= 30; ++n) EXPECT_EQ(run.step(1, n, {""}, same), 0);
}

// Steps that tell nothing of an arm do not mislead it.
TEST(Bandit, MeasuresNoStepThatReadsPromptsOrIsRecorded) {
  const std::vector<SimulatedArm> arms{{0, 1, 0.01}, {0, 1, 0.02}};
  const json config = bandit_of(2, {{"explore", 2}, {"trial", 2}, {"rule", "ucb"}, {"exploration", 0}});
  for (const auto& spoil : std::vector<std::function<void(StepReport&)>>{
           [](StepReport& r) { r.sequences[0].prompt_rows = 3; }, [](StepReport& r) { r.recorded = 1; },
           [](StepReport& r) { r.preempted = 1; }}) {
    Simulated run(config, arms);
    int last = -1, changed = 0;
    for (std::uint32_t n = 1; n <= 60; ++n) {
      const int now = run.step(1, n, {""}, [&](StepReport& r, int chosen) {
        if (n % 3 != 0) return;
        r.phases.total = chosen == 0 ? 1e3 : 1e-6;
        spoil(r);
      });
      changed += now != last, last = now;
    }
    EXPECT_EQ(last, 0);
    EXPECT_EQ(changed, 3) << "arm 0, then 1, then 0 for good";
  }
}

// Where requests come steadily, every step may read a prompt.
TEST(Bandit, SaysThatItMeasuresNothing) {
  Simulated run(bandit_of(2, {{"explore", 4}, {"trial", 2}}), {{0, 1, 0.01}, {0, 1, 0.02}});
  const auto reads = [](StepReport& r, int) { r.sequences[0].prompt_rows = 3; };
  for (std::uint32_t n = 1; n <= 30; ++n) {
    EXPECT_EQ(run.step(1, n, {""}, reads), 0);
    EXPECT_EQ(run.parts().drafter().notice().empty(), n < 16) << n;
  }
  EXPECT_TRUE(says(run.parts().drafter().notice(), "'bandit' could measure 0 of 30 steps", "has not compared all"));
  for (std::uint32_t n = 31; n <= 50; ++n) run.step(1, n);
  EXPECT_EQ(run.parts().drafter().notice(), "") << "it has compared them";
}

TEST(Bandit, HasABanditForEachCategory) {
  // The arm 0 is fast for "a" alone.
  Simulated run(bandit_of(2, {{"categories", true}, {"rule", "ucb"}, {"exploration", 0}, {"trial", 1}, {"explore", 4}}),
                {{0, 1, 0.01}, {0, 1, 0.01}});
  std::map<std::string, int> last;
  const auto step = [&](std::uint32_t n, const std::vector<std::string>& categories, const std::string& name) {
    last[name] = run.step(n, n, categories, [&](StepReport& r, int chosen) {
      r.phases.total = (chosen == 0) == (name == "a") ? 0.01 : 0.02;
    });
  };
  for (std::uint32_t n = 1; n <= 120; n += 3) {
    step(n, {"a", "a"}, "a"), step(n + 1, {"b"}, "b"), step(n + 2, {"a", "b"}, "both");
  }
  EXPECT_EQ(last["a"], 0);
  EXPECT_EQ(last["b"], 1);
  EXPECT_EQ(last["both"], 1);
}

TEST(Bandit, DrawsAreNamedByItsSeedAndTheStep) {
  const auto arms = [](int seed) {
    Simulated run(bandit_of(3, {{"seed", seed}, {"trial", 1}, {"explore", 4}}),
                  {{0.5, 4, 0.01}, {0.5, 4, 0.01}, {0.5, 4, 0.01}});
    std::vector<int> all;
    for (std::uint32_t n = 1; n <= 200; ++n) all.push_back(run.step(1, n));
    return all;
  };
  EXPECT_EQ(arms(1), arms(1));
  EXPECT_NE(arms(1), arms(2));
}

// What only reads is read by all arms; a step without a draft is none of the bandit's.
TEST(Bandit, LetsAllArmsReadPrompts) {
  PartsByHand parts(bandit_of(2));
  parts.draft({{1, 0}, {9, 8}});
  EXPECT_EQ(parts.log(0).read, std::vector<SequenceId>{1});
  EXPECT_EQ(parts.log(1).read, std::vector<SequenceId>{1});
  EXPECT_EQ(parts.log(0).drafted, std::vector<SequenceId>{2});
  EXPECT_TRUE(parts.log(1).drafted.empty());
}

}  // namespace
}  // namespace foretoken::test
