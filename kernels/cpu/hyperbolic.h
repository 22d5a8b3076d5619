// tanh of vectors, and the cap that is made of it. Included by the files of the instruction sets.
#pragma once
#include <cfloat>

#include "kernels/cpu/vectors.h"

namespace foretoken {
namespace {

// tanh x = (1 - e^-2|x|) / (1 + e^-2|x|) with the sign of x; near 0, where that difference loses digits, its series.
inline Floats hyperbolic_tangent(Floats x) {
  const Words sign = as_words(x) & 0x80000000u;
  const Floats size = as_floats(as_words(x) ^ sign), e = exp_weights(size * -2.0f), square = x * x;
  Floats series = square * 2.1869488e-2f - 5.3968254e-2f;
  series = series * square + 1.3333333e-1f;
  series = series * square - 3.3333333e-1f;
  series = series * square + 1.0f;
  const Floats y = size < 0.25f ? size * series : (1.0f - e) / (1.0f + e);
  return as_floats(as_words(y) | sign);
}

// x = cap * tanh(x / cap), but -inf stays. The same bits for each number, wherever it stands among others.
inline void softcap_row(float* x, float cap, std::int64_t n) {
  const auto capped = [cap](Floats v) { return v < -FLT_MAX ? v : cap * hyperbolic_tangent(v / cap); };
  std::int64_t i = 0;
  for (; i + kWidth <= n; i += kWidth) save(x + i, capped(load<Floats>(x + i)));
  if (i < n) save_some(x + i, capped(load_some(x + i, int(n - i))), int(n - i));
}

}  // namespace
}  // namespace foretoken
