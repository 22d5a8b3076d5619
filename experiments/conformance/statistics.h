// Tests of counts against a distribution: sample size, chi-square, and the correction for multiple tests. Works on
// numbers only.
#pragma once
#include <span>
#include <vector>

namespace foretoken::conformance {

// Draws needed so that a chi-square test of `cells` cells at `level` detects a distribution at total variation
// `variation` from the expected one with probability `power`. Worst case: the distribution with the least
// noncentrality, 4 variation^2 a draw.
long sample_size(int cells, double variation, double level, double power);

struct ChiSquare {
  double statistic = 0, p_value = 1;
  int freedom = 0;
};
// Cells expected fewer than 5 times are pooled, with the next larger cells until the pool is expected 5 times. A count
// in a cell of probability 0 gives p-value 0.
ChiSquare chi_square(std::span<const long> counts, std::span<const double> law);

// The least family-wise level at which each null hypothesis would be rejected (Holm 1979).
std::vector<double> holm_adjusted(std::span<const double> p_values);

}  // namespace foretoken::conformance
