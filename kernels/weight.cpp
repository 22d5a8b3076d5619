#include "kernels/weight.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/error.h"

namespace foretoken {
namespace {

float element(const Tensor& t, std::int64_t row, std::int64_t column) {
  if (t.dtype() == DType::bf16) return float(t.row<bf16>(row)[column]);
  return t.dtype() == DType::f16 ? float_from_f16(t.row<std::uint16_t>(row)[column]) : t.row<float>(row)[column];
}

// One group of one output: w = scale * (q - zero) with q in [-128, 127].
void quantize_group(const Weight& dense, std::int64_t o, std::int64_t g, Weight& w) {
  const std::int64_t begin = g * w.group;
  float low = element(dense.values, o, begin), high = low;
  for (std::int64_t i = begin; i < begin + w.group; ++i) {
    const float v = element(dense.values, o, i);
    if (std::isnan(v)) low = high = v;  // and so it stays
    low = std::min(low, v), high = std::max(high, v);
  }
  // Steps must be normal floats. A group without them counts as constant: q = 0 and zero = -1 give scale itself. A NaN
  // or an infinity must not turn into an innocent number: the whole group becomes NaN, and the logits will tell.
  const float range = high - low;
  const bool steps = std::isfinite(range) && range >= 255.0f * std::numeric_limits<float>::min();
  const float scale = steps ? range / 255.0f : std::isfinite(range) ? low : std::numeric_limits<float>::quiet_NaN();
  const float zero = steps ? -128.0f - low / scale : -1.0f;
  w.scales.row<float>(o)[g] = scale;
  w.zeros.row<float>(o)[g] = zero;
  for (std::int64_t i = begin; i < begin + w.group; ++i) {
    const float q = steps ? std::round(element(dense.values, o, i) / scale + zero) : 0.0f;
    w.values.row<std::int8_t>(o)[i] = std::int8_t(std::clamp(q, -128.0f, 127.0f));
  }
}

}  // namespace

Weight quantize_int8(const Weight& dense, int group) {
  if (group <= 0 || dense.in % group != 0)
    throw Error("quantize_int8: groups of " + std::to_string(group) + " do not divide the " + std::to_string(dense.in) +
                " inputs of a weight; choose a divisor");
  Weight w;
  w.out = dense.out, w.in = dense.in, w.group = group;
  w.format = Weight::Format::int8_groups;
  w.values = Tensor::host({w.out, w.in}, DType::i8);
  w.scales = Tensor::host({w.out, w.in / group}, DType::f32);
  w.zeros = Tensor::host({w.out, w.in / group}, DType::f32);
  for (std::int64_t o = 0; o < w.out; ++o)
    for (std::int64_t g = 0; g < w.in / group; ++g) quantize_group(dense, o, g, w);
  return w;
}

}  // namespace foretoken
