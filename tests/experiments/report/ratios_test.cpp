// Ratios of two runs of the same prompts, and intervals of several ratios that hold together.
#include <cmath>
#include <random>

#include <gtest/gtest.h>

#include "experiments/report/statistics.h"

namespace foretoken {
namespace {

// Two runs of the same prompts, which are fast and slow in both: the ratio of what they share is known well, that of
// runs whose prompts are matched wrongly is not.
TEST(Statistics, ARatioIsThatOfTheSamePrompts) {
  Measurements a(12, 3), b(12, 3), crossed(12, 3);
  for (int p = 0; p < 12; ++p)
    for (int r = 0; r < 3; ++r) {
      a.at(p, r) = {10, 1.0 + p, 10, 20}, b.at(p, r) = {11, 1.0 + p, 10, 20};
      crossed.at(p, r) = {11, 1.0 + (p + 6) % 12, 10, 20};
    }
  const Interval ratio = interval_of(resampled_ratio(a, b));
  EXPECT_NEAR(ratio.value, 1.1, 1e-12);
  EXPECT_NEAR(ratio.width(), 0, 1e-9);
  EXPECT_TRUE(paired_interval(a).overlaps(paired_interval(b))) << "what two intervals cannot tell apart";
  EXPECT_GT(interval_of(resampled_ratio(a, crossed)).width(), 0.5);
}

// Of one prompt there is nothing that its own effects could cancel: it says as much of the machine as several that
// agree.
TEST(Statistics, OnePromptSaysWhatEqualPromptsSayOfTheMachine) {
  const auto side = [](int prompts, std::vector<double> seconds) {
    Measurements m(prompts, 3);
    for (int p = 0; p < prompts; ++p)
      for (int r = 0; r < 3; ++r) m.at(p, r) = {10, seconds[std::size_t(r)], 10, 2};
    return m;
  };
  const auto machine = [&](int prompts) {
    return resampled_ratio(side(prompts, {0.9, 1, 1.1}), side(prompts, {1.05, 1, 0.9})).machine;
  };
  EXPECT_GT(machine(1), 0.05);
  EXPECT_NEAR(machine(1), machine(2), 1e-9);
}

TEST(Statistics, ARatioOfOtherPromptsHasNoBounds) {
  Measurements a(3, 2), b(2, 2), none(0, 0);
  for (Measurements* side : {&a, &b})
    for (Term& term : side->terms) term = {10, 1, 10, 2};
  EXPECT_EQ(interval_of(resampled_ratio(a, b)).value, 1);
  EXPECT_FALSE(interval_of(resampled_ratio(a, b)).bounded());
  EXPECT_FALSE(interval_of(resampled_ratio(a, none)).known());
  EXPECT_FALSE(interval_of(resampled_ratio(none, a)).known());
}

// A ratio alone needs no correction, and one without bounds corrects nothing.
TEST(Statistics, OneRatioIsAsWideAsItsOwnInterval) {
  Measurements measured(9, 3);
  for (int p = 0; p < 9; ++p)
    for (int r = 0; r < 3; ++r) measured.at(p, r) = {10, 1 + 0.1 * p + 0.05 * r, 10, 2};
  const Resampled ratio = resampled(measured), unbounded{1.5};
  const Interval alone = interval_of(ratio);
  const std::vector<Interval> all = simultaneous_intervals(std::vector<Resampled>{ratio, unbounded});
  EXPECT_NEAR(all[0].low, alone.low, 0.03 * alone.width());
  EXPECT_NEAR(all[0].high, alone.high, 0.03 * alone.width());
  EXPECT_EQ(all[1].value, 1.5);
  EXPECT_FALSE(all[1].bounded());
}

// Of `runs` pairs of runs of equal speed: the share of experiments in which
// no interval of a ratio misses the truth, 1.
double family_coverage(int runs, int prompts, int repeats, bool simultaneous, int experiments) {
  std::mt19937 random(20261126);
  std::normal_distribution<double> normal(0, 1);
  int held = 0;
  for (int e = 0; e < experiments; ++e) {
    std::vector<double> length;
    for (int p = 0; p < prompts; ++p) length.push_back(32 + 32 * std::abs(normal(random)));
    const auto one = [&] {
      Measurements m(prompts, repeats);
      for (int r = 0; r < repeats; ++r) {
        const double machine = std::exp(0.02 * normal(random));
        for (int p = 0; p < prompts; ++p)
          m.at(p, r) = {length[std::size_t(p)], length[std::size_t(p)] * machine * std::exp(0.1 * normal(random)), 1,
                        1};
      }
      return m;
    };
    std::vector<Resampled> ratios;
    for (int k = 0; k < runs; ++k) ratios.push_back(resampled_ratio(one(), one()));
    const std::vector<Interval> together = simultaneous_intervals(ratios);
    bool all = true;
    for (int k = 0; k < runs; ++k)
      all &= (simultaneous ? together[std::size_t(k)] : interval_of(ratios[std::size_t(k)])).contains(1);
    held += all;
  }
  return double(held) / experiments;
}

TEST(Statistics, IntervalsOfManyRatiosHoldTogether) {
  EXPECT_GE(family_coverage(24, 8, 6, true, 60), 0.90);
  EXPECT_LE(family_coverage(24, 8, 6, false, 60), 0.85) << "each alone covers, all together do not";
}

}  // namespace
}  // namespace foretoken
