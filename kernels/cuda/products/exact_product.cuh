// y = x W^T + b with one order of sums, whatever the number of rows: each output adds its products in sequence. Slow,
// but always the same bits: used in invariant numerics for f32 matrices and for bf16 ones of awkward shapes. This
// header must not know when it is used.
#pragma once
#include "kernels/cuda/cuda_backend.cuh"
#include "kernels/cuda/products/epilogue.cuh"

namespace foretoken {

// matrix [out, in] f32 or bf16, x [rows, in] of the same type, both dense; not gated.
void exact_product(CudaBackend& backend, const Epilogue& to, const Tensor& x, const Tensor& matrix);

}  // namespace foretoken
