#include "experiments/conformance/statistics.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

#include <boost/math/distributions/chi_squared.hpp>
#include <boost/math/distributions/non_central_chi_squared.hpp>

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
  constexpr double kFew = 5;
  const double n = double(std::accumulate(counts.begin(), counts.end(), 0l));
  std::vector<std::pair<double, double>> cells;  // expected, counted
  for (std::size_t i = 0; i < counts.size(); ++i) {
    if (law[i] == 0 && counts[i] > 0) return {1e300, 0, 1};
    if (law[i] > 0) cells.push_back({n * law[i], double(counts[i])});
  }
  std::ranges::sort(cells, std::greater{});
  while (cells.size() > 1 &&
         cells.back().first < kFew) {  // merge the smallest cell with the next, until none is too small
    cells[cells.size() - 2].first += cells.back().first, cells[cells.size() - 2].second += cells.back().second;
    cells.pop_back();
  }
  ChiSquare result{.freedom = int(cells.size()) - 1};
  for (const auto& [expected, counted] : cells)
    result.statistic += (counted - expected) * (counted - expected) / expected;
  if (result.freedom > 0)
    result.p_value =
        boost::math::cdf(boost::math::complement(boost::math::chi_squared(result.freedom), result.statistic));
  return result;
}

std::vector<double> holm_adjusted(std::span<const double> p_values) {
  std::vector<std::size_t> order(p_values.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::sort(order, {}, [&](std::size_t i) { return p_values[i]; });
  std::vector<double> adjusted(p_values.size());
  double most = 0;
  for (std::size_t k = 0; k < order.size(); ++k)
    adjusted[order[k]] = most = std::max(most, std::min(1.0, p_values[order[k]] * double(order.size() - k)));
  return adjusted;
}

}  // namespace foretoken::conformance
