// Tests of counts and their correction, by hand.
#include "experiments/conformance/statistics.h"

#include <cmath>

#include <gtest/gtest.h>

namespace foretoken::conformance {
namespace {

TEST(ConformanceStatistics, cells_that_expect_few_are_merged) {
  // Expected 93, 4, 2 and 1: the last three become one cell of 7, in which 10 were counted.
  const std::vector<long> counts = {5, 90, 2, 3};
  const ChiSquare c = chi_square(counts, std::vector<double>{0.04, 0.93, 0.01, 0.02});
  EXPECT_EQ(c.freedom, 1);
  EXPECT_NEAR(c.statistic, 9.0 / 93 + 9.0 / 7, 1e-9);
  EXPECT_NEAR(c.p_value, std::erfc(std::sqrt(c.statistic / 2)), 1e-12);
  const ChiSquare one = chi_square(std::vector<long>{3}, std::vector<double>{1});
  EXPECT_TRUE(one.freedom == 0 && one.p_value == 1) << "a cell alone is left, however small";
}

TEST(ConformanceStatistics, holms_adjustment) {
  // The least times 3, the next times 2; no later one is below an earlier one, and none above 1.
  const auto expect = [](const std::vector<double>& p, const std::vector<double>& adjusted) {
    const std::vector<double> found = holm_adjusted(p);
    ASSERT_EQ(found.size(), adjusted.size());
    for (std::size_t i = 0; i < p.size(); ++i) EXPECT_NEAR(found[i], adjusted[i], 1e-12) << i;
  };
  expect({0.01, 0.04, 0.03}, {0.03, 0.06, 0.06});
  expect({0.9, 0.8, 0.1}, {1, 1, 0.3});
  expect({0.25, 0.75}, {0.5, 0.75});
}

// With one degree of freedom the power is that of a normal variable: the noncentrality that a level of 0.05 finds with
// a power of 0.8 is (1.95996 + 0.84162)^2, the other tail apart.
TEST(ConformanceStatistics, sample_size_of_two_cells) {
  EXPECT_NEAR(double(sample_size(2, 0.01, 0.05, 0.8)), std::pow(1.95996 + 0.84162, 2) / (4 * 0.01 * 0.01), 3);
}

}  // namespace
}  // namespace foretoken::conformance
