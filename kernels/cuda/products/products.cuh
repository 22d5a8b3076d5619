// Products with a model's matrices: which way each goes. bf16 matrices of few rows are streamed by a kernel of our own,
// the rest is cuBLASLt's; f32 matrices compute in f32. This header must not know which layer a matrix belongs to.
#pragma once
#include <memory>

#include "kernels/cuda/cuda_backend.cuh"

namespace foretoken {

// What a product multiplies: x as it is, or something that is made of x on the way in.
struct ProductInput {
  enum class Kind { plain, norm };
  Kind kind = Kind::plain;
  Tensor x;           // f32 or bf16; norm: f32 [rows, in]
  Tensor gain = {};   // norm: f32 [in]
  float epsilon = 0;  // norm

  std::int64_t rows() const { return x.dim(0); }
};

// What becomes of a product's result: y = it, y += it, or y [rows, out / 2] = silu(its first half) * its second half.
enum class ProductEnd { plain, added, gated };

// The sum over the inputs is cut into as many equal slices, each summed in order, the slices added in order. It depends
// on the shape of the matrix alone, never on the number of rows, so that a row's result does not either.
int splits_of(std::int64_t out, std::int64_t in);

// y = (rms_norm(x)) in the given type.
Tensor rms_norm_as(CudaBackend& backend, const Tensor& x, const Tensor& gain, float epsilon, DType type);
// x [rows, width] in the given type, dense; x itself if it is so.
Tensor converted(CudaBackend& backend, const Tensor& x, DType type);

class Blas;
struct FewRows;

class CudaProducts {
 public:
  explicit CudaProducts(CudaBackend& backend);
  ~CudaProducts();

  Weight prepare(Weight weight);
  // y = input W^T + b, or y += that. y f32 or bf16 [rows, out] (f32 if it adds), rows may be strided.
  void run(const Tensor& y, const ProductInput& input, const Weight& w, bool adds);
  // silu_mul(input W^T + b) [rows, out / 2] in the matrix' type.
  Tensor gated(const ProductInput& input, const Weight& w);

  // What a user should know of the products so far, in a sentence; empty: nothing.
  std::string note() const;

  static constexpr int kStreamRows = 16;  // up to so many rows the weights are streamed

 private:
  bool tiles(const ProductInput& input, const Weight& w) const;
  bool streams(const ProductInput& input, const Weight& w, const Tensor& matrix) const;
  void stream(const Tensor& y, const ProductInput& input, const Weight& w, const Tensor& matrix, ProductEnd end);
  FewRows few_rows(const Tensor& x, const Weight& w, const Tensor& matrix);
  ProductInput ready(const ProductInput& input, const Weight& w, const Tensor& matrix);
  Tensor dense_input(const ProductInput& input, DType type);

  CudaBackend& backend_;
  std::unique_ptr<Blas> blas_;
  Tensor partials_, counters_;  // of streamed products: f32 [kMostPartials], i32 [kMostTiles], zero between launches
};

}  // namespace foretoken
