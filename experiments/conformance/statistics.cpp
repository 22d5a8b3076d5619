#include "experiments/conformance/statistics.h"

#include <algorithm>
#include <boost/math/distributions/chi_squared.hpp>
#include <boost/math/distributions/non_central_chi_squared.hpp>
#include <cmath>
#include <numeric>

namespace foretoken::conformance {

long sample_size(int cells, double variation, double level, double power) {
  const double freedom = cells - 1;
  const double critical = boost::math::quantile(boost::math::complement(boost::math::chi_squared(freedom), level));
  double low = 0, high = 1;
  const auto found = [&](double lambda) {
    return boost::math::cdf(boost::math::complement(boost::math::non_central_chi_squared(freedom, lambda), critical));
  };
  while (found(high) < power) high *= 2;
  for (int i = 0; i < 50; ++i) (found((low + high) / 2) < power ? low : high) = (low + high) / 2;
  return long(std::ceil(high / (4 * variation * variation)));
}

ChiSquare chi_square(std::span<const long> counts, std::span<const double> law) {
  const double n = double(std::accumulate(counts.begin(), counts.end(), 0l));
  double pooled = 0, pooled_count = 0;
  ChiSquare result{.freedom = -1};
  const auto cell = [&](double count, double expected) {
    result.statistic += (count - expected) * (count - expected) / expected;
    ++result.freedom;
  };
  for (std::size_t i = 0; i < counts.size(); ++i) {
    if (law[i] == 0 && counts[i] > 0) return {1e300, 0, 1};
    if (n * law[i] >= 5) cell(double(counts[i]), n * law[i]);
    else pooled += n * law[i], pooled_count += double(counts[i]);
  }
  if (pooled > 0) cell(pooled_count, std::max(pooled, 1e-9));
  if (result.freedom > 0) result.p_value = boost::math::cdf(boost::math::complement(boost::math::chi_squared(result.freedom), result.statistic));
  return result;
}

std::vector<bool> holm(std::span<const double> p_values, double level) {
  std::vector<std::size_t> order(p_values.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::sort(order, {}, [&](std::size_t i) { return p_values[i]; });
  std::vector<bool> falls(p_values.size(), false);
  for (std::size_t k = 0; k < order.size(); ++k) {
    if (p_values[order[k]] > level / double(order.size() - k)) break;
    falls[order[k]] = true;
  }
  return falls;
}

}  // namespace foretoken::conformance
