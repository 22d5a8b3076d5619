// The enumerator's regions of a race's noise, against formulas without simplices.
#include "experiments/conformance/race_region.h"

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
    for (int x = 0; x < vocab; ++x) EXPECT_NEAR(RaceRegion(vocab).won_by(x, law).volume(), law[std::size_t(x)], 1e-14);
  }
  const std::vector<double> certain{0, 1, 0};
  EXPECT_EQ(RaceRegion(3).won_by(1, certain).volume(), 1);
  EXPECT_EQ(RaceRegion(3).won_by(0, certain).volume(), 0);
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
        EXPECT_NEAR(RaceRegion(vocab).won_by(x, p).won_by(x, q).volume(), 1 / rivals, 1e-13);
        for (int y = 0; y < vocab; ++y) sum += RaceRegion(vocab).won_by(x, p).won_by(y, q).volume();
      }
      EXPECT_NEAR(sum, 1, 1e-13);
    }
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
        RaceRegion(kVocab).won_by(cell / 9, laws[0]).won_by(cell / 3 % 3, laws[1]).won_by(cell % 3, laws[2]).volume();
    EXPECT_NEAR(double(won[std::size_t(cell)]), kRaces * p, 5 * std::sqrt(kRaces * p * (1 - p)) + 1e-6) << cell;
  }
}

}  // namespace
}  // namespace foretoken::test
