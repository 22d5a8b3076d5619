// The enumerator's regions of a race's noise, against formulas without simplices.
#include <cmath>

#include <gtest/gtest.h>

#include "experiments/conformance/enumerator.h"

namespace foretoken::test {

using namespace conformance;

namespace {

std::vector<double> random_distribution(int vocab, std::uint64_t seed) {
  const Draws draws{seed, 0, 0, 0};
  std::vector<double> law;
  double sum = 0;
  for (int x = 0; x < vocab; ++x) sum += law.emplace_back(draws.uniform({Role::draft, std::uint32_t(x), 0}));
  for (double& p : law) p /= sum;
  return law;
}

TEST(RaceRegion, OneRaceIsTheLaw) {
  for (int vocab = 2; vocab <= 6; ++vocab) {
    const auto law = random_distribution(vocab, std::uint64_t(vocab));
    for (int x = 0; x < vocab; ++x) EXPECT_NEAR(RaceRegion().won_by(x, law).volume(), law[std::size_t(x)], 1e-14);
  }
  const std::vector<double> certain{0, 1, 0};
  EXPECT_EQ(RaceRegion().won_by(1, certain).volume(), 1);
  EXPECT_EQ(RaceRegion().won_by(0, certain).volume(), 0);
}

// x wins both races with probability 1 / sum over y of max(p(y) / p(x), q(y) / q(x)) (Daliri et al. 2024).
TEST(RaceRegion, TwoRacesOfOneNoiseAgreeAsTheFormulaSays) {
  for (int vocab = 2; vocab <= 6; ++vocab)
    for (std::uint64_t seed = 1; seed <= 5; ++seed) {
      const auto p = random_distribution(vocab, seed), q = random_distribution(vocab, 100 + seed);
      double sum = 0;
      for (int x = 0; x < vocab; ++x) {
        double rivals = 0;
        for (std::size_t y = 0; y < p.size(); ++y)
          rivals += std::max(p[y] / p[std::size_t(x)], q[y] / q[std::size_t(x)]);
        EXPECT_NEAR(RaceRegion().won_by(x, p).won_by(x, q).volume(), 1 / rivals, 1e-13);
        for (int y = 0; y < vocab; ++y) sum += RaceRegion().won_by(x, p).won_by(y, q).volume();
      }
      EXPECT_NEAR(sum, 1, 1e-13);
    }
}

// Races over the same few tokens of a large vocabulary, met in another order, some of them in the second race alone.
TEST(RaceRegion, OnlyTokensThatARaceAllowsCount) {
  const std::vector<int> places{4090, 7, 513, 2000};
  const auto p = random_distribution(4, 31), q = random_distribution(4, 32);
  const auto spread = [&](const std::vector<double>& few) {
    std::vector<double> all(4096, 0.0);
    for (std::size_t i = 0; i < few.size(); ++i) all[std::size_t(places[i])] = few[i];
    return all;
  };
  const std::vector<double> first{p[0] / (p[0] + p[1]), p[1] / (p[0] + p[1]), 0, 0};
  double sum = 0;
  for (int x = 0; x < 4; ++x)
    for (int y = 0; y < 4; ++y) {
      const double few = RaceRegion().won_by(x, first).won_by(y, q).volume(),
                   wide = RaceRegion()
                              .won_by(places[std::size_t(x)], spread(first))
                              .won_by(places[std::size_t(y)], spread(q))
                              .volume();
      EXPECT_NEAR(few, wide, 1e-14);
      sum += wide;
    }
  EXPECT_NEAR(sum, 1, 1e-13);
  // Of the tokens of the first race, the second is won by one of the others with the sum of their q.
  double others = 0;
  for (int x = 0; x < 2; ++x)
    for (int y = 2; y < 4; ++y) others += RaceRegion().won_by(x, first).won_by(y, q).volume();
  EXPECT_NEAR(others, q[2] + q[3], 1e-14);
}

// Three distributions, against the production race and its Philox noise.
TEST(RaceRegion, ThreeRacesAreWhatPhiloxDoes) {
  constexpr int kVocab = 3, kRaces = 40000;
  const std::vector<double> laws[] = {random_distribution(kVocab, 1), random_distribution(kVocab, 2),
                                      random_distribution(kVocab, 3)};
  std::vector<long> won(27, 0);
  for (std::uint32_t position = 0; position < kRaces; ++position) {
    int cell = 0;
    for (const auto& law : laws)
      cell = cell * kVocab +
             win_race(scalar_tiles([&](Token x) { return law[std::size_t(x)]; }), kVocab, Draws{7, 1, 0, 0}, position);
    ++won[std::size_t(cell)];
  }
  for (int cell = 0; cell < 27; ++cell) {
    const double p =
        RaceRegion().won_by(cell / 9, laws[0]).won_by(cell / 3 % 3, laws[1]).won_by(cell % 3, laws[2]).volume();
    EXPECT_NEAR(double(won[std::size_t(cell)]), kRaces * p, 5 * std::sqrt(kRaces * p * (1 - p)) + 1e-6) << cell;
  }
}

}  // namespace
}  // namespace foretoken::test
