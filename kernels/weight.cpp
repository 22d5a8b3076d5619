#include "kernels/weight.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <vector>

#include "kernels/error.h"

namespace foretoken {
namespace {

float element(const Tensor& t, std::int64_t row, std::int64_t column) {
  if (t.dtype() == DType::bf16) return float(t.row<bf16>(row)[column]);
  return t.dtype() == DType::f16 ? float_from_f16(t.row<std::uint16_t>(row)[column]) : t.row<float>(row)[column];
}

struct Group {
  float scale, zero;
};

// One group of one output: x = scale * (q - zero) with q in [-128, 127].
Group quantize_group(std::span<const float> x, std::int8_t* to) {
  float low = x[0], high = low;
  for (const float v : x) {
    if (std::isnan(v)) low = high = v;  // NaN stays: later comparisons with it are false
    low = std::min(low, v), high = std::max(high, v);
  }
  // Steps must be normal floats. A group without them counts as constant: q = 0 and zero = -1 give scale itself. A NaN
  // or an infinity must not become an ordinary number: the whole group becomes NaN, and so do the logits.
  const float range = high - low;
  const bool steps = std::isfinite(range) && range >= 255.0f * std::numeric_limits<float>::min();
  const float scale = steps ? range / 255.0f : std::isfinite(range) ? low : std::numeric_limits<float>::quiet_NaN();
  const float zero = steps ? -128.0f - low / scale : -1.0f;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const float q = steps ? std::round(x[i] / scale + zero) : 0.0f;
    to[i] = std::int8_t(std::clamp(q, -128.0f, 127.0f));
  }
  return {scale, zero};
}

void quantize_rows(const Tensor& dense, std::int64_t begin, std::int64_t end, const Weight& w) {
  std::vector<float> row(std::size_t(w.in));
  for (std::int64_t o = begin; o < end; ++o) {
    for (std::int64_t i = 0; i < w.in; ++i) row[std::size_t(i)] = element(dense, o, i);
    for (std::int64_t g = 0; g < w.in / w.group; ++g) {
      const auto at = std::size_t(g * w.group);
      const Group group =
          quantize_group(std::span(row).subspan(at, std::size_t(w.group)), w.values.row<std::int8_t>(o) + g * w.group);
      w.scales.row<float>(o)[g] = group.scale;
      w.zeros.row<float>(o)[g] = group.zero;
    }
  }
}

}  // namespace

Weight quantize_int8(const Weight& dense, int group, const ForShares& shares) {
  if (group <= 0 || dense.in % group != 0)
    throw Error("quantize_int8: groups of " + std::to_string(group) + " do not divide the " + std::to_string(dense.in) +
                " inputs of a weight; choose a divisor");
  Weight w;
  w.out = dense.out, w.in = dense.in, w.group = group;
  w.format = Weight::Format::int8_groups;
  w.values = Tensor::host({w.out, w.in}, DType::i8);
  w.scales = Tensor::host({w.out, w.in / group}, DType::f32);
  w.zeros = Tensor::host({w.out, w.in / group}, DType::f32);
  const auto rows = [&](std::int64_t begin, std::int64_t end) { quantize_rows(dense.values, begin, end, w); };
  if (shares)
    shares(w.out, w.in, rows);
  else
    rows(0, w.out);
  return w;
}

}  // namespace foretoken
