// What a figure is that is not known, and a quotient that may be.
#pragma once
#include <limits>

namespace foretoken {

constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

// Unknown where the denominator is 0.
inline double divide(double top, double bottom) { return bottom == 0 ? kUnknown : top / bottom; }

}  // namespace foretoken
