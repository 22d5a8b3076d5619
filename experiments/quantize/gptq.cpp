// Work for a matrix [out, in]: in^3 / 3 for the factor, once for all matrices with the same inputs, and out * in^2 for
// rounding, nearly all of it products in f32. experiments/formats.md has the rates.
#include "experiments/quantize/gptq.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "experiments/quantize/cholesky.h"
#include "framework/model/convert.h"
#include "framework/model/in_parallel.h"
#include "kernels/error.h"

namespace foretoken {
namespace {

constexpr std::int64_t kBlock = 256;  // columns that are rounded before their errors are multiplied

std::vector<std::int32_t> order_of(const Tensor& sums, bool by_size) {
  std::vector<std::int32_t> order(static_cast<std::size_t>(sums.dim(0)));
  std::iota(order.begin(), order.end(), 0);
  const auto size = [&](std::int32_t i) { return sums.row<float>(i)[i]; };
  if (by_size) std::ranges::stable_sort(order, [&](std::int32_t a, std::int32_t b) { return size(a) > size(b); });
  return order;
}

// What is added to the diagonal.
float damping_of(const Tensor& sums, double damping) {
  double trace = 0;
  for (std::int64_t i = 0; i < sums.dim(0); ++i) trace += double(sums.row<float>(i)[i]);
  if (!std::isfinite(trace))
    throw Error(
        "the inputs of a matrix are not finite while the model reads the calibration text; calibrate with another "
        "text, or correct the model");
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

GptqFactor::GptqFactor(Backend& host, const Tensor& sums, double damping, bool by_size)
    : order_(order_of(sums, by_size)) {
  const std::int64_t n = in();
  const float damp = damping_of(sums, damping);
  lower_ = Tensor::host({n, n}, DType::f32);
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
