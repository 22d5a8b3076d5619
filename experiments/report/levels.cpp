#include "experiments/report/levels.h"

#include <algorithm>
#include <cmath>
#include <map>

#include <boost/math/distributions/normal.hpp>
#include <boost/math/distributions/students_t.hpp>

#include "experiments/report/statistics.h"

namespace foretoken {

double normal() {
  static const double found = boost::math::quantile(boost::math::normal(), 1 - kTail);
  return found;
}

double students(double freedom) {
  static std::map<int, double> known;
  const double rounded = freedom < 64 ? std::round(8 * freedom) / 8 : std::round(freedom);
  double& found = known[int(8 * std::min(rounded, 1e6))];
  if (found == 0) found = boost::math::quantile(boost::math::students_t(rounded), 1 - kTail);
  return found;
}

double mean(const std::vector<double>& values) {
  double sum = 0;
  for (const double x : values) sum += x;
  return sum / double(values.size());
}

double mean_variance(const std::vector<double>& values) {
  const double n = double(values.size()), middle = mean(values);
  double squares = 0;
  for (const double x : values) squares += (x - middle) * (x - middle);
  return squares / (n - 1) / n;
}

// The middle 95 % of the deviations; NaN deviations had a zero denominator and are left out.
std::pair<double, double> spread(std::vector<double> deviations) {
  std::erase_if(deviations, [](double d) { return !std::isfinite(d); });
  if (deviations.empty()) return {0, 0};
  std::ranges::sort(deviations);
  return {quantile(deviations, kTail), quantile(deviations, 1 - kTail)};
}

double half_width(const Level& a, const Level& b) {
  const double separate =
      std::hypot(a.freedom > 0 ? students(a.freedom) * a.error : 0, b.freedom > 0 ? students(b.freedom) * b.error : 0);
  if (!(a.error > 0 && b.error > 0)) return separate;
  const double va = a.error * a.error, vb = b.error * b.error;
  const double together = students((va + vb) * (va + vb) / (va * va / a.freedom + vb * vb / b.freedom));
  return std::sqrt(separate * together * std::sqrt(va + vb));
}

}  // namespace foretoken
