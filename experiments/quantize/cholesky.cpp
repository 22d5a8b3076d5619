#include "experiments/quantize/cholesky.h"

#include <algorithm>

#include <Eigen/Cholesky>
#include <Eigen/Core>

#include "framework/model/in_parallel.h"
#include "kernels/host_backend.h"

namespace foretoken {
namespace {

using Matrix = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using Rows = Eigen::Map<Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>, 0,
                        Eigen::OuterStride<Eigen::Dynamic>>;

constexpr std::int64_t kBlock = 256;

Rows rows_of(const Tensor& t) { return {t.data<float>(), t.dim(0), t.dim(1), Eigen::OuterStride<>(t.row_stride())}; }

Weight dense_copy(Backend& host, const Tensor& t) {
  const Tensor copy = Tensor::host(t.shape(), DType::f32);
  copy_on_host(t, copy);
  return host.prepare(Weight::dense(copy));
}

// x -= y
void subtract(const Tensor& x, const Tensor& y) {
  by_all_cores(x.dim(0), x.dim(1), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r)
      for (std::int64_t i = 0; i < x.dim(1); ++i) x.row<float>(r)[i] -= y.row<float>(r)[i];
  });
}

}  // namespace

bool factorize(Backend& host, Tensor a) {
  const std::int64_t n = a.dim(0);
  for (std::int64_t k = 0; k < n; k += kBlock) {
    const std::int64_t width = std::min(kBlock, n - k), below = n - k - width;
    const Tensor panel = a.rows(k, n - k).columns(k, width), corner = panel.rows(0, width);
    if (k > 0) {
      const Weight left = dense_copy(host, a.rows(k, width).columns(0, k));
      subtract(panel, host.linear(a.rows(k, n - k).columns(0, k), left));
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

}  // namespace foretoken
