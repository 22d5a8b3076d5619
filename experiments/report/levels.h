// The levels on which a ratio varies, prompts and alternations, and how far an interval of 95 % reaches with both.
#pragma once
#include <utility>
#include <vector>

namespace foretoken {

constexpr double kTail = 0.025;  // of an interval, on each side

double normal();                  // the quantile of the normal distribution that bounds the middle 95 %
double students(double freedom);  // that of Student's; of freedoms an eighth apart below 64

double mean(const std::vector<double>& values);  // of at least one
// The variance of the mean of values, of at least two.
double mean_variance(const std::vector<double>& values);

// The middle 95 % of the deviations; NaN deviations had a zero denominator and are left out.
std::pair<double, double> spread(std::vector<double> deviations);

// One level: its standard error and degrees of freedom; 0: it does not vary the ratio.
struct Level {
  double error = 0, freedom = 0;
};

// Of an interval of two levels, as interval_of() says.
double half_width(const Level& a, const Level& b);

}  // namespace foretoken
