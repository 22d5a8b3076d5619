#include "experiments/quantize/rounding_error.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "framework/model/convert.h"
#include "framework/model/in_parallel.h"

namespace foretoken {
namespace {

// The sum of what `add` adds for each row, row by row.
template <class Add> SquaredError over_rows(std::int64_t n, std::int64_t work, const Add& add) {
  std::vector<SquaredError> rows(static_cast<std::size_t>(n));
  by_all_cores(n, work, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) add(r, rows[std::size_t(r)]);
  });
  SquaredError all;
  for (const SquaredError& r : rows) all += r;
  return all;
}

Tensor outputs(Backend& device, const Tensor& x, const Weight& w) {
  return on_host(device, device.linear(x, device.prepare(w)));
}

double squares(const Tensor& y) {
  const auto add = [&](std::int64_t r, SquaredError& sum) {
    for (const float v : y.rows(r, 1).values<float>()) sum.original += double(v) * double(v);
  };
  return over_rows(y.dim(0), y.dim(1), add).original;
}

}  // namespace

double SquaredError::relative() const { return difference == 0 ? 0 : std::sqrt(difference / original); }

SquaredError& SquaredError::operator+=(const SquaredError& other) {
  difference += other.difference;
  original += other.original;
  return *this;
}

SquaredError rounding_error(const Weight& dense, const Weight& rounded) {
  const Tensor values = converted(dense.values, DType::f32);
  return over_rows(dense.out, 4 * dense.in, [&](std::int64_t o, SquaredError& sum) {
    std::vector<float> row(static_cast<std::size_t>(dense.in));
    decode_row(rounded, o, row);
    for (std::size_t i = 0; i < row.size(); ++i) {
      const double w = double(values.row<float>(o)[i]), d = w - double(row[i]);
      sum += {d * d, w * w};
    }
  });
}

RowSample::RowSample(std::int64_t in, std::int64_t tokens, std::int64_t most)
    : kept_(Tensor::host({std::min(tokens, most), in}, DType::f32)), tokens_(tokens), most_(std::min(tokens, most)) {}

void RowSample::add(const Tensor& x) {
  for (std::int64_t r = 0; r < x.dim(0); ++r, ++seen_)
    if (count_ < most_ && (seen_ + 1) * most_ / tokens_ > count_)
      std::memcpy(kept_.row<float>(count_++), x.row<float>(r), std::size_t(x.dim(1)) * sizeof(float));
}

Tensor on_host(Backend& device, const Tensor& x) {
  const Tensor here = Tensor::host(x.shape(), x.dtype());
  device.copy(x, here);
  device.synchronize();
  return here;
}

Tensor f32_copy(const Tensor& host) {
  const Tensor copy = Tensor::host(host.shape(), DType::f32);
  convert(host, copy);
  return copy;
}

Tensor weights_lost(const Weight& dense, const Weight& rounded, std::span<const float> scales) {
  const Tensor lost = f32_copy(dense.values);
  by_all_cores(dense.out, 4 * dense.in, [&](std::int64_t begin, std::int64_t end) {
    std::vector<float> row(static_cast<std::size_t>(dense.in));
    for (std::int64_t o = begin; o < end; ++o) {
      decode_row(rounded, o, row);
      for (std::size_t i = 0; i < scales.size(); ++i) row[i] /= scales[i];
      for (std::size_t i = 0; i < row.size(); ++i) lost.row<float>(o)[i] -= row[i];
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
  const Tensor lost = f32_copy(whole), found = outputs(device, inputs, rounded);
  for (std::int64_t i = 0; i < lost.elements(); ++i) lost.data<float>()[i] -= found.data<float>()[i];
  return {squares(lost), squares(whole)};
}

}  // namespace foretoken
