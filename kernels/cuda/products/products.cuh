// Products with a model's matrices. Each form of a matrix chooses its routes (cuda_matrix.cuh); what they share is
// here. This header must not know which layer a matrix belongs to.
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
// x [rows, width] in the given type, dense, aligned to 16 bytes; x itself if it is already so.
Tensor converted(CudaBackend& backend, const Tensor& x, DType type);

class Blas;

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

  // For the forms of matrices: the library, and the memory of streamed products: f32 [kMostPartials], i32 [kMostTiles],
  // zero between launches.
  CudaBackend& backend() { return backend_; }
  Blas& blas() { return *blas_; }
  const Tensor& partials() const { return partials_; }
  const Tensor& counters() const { return counters_; }

  static constexpr int kStreamRows = 16;  // the most rows of a streamed product

 private:
  CudaBackend& backend_;
  std::unique_ptr<Blas> blas_;
  Tensor partials_, counters_;
};

}  // namespace foretoken
