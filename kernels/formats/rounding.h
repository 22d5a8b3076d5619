// What formats share when they fit a scale.
#pragma once
#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/formats/format.h"

namespace foretoken::formats {

// A scale by which a group can be divided: normal, or 0 where all weights are 0 or too small; NaN where a weight is not
// finite.
inline float usable(float scale, const Extremes& e) {
  if (!std::isfinite(e.low) || !std::isfinite(e.high) || !std::isfinite(scale))
    return std::numeric_limits<float>::quiet_NaN();
  return scale >= std::numeric_limits<float>::min() ? scale : 0.0f;
}

// The nearest number of a type: bf16, f16 or f32. Numbers beyond the greatest of f16 are rounded to as many bits.
inline float stored_scale(float scale, DType type) {
  if (type == DType::f32 || !std::isfinite(scale)) return scale;
  if (type == DType::bf16) return float(bf16(scale));
  const int last = scale == 0 ? 0 : std::max(std::ilogb(scale), -14) - 10;
  return std::ldexp(std::nearbyint(std::ldexp(scale, -last)), last);
}

// The largest of some group sizes that divides the inputs; {0, 0}: none.
inline Block group_of(std::int64_t in, std::initializer_list<int> sizes) {
  for (const int size : sizes)
    if (in % size == 0) return {1, size};
  return {};
}

}  // namespace foretoken::formats
