#include "experiments/quantize/gptq.h"

#include <algorithm>
#include <cstring>

#include <Eigen/Cholesky>
#include <Eigen/Core>

#include "framework/model/convert.h"
#include "kernels/error.h"

namespace foretoken {
namespace {

using Matrix = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using Floats = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

// The upper factor U of the inverse of the damped sums: (X^T X + d I)^-1 = U^T U. Row i of U, divided by its diagonal,
// is what a change of column i asks of the columns behind it.
Matrix factor_of(const InputProducts& inputs, double damping) {
  const std::int64_t n = inputs.in();
  Matrix sums = Eigen::Map<const Matrix>(inputs.sums().data(), n, n);
  if (!sums.allFinite())
    throw Error(
        "the inputs of a matrix are not finite while the model reads the calibration text; calibrate with another "
        "text, or correct the model");
  const double mean = sums.diagonal().mean();
  sums.diagonal().array() += mean > 0 ? damping * mean : 1.0;
  const Eigen::LLT<Matrix> factor(sums);
  const Eigen::LLT<Matrix, Eigen::Upper> inverse(factor.solve(Matrix::Identity(n, n)));
  if (factor.info() != Eigen::Success || inverse.info() != Eigen::Success)
    throw Error("the inputs of a matrix are too much alike for GPTQ; calibrate with another text");
  return inverse.matrixU();
}

// Rounds one row of weights; `codes` holds those of rounding to nearest before.
void round_row(std::vector<double>& row, const Weight& w, std::int64_t o, const Matrix& factor) {
  const std::span<const float> numbers = w.format->numbers();
  auto* codes = w.values.row<std::uint8_t>(o);
  for (std::int64_t i = 0; i < w.in; ++i) {
    const std::int64_t g = i / w.group;
    const GroupScale s{w.scales.row<float>(o)[g], w.zeros ? w.zeros.row<float>(o)[g] : 0.0f, 0};
    const float wanted = float(row[std::size_t(i)]);
    w.format->encode({&wanted, 1}, s, codes + i);
    const double share = (row[std::size_t(i)] - double(weight_of(numbers[codes[i]], s))) / factor(i, i);
    for (std::int64_t j = i + 1; j < w.in; ++j) row[std::size_t(j)] -= share * factor(i, j);
  }
}

}  // namespace

void InputProducts::add(const Tensor& x) {
  const Eigen::Map<const Floats> rows(x.data<float>(), x.dim(0), in_);
  const Floats products = rows.transpose() * rows;  // of some hundred rows, so f32 suffices
  Eigen::Map<Matrix>(sums_.data(), in_, in_) += products.cast<double>();
}

SquaredError output_error(const Weight& dense, const Weight& rounded, const InputProducts& inputs) {
  const Tensor original = converted(dense.values, DType::f32),
               values = converted(dequantized(rounded).values, DType::f32);
  const Eigen::Map<const Floats> w(original.data<float>(), dense.out, dense.in),
      r(values.data<float>(), dense.out, dense.in);
  const Eigen::Map<const Matrix> sums(inputs.sums().data(), dense.in, dense.in);
  const Matrix all = w.cast<double>(), difference = all - r.cast<double>();
  const double lost = (difference * sums).cwiseProduct(difference).sum(), whole = (all * sums).cwiseProduct(all).sum();
  return {lost, whole};
}

Weight gptq(const Weight& dense, const WeightFormat& format, const InputProducts& inputs, double damping,
            const ForShares& shares) {
  const Weight w = quantize(dense, format, 0, shares);
  const Matrix factor = factor_of(inputs, damping);
  const Tensor values = converted(dense.values, DType::f32);
  const auto rows = [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t o = begin; o < end; ++o) {
      std::vector<double> row(values.row<float>(o), values.row<float>(o) + w.in);
      round_row(row, w, o, factor);
    }
  };
  shares(w.out, w.in * w.in, rows);
  return w;
}

}  // namespace foretoken
