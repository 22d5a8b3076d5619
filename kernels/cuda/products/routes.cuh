// Which route each product of a matrix takes, decided once, when the matrix is prepared: README.md says why. This
// header must not know how a route multiplies.
#pragma once
#include <array>
#include <optional>

#include "kernels/cuda/products/stream_product.cuh"

namespace foretoken {

// The plans of a matrix' streamed products: of one normed row, of one row in f32, and of 1 to 16 rows in bf16.
class StreamPlans {
 public:
  StreamPlans() = default;
  StreamPlans(const CudaBackend& backend, const StreamedMatrix& matrix);
  // nullptr: not by this route.
  const StreamPlan* of(StreamInput kind, std::int64_t rows) const;

 private:
  std::optional<StreamPlan> norm_, f32_;
  std::array<std::optional<StreamPlan>, CudaProducts::kStreamRows> bf16_;
};

enum class Route {
  streamed,  // stream_product.cu
  tile,      // tile_product.cu
  wide,      // wide_product.cu
  slabs,     // streamed, 16 rows at a time
  exact,     // exact_product.cu
  library    // blas.cu
};

// Of a dense matrix [out, in], bf16 or f32, whose inputs have its type.
class DenseRoutes {
 public:
  DenseRoutes() = default;
  DenseRoutes(const CudaBackend& backend, std::int64_t out, std::int64_t in, DType type);

  // aligned: y may be written four outputs at a time.
  Route of(std::int64_t rows, bool aligned) const;
  // Of a gated product; none: not gated, silu_mul() follows.
  std::optional<Route> gated(std::int64_t rows) const;
  const StreamPlans& plans() const { return plans_; }

 private:
  static constexpr int kFew = 64;
  bool tiles(std::int64_t rows) const;
  Route choose(std::int64_t rows, bool aligned) const;

  const CudaBackend* backend_ = nullptr;
  std::int64_t out_ = 0, in_ = 0;
  DType type_ = DType::bf16;
  StreamPlans plans_;
  std::array<std::array<Route, kFew + 1>, 2> few_ = {};  // by `aligned` and rows
};

}  // namespace foretoken
