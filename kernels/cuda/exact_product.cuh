// y = x W^T + b in f32 with one order of sums, whatever the number of rows: each output adds its products one after another.
// Slow and the same bits always; for f32 matrices where numerics are invariant. Knows nothing else.
#pragma once
#include "kernels/cuda/cuda_backend.cuh"

namespace foretoken {

// y f32 [rows, out], x f32 [rows, in] dense, matrix f32 [out, in] dense, bias f32 [out] or absent; y += if `adds`.
void exact_product(CudaBackend& backend, const Tensor& y, const Tensor& x, const Tensor& matrix, const Tensor& bias, bool adds);

}  // namespace foretoken
