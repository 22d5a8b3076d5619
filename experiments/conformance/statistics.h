// Tests of counts against a law: how large a sample must be, chi-square, and the correction for many tests.
// Knows numbers only.
#pragma once
#include <span>
#include <vector>

namespace foretoken::conformance {

// Draws needed so that a law at total variation `variation` from the expected one is found with probability `power` by
// a chi-square of `cells` cells at `level`: among such laws the one with the least noncentrality, 4 variation^2 a draw.
long sample_size(int cells, double variation, double level, double power);

struct ChiSquare {
  double statistic = 0, p_value = 1;
  int freedom = 0;
};
// Cells expected fewer than 5 times are pooled, with the next larger ones until the pool is expected so often. A count
// where the law says 0 has p-value 0.
ChiSquare chi_square(std::span<const long> counts, std::span<const double> law);

// Which of many null hypotheses fall at this family-wise level (Holm 1979).
std::vector<bool> holm(std::span<const double> p_values, double level);
// The least family-wise level at which each would fall.
std::vector<double> holm_adjusted(std::span<const double> p_values);

}  // namespace foretoken::conformance
