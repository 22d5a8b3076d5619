// A dense matrix on the GPU and its products by each route. This header must not know how a route is chosen.
#pragma once
#include "kernels/cuda/products/cuda_matrix.cuh"
#include "kernels/cuda/products/routes.cuh"

namespace foretoken {

// x[r] = row tokens[r] of the table (zeros for -1): f32 [rows, in]. (embed.cu)
void embed_dense(CudaBackend& backend, const Tensor& table, const Tensor& tokens, const Tensor& x);

class DenseMatrix final : public CudaMatrix {
 public:
  DenseMatrix(const CudaBackend& backend, Tensor matrix)
      : matrix_(std::move(matrix)), routes_(backend, matrix_.dim(0), matrix_.dim(1), matrix_.dtype()) {}

  std::int64_t bytes() const override { return matrix_.bytes(); }
  const Tensor& values() const { return matrix_; }
  DType type() const override { return matrix_.dtype(); }
  bool gates(CudaProducts& products, const ProductInput& input) const override;
  void multiply(CudaProducts& products, const ProductResult& result, const ProductInput& input) const override;
  void embed(CudaBackend& backend, const Tensor& tokens, const Tensor& x) const override {
    embed_dense(backend, matrix_, tokens, x);
  }

 private:
  Tensor matrix_;  // [out, in], bf16 or f32
  DenseRoutes routes_;
};

// The input as a dense matrix of this type.
Tensor dense_input(CudaBackend& backend, const ProductInput& input, DType type);

// The input as a streamed product takes it, and its plan: a row as it is where it can be converted or normed while it
// is loaded, else in bf16, dense. The plan is absent where the product is not streamed; the input is in bf16 then.
struct StreamReady {
  ProductInput input;
  const StreamPlan* plan = nullptr;
};
StreamReady stream_ready(CudaBackend& backend, const ProductInput& input, const StreamPlans& plans);

// The product of x [rows, in], of the matrix' type and dense, by the route for it.
void dense_product(CudaProducts& products, const ProductResult& result, const Tensor& x, const Tensor& matrix,
                   const DenseRoutes& routes);

}  // namespace foretoken
