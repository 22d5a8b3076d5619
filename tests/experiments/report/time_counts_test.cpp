// Quantiles of times that were counted in bins.
#include <cmath>

#include <gtest/gtest.h>

#include "experiments/report/statistics.h"
#include "kernels/error.h"

namespace foretoken {
namespace {

TEST(TimeCounts, QuantilesAreWithinOnePercent) {
  TimeCounts counts;
  for (int i = 1; i <= 1000; ++i) counts.add(1e-3 * i);
  EXPECT_EQ(counts.total(), 1000);
  for (const double share : {0.01, 0.5, 0.9, 0.99, 1.0}) EXPECT_NEAR(counts.quantile(share), share, 0.01 * share);
  EXPECT_TRUE(std::isnan(TimeCounts().quantile(0.5)));
}

TEST(TimeCounts, AddUp) {
  TimeCounts one, two;
  one.add(0.010, 3), two.add(5.0), two.add(0);
  one += TimeCounts(two.by_bin());
  EXPECT_EQ(one.total(), 5);
  EXPECT_NEAR(one.quantile(1), 5, 0.05);
  EXPECT_NEAR(one.quantile(0.2), 1e-6, 1e-8) << "nothing is shorter than a microsecond";
  EXPECT_EQ(TimeCounts(one.by_bin()).by_bin(), one.by_bin());
}

}  // namespace
}  // namespace foretoken
