// Means of units that are all alike have no bounds; others have those of the bootstrap.
#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "experiments/quality/predictions.h"

namespace foretoken {
namespace {

constexpr double kMost = 1e9;

TEST(VaryingMean, OfEqualUnitsHasNoBounds) {
  for (const std::vector<Term>& units : {std::vector<Term>{{4, 1}, {4, 1}}, std::vector<Term>{{0, 1}, {0, 1}, {0, 1}},
                                         std::vector<Term>{{0.1, 1}, {0.2, 2}, {0.7, 7}, {0, 0}}}) {
    const Interval found = varying_mean(units, 0, kMost);
    EXPECT_TRUE(found.known());
    EXPECT_FALSE(found.bounded()) << found.value << " [" << found.low << ", " << found.high << "]";
  }
  EXPECT_FALSE(varying_mean({}, 0, kMost).known());
}

TEST(VaryingMean, OfOthersIsThatOfTheBootstrap) {
  const std::vector<Term> units = {{4, 1}, {4, 1}, {4.001, 1}};
  const Interval found = varying_mean(units, 0, kMost), want = mean_interval(units, 0, kMost);
  EXPECT_EQ(found.value, want.value);
  EXPECT_EQ(found.low, want.low);
  EXPECT_EQ(found.high, want.high);
  EXPECT_TRUE(found.bounded());
}

}  // namespace
}  // namespace foretoken
