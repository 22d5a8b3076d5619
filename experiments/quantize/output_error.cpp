#include "experiments/quantize/output_error.h"

#include <algorithm>
#include <cstring>

#include "framework/model/convert.h"
#include "framework/model/in_parallel.h"
#include "kernels/formats/activations/activation_format.h"

namespace foretoken {

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

namespace {

Tensor outputs(Backend& device, const Tensor& x, const Tensor& weights) {
  const Tensor y = device.linear(x, device.prepare(Weight::dense(weights)));
  const Tensor here = Tensor::host(y.shape(), y.dtype());
  device.copy(y, here);
  device.synchronize();
  return here;
}

double squares(const Tensor& y) {
  double all = 0;
  for (std::int64_t r = 0; r < y.dim(0); ++r) {
    double row = 0;
    for (const float v : y.rows(r, 1).values<float>()) row += double(v) * double(v);
    all += row;
  }
  return all;
}

// The inputs as the matrix reads them.
Tensor read_by(const Weight& w, const Tensor& x) {
  const Tensor read = Tensor::host(x.shape(), DType::f32);
  std::memcpy(read.raw(), x.raw(), std::size_t(x.bytes()));
  std::vector<Outlier> apart;
  for (std::int64_t r = 0; r < x.dim(0); ++r) {
    const std::span<float> row = read.rows(r, 1).values<float>();
    apart.clear();
    const float scale = round_row(w, row, apart);
    for (float& v : row) v *= scale;
    for (const Outlier& o : apart) row[std::size_t(o.input)] = o.value;
  }
  return read;
}

Tensor difference(const Tensor& a, const Tensor& b) {
  const Tensor d = Tensor::host(a.shape(), DType::f32);
  for (std::int64_t i = 0; i < d.elements(); ++i) d.data<float>()[i] = a.data<float>()[i] - b.data<float>()[i];
  return d;
}

}  // namespace

double squared_outputs(Backend& device, const Tensor& x, const Tensor& weights) {
  return squares(outputs(device, x, weights));
}

// By differences, (X - X') W^T + X' (W - W')^T, since that of two outputs would lose digits.
SquaredError output_error(Backend& device, const Tensor& x, const Weight& dense, const Weight& rounded) {
  const Tensor weights = converted(dense.values, DType::f32), lost = weights_lost(dense, rounded);
  const double whole = squared_outputs(device, device.upload(x), weights);
  if (!rounded.activations) return {squared_outputs(device, device.upload(x), lost), whole};
  const Tensor read = read_by(rounded, x), by_weights = outputs(device, device.upload(read), lost),
               by_inputs = outputs(device, device.upload(difference(read, x)), weights);
  return {squares(difference(by_weights, by_inputs)), whole};
}

}  // namespace foretoken
