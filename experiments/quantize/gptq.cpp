// Work for a matrix [out, in]: in^3 / 3 for the factor, once for all matrices with the same inputs, and out * in^2 for
// rounding, nearly all of it products in f32. experiments/formats.md has the rates.
#include "experiments/quantize/gptq.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include <Eigen/Cholesky>
#include <Eigen/Core>

#include "experiments/quantize/rounding_error.h"
#include "framework/model/convert.h"
#include "framework/model/in_parallel.h"
#include "kernels/error.h"
#include "kernels/host_backend.h"

namespace foretoken {
namespace {

constexpr std::int64_t kLine = 16;     // numbers in a cache line
constexpr std::int64_t kPanel = 1024;  // columns of the sums of products that are computed together
constexpr std::int64_t kRows = 1024;   // of the text that are multiplied together
constexpr std::int64_t kBlock = 256;   // columns that are factorized together, or rounded before errors are multiplied

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

using Matrix = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using Rows = Eigen::Map<Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>, 0,
                        Eigen::OuterStride<Eigen::Dynamic>>;

Rows rows_of(const Tensor& t) { return {t.data<float>(), t.dim(0), t.dim(1), Eigen::OuterStride<>(t.row_stride())}; }

std::vector<std::int32_t> order_of(const Tensor& sums, bool by_size) {
  std::vector<std::int32_t> order(static_cast<std::size_t>(sums.dim(0)));
  std::iota(order.begin(), order.end(), 0);
  const auto size = [&](std::int32_t i) { return sums.row<float>(i)[i]; };
  if (by_size) std::ranges::stable_sort(order, [&](std::int32_t a, std::int32_t b) { return size(a) > size(b); });
  return order;
}

float damping_of(const Tensor& sums, double damping) {
  double trace = 0;
  for (std::int64_t i = 0; i < sums.dim(0); ++i) trace += double(sums.row<float>(i)[i]);
  if (!std::isfinite(trace)) refuse_inputs();
  return trace > 0 ? float(damping * trace / double(sums.dim(0))) : 1.0f;
}

// Columns [begin, end) in the order of rounding, of all rows.
struct Columns {
  std::int64_t begin, end;
  std::int64_t width() const { return end - begin; }
};

// The shares of the columns before a block, as a matrix [block, before].
Weight shares_before(Backend& host, const GptqFactor& factor, Columns block) {
  const Tensor shares = Tensor::host({block.width(), block.begin}, DType::f32);
  by_all_cores(block.begin, block.width(), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t j = begin; j < end; ++j)
      for (std::int64_t k = block.begin; k < block.end; ++k) shares.row<float>(k - block.begin)[j] = factor.share(j, k);
  });
  return host.prepare(Weight::dense(shares));
}

// Rounds a block of one row. `taken`: what the columns before the block ask of it; absent: nothing. `errors`: e.
void round_block(const Weight& w, std::int64_t o, const float* dense, const GptqFactor& factor, Columns block,
                 const std::vector<double>& within, const float* taken, float* errors) {
  const std::span<const float> numbers = w.format->numbers();
  auto* codes = w.values.row<std::uint8_t>(o);
  double wanted[kBlock];
  for (std::int64_t k = 0; k < block.width(); ++k)
    wanted[k] = double(dense[factor.order()[std::size_t(block.begin + k)]]) + (taken ? double(taken[k]) : 0.0);
  for (std::int64_t k = 0; k < block.width(); ++k) {
    const std::int64_t i = factor.order()[std::size_t(block.begin + k)], g = i / w.group;
    const GroupScale s{w.scales.row<float>(o)[g], w.zeros ? w.zeros.row<float>(o)[g] : 0.0f, 0};
    const float nearest = float(wanted[k]);
    w.format->encode({&nearest, 1}, s, codes + i);
    const double error = double(dense[i]) - double(weight_of(numbers[codes[i]], s));
    errors[block.begin + k] = float(error);
    for (std::int64_t j = k + 1; j < block.width(); ++j) wanted[j] += error * within[std::size_t(k * kBlock + j)];
  }
}

std::vector<double> shares_within(const GptqFactor& factor, Columns block) {
  std::vector<double> within(kBlock * kBlock);
  for (std::int64_t j = 0; j < block.width(); ++j)
    for (std::int64_t k = j; k < block.width(); ++k)
      within[std::size_t(j * kBlock + k)] = double(factor.share(block.begin + j, block.begin + k));
  return within;
}

}  // namespace

InputProducts::InputProducts(Backend& device, std::int64_t in, DType type)
    : device_(device), in_(in), type_(type), waiting_(Tensor::host({in, kRows}, DType::f32)) {
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
    at += some;
    rows_ += some;
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
    copy_on_host(on_host(device_, panel), all.rows(begin, panel.dim(0)).columns(begin, panel.dim(1)));
    begin += panel.dim(1);
  }
  return all;
}

bool factorize(Backend& host, Tensor a) {
  const std::int64_t n = a.dim(0);
  for (std::int64_t k = 0; k < n; k += kBlock) {
    const std::int64_t width = std::min(kBlock, n - k), below = n - k - width;
    const Tensor panel = a.rows(k, n - k).columns(k, width), corner = panel.rows(0, width);
    if (k > 0) {
      const Tensor left = on_host(host, a.rows(k, width).columns(0, k));
      const Tensor known = host.linear(a.rows(k, n - k).columns(0, k), host.prepare(Weight::dense(left)));
      rows_of(panel) -= rows_of(known);
    }
    const Eigen::LLT<Matrix> factor(rows_of(corner).cast<double>());
    if (factor.info() != Eigen::Success) return false;
    const Matrix lower = factor.matrixL(), inverse = factor.matrixL().solve(Matrix::Identity(width, width));
    rows_of(corner) = lower.cast<float>();
    if (below == 0) continue;
    const Tensor divisor = Tensor::host({width, width}, DType::f32), rest = panel.rows(width, below);
    rows_of(divisor) = inverse.cast<float>();
    copy_on_host(host.linear(rest, host.prepare(Weight::dense(divisor))), rest);
  }
  return true;
}

void refuse_inputs() {
  throw Error(
      "the inputs of a matrix are not finite while the model reads the calibration text; calibrate with another text, "
      "or correct the model");
}

GptqFactor::GptqFactor(Backend& host, const Tensor& sums, double damping, bool by_size)
    : order_(order_of(sums, by_size)), lower_(Tensor::host(sums.shape(), DType::f32)) {
  const std::int64_t n = sums.dim(0);
  const float damp = damping_of(sums, damping);
  by_all_cores(n, n, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      const std::int32_t i = order_[std::size_t(n - 1 - r)];
      for (std::int64_t c = 0; c <= r; ++c) {
        const std::int32_t j = order_[std::size_t(n - 1 - c)];
        lower_.row<float>(r)[c] = i > j ? sums.row<float>(i)[j] : sums.row<float>(j)[i];
      }
      lower_.row<float>(r)[r] += damp;
    }
  });
  if (!factorize(host, lower_))
    throw Error("the inputs of a matrix are too much alike for GPTQ; calibrate with another text");
}

Weight gptq(Backend& host, const Weight& dense, const WeightFormat& format, const GptqFactor& factor,
            const ForShares& shares) {
  const Weight w = quantize(dense, format, 0, shares);
  const Tensor values = converted(dense.values, DType::f32), errors = Tensor::host({w.out, w.in}, DType::f32);
  for (Columns block{0, 0}; block.begin < w.in; block.begin = block.end) {
    block.end = std::min(w.in, block.begin + kBlock);
    Tensor taken;
    if (block.begin > 0) taken = host.linear(errors.columns(0, block.begin), shares_before(host, factor, block));
    const std::vector<double> within = shares_within(factor, block);
    shares(w.out, kBlock * block.width(), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t o = begin; o < end; ++o)
        round_block(w, o, values.row<float>(o), factor, block, within, taken ? taken.row<float>(o) : nullptr,
                    errors.row<float>(o));
    });
  }
  return w;
}

}  // namespace foretoken
