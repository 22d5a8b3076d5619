#include "experiments/quantize/output_error.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <vector>

#include "framework/model/convert.h"
#include "framework/model/in_parallel.h"

namespace foretoken {

namespace {

Tensor outputs(Backend& device, const Tensor& x, const Weight& w) {
  const Tensor y = device.linear(x, device.prepare(w));
  const Tensor here = Tensor::host(y.shape(), y.dtype());
  device.copy(y, here);
  device.synchronize();
  return here;
}

double squares(const Tensor& y) {
  std::vector<double> rows(std::size_t(y.dim(0)), 0.0);
  by_all_cores(y.dim(0), y.dim(1), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r)
      for (const float v : y.rows(r, 1).values<float>()) rows[std::size_t(r)] += double(v) * double(v);
  });
  return std::accumulate(rows.begin(), rows.end(), 0.0);
}

Tensor difference(const Tensor& a, const Tensor& b) {
  const Tensor d = Tensor::host(a.shape(), DType::f32);
  for (std::int64_t i = 0; i < d.elements(); ++i) d.data<float>()[i] = a.data<float>()[i] - b.data<float>()[i];
  return d;
}

}  // namespace

RowSample::RowSample(std::int64_t in, std::int64_t tokens, std::int64_t most)
    : kept_(Tensor::host({std::min(tokens, most), in}, DType::f32)), tokens_(tokens), most_(std::min(tokens, most)) {}

void RowSample::add(const Tensor& x) {
  for (std::int64_t r = 0; r < x.dim(0); ++r, ++seen_)
    if (count_ < most_ && (seen_ + 1) * most_ / tokens_ > count_)
      std::memcpy(kept_.row<float>(count_++), x.row<float>(r), std::size_t(x.dim(1)) * sizeof(float));
}

Tensor weights_lost(const Weight& dense, const Weight& rounded, std::span<const float> scales) {
  const Tensor lost = Tensor::host({dense.out, dense.in}, DType::f32);
  convert(dense.values, lost);
  by_all_cores(dense.out, 4 * dense.in, [&](std::int64_t begin, std::int64_t end) {
    std::vector<float> row(static_cast<std::size_t>(dense.in));
    for (std::int64_t o = begin; o < end; ++o) {
      decode_row(rounded, o, row);
      for (std::size_t i = 0; i < scales.size(); ++i) row[i] /= scales[i];
      float* to = lost.row<float>(o);
      for (std::size_t i = 0; i < row.size(); ++i) to[i] -= row[i];
    }
  });
  return lost;
}

double squared_outputs(Backend& device, const Tensor& x, const Tensor& weights) {
  return squares(outputs(device, x, Weight::dense(weights)));
}

SquaredError output_error(Backend& device, const Tensor& x, const Weight& dense, const Weight& rounded) {
  const Tensor inputs = device.upload(x),
               whole = outputs(device, inputs, Weight::dense(converted(dense.values, DType::f32)));
  // Where inputs are as they are, the product of the difference has more digits than that of products.
  if (!rounded.activations) return {squared_outputs(device, inputs, weights_lost(dense, rounded)), squares(whole)};
  return {squares(difference(whole, outputs(device, inputs, rounded))), squares(whole)};
}

}  // namespace foretoken
