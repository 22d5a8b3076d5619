#include "experiments/quality/varying_mean.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace foretoken {

Interval varying_mean(std::span<const Term> units, double least, double most) {
  constexpr double kRounding = 1e-12;  // relative, of averages
  const Interval found = mean_interval(units, least, most);
  const bool vary = std::ranges::any_of(units, [&](const Term& u) {
    return u.bottom > 0 && std::abs(u.top / u.bottom - found.value) > kRounding * std::abs(found.value);
  });
  const double unknown = std::numeric_limits<double>::quiet_NaN();
  return vary ? found : Interval{found.value, unknown, unknown};
}

}  // namespace foretoken
