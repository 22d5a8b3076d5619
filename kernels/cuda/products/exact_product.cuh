// y = x W^T + b with one order of sums, whatever the number of rows: each output adds its products in sequence. Slow,
// but always the same bits: used in invariant numerics for f32 matrices and for bf16 ones of awkward shapes. This
// header must not know when it is used.
#pragma once
#include "kernels/cuda/cuda_backend.cuh"

namespace foretoken {

// y f32 or bf16 [rows, out], matrix [out, in] f32 or bf16, x [rows, in] of the same type, both dense, bias f32 [out] or
// absent; y += if `adds` (f32).
void exact_product(CudaBackend& backend, const Tensor& y, const Tensor& x, const Tensor& matrix, const Tensor& bias,
                   bool adds);

}  // namespace foretoken
