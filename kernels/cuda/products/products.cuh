// Products with a model's matrices: the choice of route. Products of few rows with bf16 matrices are computed by the
// kernels of this folder, the rest by cuBLASLt; products with f32 matrices are computed in f32. This header must not
// know which layer a matrix belongs to.
#pragma once
#include <memory>

#include "kernels/cuda/cuda_backend.cuh"

namespace foretoken {

// The input of a product: x itself, or its rms_norm, which may be computed while x is loaded.
struct ProductInput {
  enum class Kind { plain, norm };
  Kind kind = Kind::plain;
  Tensor x;           // f32 or bf16; norm: f32 [rows, in]
  Tensor gain = {};   // norm: f32 [in]
  float epsilon = 0;  // norm

  std::int64_t rows() const { return x.dim(0); }
};

// The epilogue of a product p: y = p, y += p, or y [rows, out / 2] = silu(first half of p) * second half of p.
enum class ProductEnd { plain, added, gated };

// The number of equal split-K slices of the sum over the inputs: each slice is summed in order, and the slices are
// added in order. It depends only on the shape of the matrix, not on the number of rows, so that a row's result does
// not either.
int splits_of(std::int64_t out, std::int64_t in);

// rms_norm(x) in the given type: x f32 [rows, width], gain f32 [width] -> [rows, width].
Tensor rms_norm_as(CudaBackend& backend, const Tensor& x, const Tensor& gain, float epsilon, DType type);
// x [rows, width] in the given type, dense; x itself if it is already so.
Tensor converted(CudaBackend& backend, const Tensor& x, DType type);

class Blas;
struct FewRows;
struct StreamedMatrix;

class CudaProducts {
 public:
  explicit CudaProducts(CudaBackend& backend);
  ~CudaProducts();

  Weight prepare(Weight weight);
  // y = input W^T + b, or y += that. y f32 or bf16 [rows, out] (f32 if it adds), rows may be strided.
  void run(const Tensor& y, const ProductInput& input, const Weight& w, bool adds);
  // silu_mul(input W^T + b) [rows, out / 2] in the matrix' type.
  Tensor gated(const ProductInput& input, const Weight& w);

  // A sentence for the user about the products so far (see Blas::note); empty: nothing to report.
  std::string note() const;

  static constexpr int kStreamRows = 16;  // the most rows of a streamed product

 private:
  Weight prepare_dense(Weight weight);
  bool tiles(const ProductInput& input, const Weight& w) const;
  bool streams(const ProductInput& input, const StreamedMatrix& matrix) const;
  void stream(const Tensor& y, const ProductInput& input, const StreamedMatrix& matrix, const Tensor& bias,
              ProductEnd end);
  void run_dense(const Tensor& y, const ProductInput& input, const Weight& w, const Tensor& matrix, bool adds);
  FewRows few_rows(const Tensor& x, const Tensor& matrix);
  ProductInput ready(const ProductInput& input, const StreamedMatrix& matrix);
  Tensor dense_input(const ProductInput& input, DType type);

  CudaBackend& backend_;
  std::unique_ptr<Blas> blas_;
  Tensor partials_, counters_;  // of streamed products: f32 [kMostPartials], i32 [kMostTiles], zero between launches
};

}  // namespace foretoken
