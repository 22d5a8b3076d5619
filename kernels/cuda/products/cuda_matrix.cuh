// A weight's matrix on the GPU in the form that its products read. Each form chooses the routes of its products. This
// header must not know the routes.
#pragma once
#include "kernels/cuda/products/epilogue.cuh"
#include "kernels/cuda/products/products.cuh"

namespace foretoken {

// Where a product goes. y f32 or bf16 [rows, out]; f32 if it adds; bf16 [rows, out / 2] if it is gated. Rows may be
// strided.
struct ProductResult {
  Tensor y;
  Tensor bias = {};  // f32 [out]; absent: 0
  ProductEnd end = ProductEnd::plain;

  bool adds() const { return end == ProductEnd::added; }
  bool gated() const { return end == ProductEnd::gated; }
  Epilogue epilogue() const { return Epilogue(y, bias, adds(), gated()); }
  // Rows `first` to first + n of it.
  ProductResult rows(std::int64_t first, std::int64_t n) const { return {y.rows(first, n), bias, end}; }
};

class CudaMatrix : public PreparedWeight {
 public:
  // Of norm_linear's and gated results, and of what a product reads: inputs of another type are converted.
  virtual DType type() const = 0;
  // Whether multiply() may be gated for this input.
  virtual bool gates(CudaProducts& products, const ProductInput& input) const = 0;
  virtual void multiply(CudaProducts& products, const ProductResult& result, const ProductInput& input) const = 0;
  // x[r] = row tokens[r] of the matrix (zeros for -1): f32 [rows, in].
  virtual void embed(CudaBackend& backend, const Tensor& tokens, const Tensor& x) const = 0;
};

// A part of a stored weight on the device, and its address there; an absent one has neither.
inline Tensor uploaded(CudaBackend& backend, const Tensor& part) { return part ? backend.upload(part) : Tensor(); }
template <class T> const T* data_or_null(const Tensor& part) { return part ? part.data<T>() : nullptr; }

// The matrix that prepare() made. Throws Error where the weight was not prepared.
const CudaMatrix& matrix_of(const Weight& w);

}  // namespace foretoken
