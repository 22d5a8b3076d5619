// A quotient that may be unknown.
#pragma once
#include <limits>

namespace foretoken {

// NaN where the denominator is 0.
inline double divide(double top, double bottom) {
  return bottom == 0 ? std::numeric_limits<double>::quiet_NaN() : top / bottom;
}

}  // namespace foretoken
