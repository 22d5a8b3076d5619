#include "experiments/quantize/input_products.h"

#include <algorithm>
#include <cstring>

#include "framework/model/convert.h"
#include "framework/model/in_parallel.h"
#include "kernels/host_backend.h"

namespace foretoken {

namespace {

constexpr std::int64_t kLine = 16;  // numbers in a cache line

// Columns [begin, end) of `rows` become rows of `to`, from its column `at` on. Both sides are read and written by whole
// cache lines; rows of `to` are a power of two apart, and would drive each other out of the cache.
void transpose(const Tensor& rows, const Tensor& to, std::int64_t at, std::int64_t begin, std::int64_t end) {
  float tile[kLine][kLine];
  for (std::int64_t i = begin; i < end; i += kLine)
    for (std::int64_t r = 0; r < rows.dim(0); r += kLine) {
      const std::int64_t width = std::min(kLine, end - i), height = std::min(kLine, rows.dim(0) - r);
      for (std::int64_t a = 0; a < height; ++a)
        for (std::int64_t b = 0; b < width; ++b) tile[b][a] = rows.row<float>(r + a)[i + b];
      for (std::int64_t b = 0; b < width; ++b)
        std::memcpy(to.row<float>(i + b) + at + r, tile[b], std::size_t(height) * sizeof(float));
    }
}

}  // namespace

InputProducts::InputProducts(Backend& device, std::int64_t in, DType type) : device_(device), in_(in), type_(type) {
  waiting_ = Tensor::host({in, kRows}, DType::f32);
  for (std::int64_t begin = 0; begin < in; begin += kPanel) {
    const Tensor zeros = Tensor::host({in - begin, std::min(kPanel, in - begin)}, DType::f32);
    std::memset(zeros.raw(), 0, std::size_t(zeros.bytes()));
    const Tensor panel = device.allocate(zeros.shape(), DType::f32);
    device.copy(zeros, panel);
    device.synchronize();
    panels_.push_back(panel);
  }
}

void InputProducts::add(const Tensor& x) {
  for (std::int64_t at = 0; at < x.dim(0);) {
    const std::int64_t some = std::min(x.dim(0) - at, kRows - rows_);
    constexpr std::int64_t kWork = 8;  // a transposed number takes as long as so many that are read in their order
    by_all_cores((in_ + kLine - 1) / kLine, kWork * kLine * some, [&](std::int64_t begin, std::int64_t end) {
      transpose(x.rows(at, some), waiting_, rows_, begin * kLine, std::min(in_, end * kLine));
    });
    at += some, rows_ += some;
    if (rows_ == kRows) multiply();
  }
}

// Each panel of X^T X is X^T times some columns of X: a product with these columns as a matrix [columns, rows].
void InputProducts::multiply() {
  if (rows_ == 0) return;
  for (std::int64_t i = 0; i < in_; ++i) std::fill(waiting_.row<float>(i) + rows_, waiting_.row<float>(i + 1), 0.0f);
  const bool on_host = device_.device().kind == Device::Kind::cpu;  // whose products read f32 inputs alone
  const Tensor rounded = converted(waiting_, type_),
               x = device_.upload(on_host ? converted(rounded, DType::f32) : rounded);
  std::int64_t begin = 0;
  for (const Tensor& sums : panels_) {
    const Weight columns = device_.prepare(Weight::dense(rounded.rows(begin, sums.dim(1))));
    device_.linear_add(sums, x.rows(begin, in_ - begin), columns);
    begin += sums.dim(1);
  }
  device_.synchronize();
  rows_ = 0;
}

Tensor InputProducts::sums() {
  multiply();
  const Tensor all = Tensor::host({in_, in_}, DType::f32);
  std::int64_t begin = 0;
  for (const Tensor& panel : panels_) {
    const Tensor here = Tensor::host(panel.shape(), DType::f32);
    device_.copy(panel, here);
    device_.synchronize();
    copy_on_host(here, all.rows(begin, panel.dim(0)).columns(begin, panel.dim(1)));
    begin += panel.dim(1);
  }
  return all;
}

}  // namespace foretoken
