// Scores of single rows, against sums written out by hand; and what they must not lose over a large vocabulary.
#include <cmath>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "experiments/quality/predictions.h"

namespace foretoken {
namespace {

std::vector<float> logits_of(const std::vector<double>& probabilities) {
  std::vector<float> l;
  for (const double p : probabilities) l.push_back(float(std::log(p) + 3));  // a shift changes nothing
  return l;
}

TEST(RowScores, AreThoseOfTheDistributions) {
  const std::vector<double> p = {0.5, 0.25, 0.125, 0.125}, r = {0.0625, 0.625, 0.125, 0.1875};
  const TokenScore s = score_of(logits_of(p), logits_of(r), 3);
  double divergence = 0, overlap = 0;
  for (std::size_t x = 0; x < p.size(); ++x)
    divergence += r[x] * std::log(r[x] / p[x]), overlap += std::min(p[x], r[x]);
  EXPECT_NEAR(s.loss, -std::log(0.125), 1e-6);
  EXPECT_NEAR(s.reference_loss, -std::log(0.1875), 1e-6);
  EXPECT_NEAR(s.divergence, divergence, 1e-6);  // of the reference from the model, not the other way round
  EXPECT_NEAR(s.overlap, overlap, 1e-6);
  EXPECT_FALSE(s.agrees);
  double reverse = 0;
  for (std::size_t x = 0; x < p.size(); ++x) reverse += p[x] * std::log(p[x] / r[x]);
  EXPECT_GT(std::abs(reverse - divergence), 0.01) << "the case tells the directions apart";
  EXPECT_NEAR(score_of(logits_of(p), 0).loss, std::log(2.0), 1e-6);
}

TEST(RowScores, OfEqualRowsAreExact) {
  std::vector<float> row;
  for (int x = 0; x < 5000; ++x) row.push_back(float(std::sin(0.37 * x) * 9));
  const TokenScore s = score_of(row, row, 17);
  EXPECT_EQ(s.divergence, 0);
  EXPECT_EQ(s.loss, s.reference_loss);
  EXPECT_TRUE(s.agrees);
  EXPECT_NEAR(s.overlap, 1, 1e-12);
}

TEST(RowScores, OfEqualProbabilitiesTheLowestTokenIsTheTop) {
  const std::vector<float> tie = {1, 2, 2, 0}, second = {1, 2, 2.5f, 0}, first = {1, 3, 2, 0};
  EXPECT_TRUE(score_of(tie, first, 0).agrees);
  EXPECT_FALSE(score_of(tie, second, 0).agrees);
}

// 131072 tokens, each with about 7.6e-6: an f32 sum of their exponentials loses the difference of the distributions.
TEST(RowScores, SmallDivergencesSurviveALargeVocabulary) {
  constexpr int kVocab = 131072;
  constexpr double kStep = 1.0 / 1024;  // exact in f32
  std::vector<float> uniform(kVocab, 8), tilted(kVocab, 8);
  for (int x = 0; x < kVocab; x += 2) tilted[std::size_t(x)] += float(kStep);
  // KL(uniform || tilted) = log((exp(a) + 1) / 2) - a / 2, about a^2 / 8
  const double want = std::log((std::exp(kStep) + 1) / 2) - kStep / 2;
  EXPECT_NEAR(score_of(tilted, uniform, 0).divergence / want, 1, 1e-6);
  EXPECT_NEAR(score_of(uniform, 0).loss, std::log(double(kVocab)), 1e-12);
}

TEST(RowScores, AreUnknownWhereALogitIsNotFinite) {
  const float inf = std::numeric_limits<float>::infinity();
  for (const float bad : {std::nanf(""), inf, -inf}) {
    const std::vector<float> good = {1, 2, 3}, row = {1, bad, 3};
    EXPECT_TRUE(std::isnan(score_of(row, 0).loss));
    EXPECT_TRUE(std::isnan(score_of(row, good, 0).loss));
    EXPECT_TRUE(std::isnan(score_of(good, row, 0).loss));
  }
}

}  // namespace
}  // namespace foretoken
