#include <algorithm>

#include "kernels/cuda/products/blas.cuh"
#include "kernels/cuda/products/dense_matrix.cuh"
#include "kernels/cuda/products/exact_product.cuh"
#include "kernels/cuda/products/product_maps.cuh"
#include "kernels/cuda/products/tile_product.cuh"
#include "kernels/cuda/products/wide_product.cuh"

namespace foretoken {
namespace {

// The kernel with which the library's bits are compared: a streamed product of as many rows as it supports (16, 8 or
// 1), or none where it does not support the matrix.
FewRows few_rows(CudaProducts& products, std::int64_t rows, const DenseRoutes& routes) {
  if (!products.backend().invariant()) return {};
  for (const std::int64_t n : {std::int64_t(CudaProducts::kStreamRows), std::int64_t(8), std::int64_t(1)}) {
    if (routes.plans().of(StreamInput::bf16, std::min(n, rows)) == nullptr) continue;
    return {n, [&products, &routes](const Tensor& y, const Tensor& x, const Tensor& matrix) {
              stream_product(products, {y}, {.x = x}, StreamedMatrix::of(matrix),
                             *routes.plans().of(StreamInput::bf16, x.dim(0)));
            }};
  }
  return {};
}

void multiply_by(Route route, CudaProducts& products, const ProductResult& result, const Tensor& x,
                 const Tensor& matrix, const DenseRoutes& routes) {
  CudaBackend& backend = products.backend();
  const std::int64_t rows = x.dim(0);
  const auto stream = [&](const ProductResult& to, const Tensor& some) {
    stream_product(products, to, {.x = some}, StreamedMatrix::of(matrix),
                   *routes.plans().of(StreamInput::bf16, some.dim(0)));
  };
  switch (route) {
    case Route::streamed:
      return stream(result, x);
    case Route::tile:
      return tile_product(backend, result.epilogue(), x, matrix);
    case Route::wide:
      return wide_product(backend, result.epilogue(), x, matrix);
    case Route::exact:
      return exact_product(backend, result.epilogue(), x, matrix);
    case Route::library:
      return products.blas().run(result.y, x, matrix, result.bias, result.adds(), few_rows(products, rows, routes));
    case Route::slabs:
      for (std::int64_t r = 0; r < rows; r += CudaProducts::kStreamRows) {
        const std::int64_t n = std::min<std::int64_t>(CudaProducts::kStreamRows, rows - r);
        stream(result.rows(r, n), x.rows(r, n));
      }
  }
}

}  // namespace

Tensor dense_input(CudaBackend& backend, const ProductInput& input, DType type) {
  if (input.kind == ProductInput::Kind::norm) return rms_norm_as(backend, input.x, input.gain, input.epsilon, type);
  return converted(backend, input.x, type);
}

StreamReady stream_ready(CudaBackend& backend, const ProductInput& input, const StreamPlans& plans) {
  const StreamPlan* plan = aligned(input.x, 16) ? plans.of(stream_input(input), input.rows()) : nullptr;
  if (plan != nullptr) return {input, plan};
  const ProductInput made{.x = dense_input(backend, input, DType::bf16)};
  return {made, plans.of(StreamInput::bf16, made.rows())};
}

void dense_product(CudaProducts& products, const ProductResult& result, const Tensor& x, const Tensor& matrix,
                   const DenseRoutes& routes) {
  const Route route = result.gated() ? routes.gated(x.dim(0)).value()
                                     : routes.of(x.dim(0), aligned(result.y, 4 * size_of(result.y.dtype())));
  multiply_by(route, products, result, x, matrix, routes);
}

bool DenseMatrix::gates(CudaProducts&, const ProductInput& input) const {
  return routes_.gated(input.rows()).has_value();
}

void DenseMatrix::multiply(CudaProducts& products, const ProductResult& result, const ProductInput& input) const {
  CudaBackend& backend = products.backend();
  if (type() != DType::bf16)
    return dense_product(products, result, dense_input(backend, input, type()), matrix_, routes_);
  // One row may be streamed as it is; more are streamed only in bf16, where other routes may be faster.
  const StreamReady ready = stream_ready(backend, input, routes_.plans());
  if (stream_input(ready.input) != StreamInput::bf16)
    return stream_product(products, result, ready.input, StreamedMatrix::of(matrix_), *ready.plan);
  dense_product(products, result, ready.input.x, matrix_, routes_);
}

}  // namespace foretoken
