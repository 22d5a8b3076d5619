// Averages and intervals, against values computed by hand; coverage by simulation.
#include "experiments/report/statistics.h"

#include <cmath>
#include <limits>
#include <random>

#include <boost/math/special_functions/beta.hpp>
#include <gtest/gtest.h>

namespace foretoken {
namespace {

constexpr double kNoMost = std::numeric_limits<double>::infinity();

TEST(Statistics, AveragesAreRatiosOfTotals) {
  // 1/2 and 9/10: the ratio of totals is 10/12, the mean of ratios would be 0.7.
  const std::vector<Term> terms = {{1, 2}, {9, 10}};
  EXPECT_DOUBLE_EQ(ratio_of_totals(terms), 10.0 / 12.0);
  // Speedup: 30 tokens in 3 s against 30 tokens in 6 s.
  const std::vector<Term> paired = {{10, 1, 10, 4}, {20, 2, 20, 2}};
  EXPECT_DOUBLE_EQ(ratio_of_totals(paired), 2.0);
}

TEST(Statistics, NothingToDivideByIsUnknown) {
  EXPECT_TRUE(std::isnan(ratio_of_totals({})));
  const std::vector<Term> none = {{0, 0}, {0, 0}};
  EXPECT_TRUE(std::isnan(ratio_of_totals(none)));
  EXPECT_FALSE(prompt_interval(none, 1).known());
  EXPECT_FALSE(paired_interval(Measurements(3, 2)).known());
  EXPECT_FALSE(paired_interval(Measurements(0, 0)).known());
}

TEST(Statistics, EqualPromptsLeaveNothingToDoubt) {
  const std::vector<Term> terms(7, Term{3, 4});
  const Interval interval = prompt_interval(terms, 1);
  EXPECT_DOUBLE_EQ(interval.value, 0.75);
  EXPECT_DOUBLE_EQ(interval.low, 0.75);
  EXPECT_DOUBLE_EQ(interval.high, 0.75);
}

TEST(Statistics, IntervalStaysBetweenItsBounds) {
  const std::vector<Term> terms = {{0, 5}, {5, 5}, {5, 5}};
  const Interval interval = prompt_interval(terms, 1);
  EXPECT_EQ(interval.high, 1);
  EXPECT_EQ(interval.low, 0);
  EXPECT_GT(prompt_interval(terms, kNoMost).high, 1);
}

// One measurement has no spread: unknown bounds, not bounds of zero width.
TEST(Statistics, ASingleMeasurementHasNoBounds) {
  const std::vector<Term> one_tests = {{2, 4}, {0, 0}, {0, 0}};
  for (const Interval& interval : {prompt_interval(std::vector<Term>{{2, 4}}, 1), prompt_interval(one_tests, 1)}) {
    EXPECT_DOUBLE_EQ(interval.value, 0.5);
    EXPECT_TRUE(interval.known());
    EXPECT_FALSE(interval.bounded());
    EXPECT_TRUE(interval.overlaps({0.1, 0.1, 0.1})) << "nothing can be told apart from it";
  }
  Measurements measured(1, 1), one_prompt(1, 2), one_alternation(2, 1);
  measured.at(0, 0) = one_prompt.at(0, 0) = one_alternation.at(0, 0) = {10, 1, 10, 2};
  one_prompt.at(0, 1) = one_alternation.at(1, 0) = {10, 2, 10, 2};
  EXPECT_DOUBLE_EQ(paired_interval(measured).value, 2);
  EXPECT_FALSE(paired_interval(measured).bounded());
  EXPECT_GT(paired_interval(one_prompt).width(), 0.5);
  EXPECT_GT(paired_interval(one_alternation).width(), 0.5);
}

// Prompts without tests are no measurements of alpha: two prompts with tests widen like two.
TEST(Statistics, PromptsWithNothingToDivideByDoNotNarrowTheInterval) {
  std::vector<Term> terms = {{2, 4}, {3, 4}};
  const Interval two = prompt_interval(terms, 1);
  terms.resize(30, Term{0, 0});
  const Interval among_thirty = prompt_interval(terms, 1);
  EXPECT_EQ(among_thirty.low, two.low);
  EXPECT_EQ(among_thirty.high, two.high);
}

TEST(Statistics, IntervalsOverlapAtTheirEnds) {
  const Interval low{1, 0.5, 1.5}, high{2, 1.5, 2.5}, apart{2, 1.6, 2.5};
  EXPECT_TRUE(low.overlaps(high) && high.overlaps(low) && low.overlaps(low));
  EXPECT_FALSE(low.overlaps(apart) || apart.overlaps(low));
}

TEST(Statistics, WideningIsStudentsOverNormals) {
  // t(.975, 2) = 4.30265, z = 1.95996, sqrt(3/2): the textbook table.
  EXPECT_NEAR(small_sample_widening(3, 2), 4.30265 / 1.95996 * std::sqrt(1.5), 1e-4);
  EXPECT_NEAR(small_sample_widening(2, 1), 12.7062 / 1.95996 * std::sqrt(2.0), 1e-3);
  EXPECT_EQ(small_sample_widening(1, 0), 1);
  EXPECT_NEAR(small_sample_widening(100000, 99999), 1, 1e-4);
}

TEST(Statistics, IntervalsAreTheSameEveryTime) {
  Measurements measured(5, 3);
  for (int p = 0; p < 5; ++p)
    for (int r = 0; r < 3; ++r) measured.at(p, r) = {10.0 + p, 1.0 + 0.1 * r, 10.0 + p, 2.0 + 0.2 * p};
  const Interval first = paired_interval(measured), again = paired_interval(measured);
  EXPECT_EQ(first.low, again.low);
  EXPECT_EQ(first.high, again.high);
  EXPECT_LT(first.low, first.value);
  EXPECT_GT(first.high, first.value);
}

// A slow prompt is slow on both sides: the common part cancels because measurements are paired.
TEST(Statistics, PairingCancelsWhatBothSidesShare) {
  Measurements paired(12, 3), crossed(12, 3);
  for (int p = 0; p < 12; ++p)
    for (int r = 0; r < 3; ++r) {
      const double mine = 1 + p, other = 1 + (p + 6) % 12;
      paired.at(p, r) = {10, mine, 10, 2 * mine};
      crossed.at(p, r) = {10, mine, 10, 2 * other};
    }
  EXPECT_NEAR(paired_interval(paired).width(), 0, 1e-12);
  EXPECT_GT(paired_interval(crossed).width(), 0.5);
}

TEST(Statistics, AlternationsThatDisagreeWidenTheInterval) {
  Measurements calm(12, 3), noisy(12, 3);
  const double machine[3] = {0.9, 1.0, 1.1};
  for (int p = 0; p < 12; ++p)
    for (int r = 0; r < 3; ++r) {
      calm.at(p, r) = {10, 1, 10, 2};
      noisy.at(p, r) = {10, machine[r], 10, 2};
    }
  EXPECT_NEAR(paired_interval(calm).width(), 0, 1e-12);
  EXPECT_GT(paired_interval(noisy).width(), 0.2);
}

// Two independent sources of equal size widen by sqrt 2; were the draws of the two levels the same, by 2.
TEST(Statistics, LevelsAreResampledApart) {
  Measurements one(8, 8), both(8, 8);
  for (int p = 0; p < 8; ++p)
    for (int r = 0; r < 8; ++r) {
      one.at(p, r) = {10, std::exp(0.1 * p), 10, 1};
      both.at(p, r) = {10, std::exp(0.1 * p + 0.1 * r), 10, 1};
    }
  const auto width = [](const Interval& i) { return std::log(i.high / i.low); };
  EXPECT_NEAR(width(paired_interval(both)) / width(paired_interval(one)), std::sqrt(2.0), 0.15);
}

// Means of three values from a wide sample: the bootstrap's spread must be s t / sqrt(n) for many prompts.
TEST(Statistics, AgreesWithTheTextbookForMeans) {
  std::mt19937 random(7);
  std::normal_distribution<double> normal(5, 1);
  std::vector<Term> terms;
  double sum = 0, squares = 0;
  for (int i = 0; i < 60; ++i) {
    const double x = normal(random);
    terms.push_back({x, 1});
    sum += x, squares += x * x;
  }
  const double mean = sum / 60, s = std::sqrt((squares - 60 * mean * mean) / 59), half = 2.0010 * s / std::sqrt(60.0);
  const Interval interval = prompt_interval(terms, kNoMost);
  EXPECT_NEAR(interval.value, mean, 1e-12);
  EXPECT_NEAR(interval.low, mean - half, 0.1 * half);
  EXPECT_NEAR(interval.high, mean + half, 0.1 * half);
}

// Three units of ten trials each: their totals vary like those of 30 p (1 - p) / 29 / variance trials, and fewer by the
// square of t(29) / t(2) = 2.04523 / 4.30265, since three units tell little of their variance.
TEST(Statistics, AShareOfFewUnitsByHand) {
  const Interval interval = share_interval(std::vector<Term>{{1, 10}, {5, 10}, {9, 10}});
  const double variance = 3.0 / 2 * 32 / 900, alone = 0.25 / 29, fewer = 2.04523 / 4.30265;
  const double trials = 30 * alone / variance * fewer * fewer;
  EXPECT_NEAR(interval.low, boost::math::ibeta_inv(trials / 2, trials / 2 + 1, 0.025), 1e-5);
  EXPECT_NEAR(interval.high, boost::math::ibeta_inv(trials / 2 + 1, trials / 2, 0.975), 1e-5);
}

// Share of simulated experiments whose interval contains the true value. Prompts differ in length and in speedup, the
// machine drifts between alternations, every measurement has noise of its own; the true speedup is the ratio of
// expected totals.
double coverage(int prompts, int repeats, double prompt_sd, double machine_sd, double noise_sd, int experiments) {
  std::mt19937 random(20261121);
  std::normal_distribution<double> normal(0, 1);
  std::uniform_real_distribution<double> length(32, 64);
  // Seconds without speculation are tokens; with it tokens * exp(-gain) / 2, whose mean is tokens * exp(sd^2 / 2) / 2.
  const double truth = 2 * std::exp(-prompt_sd * prompt_sd / 2);
  int held = 0;
  for (int e = 0; e < experiments; ++e) {
    Measurements measured(prompts, repeats);
    std::vector<double> machine;
    for (int r = 0; r < repeats; ++r)
      machine.push_back(std::exp(machine_sd * normal(random) - machine_sd * machine_sd / 2));
    for (int p = 0; p < prompts; ++p) {
      const double tokens = length(random), gain = prompt_sd * normal(random);
      for (int r = 0; r < repeats; ++r) {
        const double noise = std::exp(noise_sd * normal(random) - noise_sd * noise_sd / 2);
        measured.at(p, r) = {tokens, tokens * std::exp(-gain) / 2 * machine[r] * noise, tokens, tokens};
      }
    }
    held += paired_interval(measured).contains(truth);
  }
  return double(held) / experiments;
}

// 400 experiments: the standard error of a coverage of .95 is .011. The test requires that no coverage is clearly below
// .95.
TEST(Statistics, SpeedupIntervalsCoverTheTruth) {
  EXPECT_GE(coverage(24, 3, 0.3, 0.0, 0.02, 400), 0.92) << "prompts vary";
  EXPECT_GE(coverage(24, 3, 0.0, 0.05, 0.02, 400), 0.90) << "the machine varies, over three alternations";
  EXPECT_GE(coverage(24, 3, 0.15, 0.05, 0.02, 400), 0.92) << "both vary";
  EXPECT_GE(coverage(24, 2, 0.15, 0.05, 0.02, 400), 0.90) << "two alternations";
  EXPECT_LE(coverage(24, 1, 0.0, 0.05, 0.0, 400), 0.5) << "one alternation cannot see the machine";
}

TEST(Statistics, AlphaIntervalsCoverTheTruth) {
  std::mt19937 random(3);
  int held = 0;
  const int experiments = 400;
  for (int e = 0; e < experiments; ++e) {
    std::vector<Term> terms;
    for (int p = 0; p < 24; ++p) {
      // Each prompt has its own alpha, .55 to .85 evenly: mean .7; 60 tests each.
      const double own = std::uniform_real_distribution<double>(0.55, 0.85)(random);
      terms.push_back({double(std::binomial_distribution<int>(60, own)(random)), 60});
    }
    held += prompt_interval(terms, 1).contains(0.7);
  }
  EXPECT_GE(double(held) / experiments, 0.92);
  EXPECT_LE(double(held) / experiments, 0.985);
}

TEST(Statistics, Median) {
  EXPECT_EQ(median({3, 1, 2}), 2);
  EXPECT_EQ(median({4, 1, 2, 3}), 2.5);
  EXPECT_TRUE(std::isnan(median({})));
}

// Of one trial in each unit it is the interval of Clopper and Pearson (1934): the table values of R's binom.test.
TEST(Statistics, SharesOfIndependentTrialsHaveTheExactInterval) {
  const auto interval = [](int successes, int trials) {
    std::vector<Term> units;
    for (int i = 0; i < trials; ++i) units.push_back({i < successes ? 1.0 : 0.0, 1});
    return share_interval(units);
  };
  const Interval eight = interval(8, 10), all = interval(20, 20), none = interval(0, 20);
  EXPECT_DOUBLE_EQ(eight.value, 0.8);
  EXPECT_NEAR(eight.low, 0.4439045, 1e-6);
  EXPECT_NEAR(eight.high, 0.9747893, 1e-6);
  EXPECT_NEAR(all.low, std::pow(0.025, 1.0 / 20), 1e-12);
  EXPECT_EQ(all.high, 1);
  EXPECT_EQ(none.low, 0);
  EXPECT_NEAR(none.high, 1 - std::pow(0.025, 1.0 / 20), 1e-12);
  EXPECT_FALSE(interval(1, 1).bounded());
  EXPECT_FALSE(share_interval({}).known());
}

// Coverage by simulation: units of 30 trials whose own shares of successes vary. To count every trial as independent
// would cover far less than 95 %.
TEST(Statistics, SharesOfDependentTrialsCoverTheTruth) {
  std::mt19937 random(7);
  int covered = 0, covered_naively = 0;
  constexpr int kTimes = 400, kUnits = 40, kTrials = 30;
  for (int time = 0; time < kTimes; ++time) {
    std::vector<Term> units, trials;
    for (int u = 0; u < kUnits; ++u) {
      const double own = std::uniform_real_distribution<double>(0.4, 1)(random);  // 0.7 on average
      const int successes = std::binomial_distribution<int>(kTrials, own)(random);
      units.push_back({double(successes), kTrials});
      for (int t = 0; t < kTrials; ++t) trials.push_back({t < successes ? 1.0 : 0.0, 1});
    }
    covered += share_interval(units).contains(0.7), covered_naively += share_interval(trials).contains(0.7);
  }
  EXPECT_GE(covered, 0.93 * kTimes);
  EXPECT_LE(covered, 0.995 * kTimes);
  EXPECT_LT(covered_naively, 0.85 * kTimes);
}

TEST(Statistics, MeansOfAnySignHaveIntervalsAroundZero) {
  const std::vector<Term> units = {{-1, 2}, {2, 2}, {-3, 2}, {2.5, 2}};
  const Interval free = mean_interval(units, -kNoMost, kNoMost), bounded = mean_interval(units, 0, 0.1);
  EXPECT_DOUBLE_EQ(free.value, 0.5 / 8);
  EXPECT_LT(free.low, 0);
  EXPECT_GT(free.high, 0.1);
  EXPECT_EQ(bounded.low, 0);
  EXPECT_EQ(bounded.high, 0.1);
}

TEST(Statistics, QuantilesLieBetweenValues) {
  const std::vector<double> values = {1, 2, 4, 8};
  EXPECT_DOUBLE_EQ(quantile(values, 0), 1);
  EXPECT_DOUBLE_EQ(quantile(values, 0.5), 3);
  EXPECT_DOUBLE_EQ(quantile(values, 0.75), 5);
  EXPECT_DOUBLE_EQ(quantile(values, 1), 8);
  EXPECT_TRUE(std::isnan(quantile({}, 0.5)));
}

}  // namespace
}  // namespace foretoken
