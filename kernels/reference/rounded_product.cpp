#include "kernels/reference/rounded_product.h"

#include <algorithm>
#include <vector>

#include "kernels/formats/activations/activation_format.h"
#include "kernels/host_backend.h"
#include "kernels/reference/reference_backend.h"

namespace foretoken {
namespace {

// One output of one row. The terms of a chunk are added in double, which is exact for both kinds of numbers.
float output_of(const Weight& w, std::int64_t o, const std::vector<float>& x, float scale) {
  const std::span<const float> numbers = w.format->numbers();
  const std::uint8_t* codes = w.values.row<std::uint8_t>(o);
  const std::int64_t chunk = chunk_of(*w.activations, w.group);
  float y = 0;
  for (std::int64_t g = 0; g < w.in / w.group; ++g) {
    const float zero = w.zeros ? w.zeros.row<float>(o)[g] : 0;
    for (std::int64_t at = 0; at < w.group; at += chunk) {
      double sum = 0;
      for (std::int64_t i = g * w.group + at; i < g * w.group + std::min(at + chunk, std::int64_t(w.group)); ++i)
        sum += double(x[std::size_t(i)]) * (numbers[codes[i]] - zero);
      y += float(sum) * (scale * w.scales.row<float>(o)[g]);
    }
  }
  return y;
}

float product_of(const std::vector<Outlier>& apart, const Weight& w, std::int64_t o) {
  std::vector<float> row(std::size_t(w.in));
  decode_row(w, o, row);
  float y = 0;
  for (const Outlier& x : apart) y += x.value * row[std::size_t(x.input)];
  return y;
}

}  // namespace

Tensor rounded_product(const Tensor& x, const Weight& w) {
  const Weight& codes = w.prepared ? static_cast<const PreparedCodes*>(w.prepared.get())->codes : w;
  Tensor y = Tensor::host({x.dim(0), w.out}, DType::f32);
  std::vector<float> row(static_cast<std::size_t>(w.in));
  for (std::int64_t r = 0; r < x.dim(0); ++r) {
    for (std::int64_t j = 0; j < w.in; ++j)
      row[std::size_t(j)] = x.row<float>(r)[codes.order ? codes.order.data<std::int32_t>()[j] : j];
    std::vector<Outlier> apart;
    const float scale = round_row(codes, row, apart);
    for (std::int64_t o = 0; o < w.out; ++o) {
      y.row<float>(r)[o] = output_of(codes, o, row, scale);
      if (!apart.empty()) y.row<float>(r)[o] += product_of(apart, codes, o);
    }
  }
  add_bias(y, w);
  return y;
}

}  // namespace foretoken
