// Products of many rows with split-K slices, on architecture 90a. This header must not know what is multiplied.
#pragma once
#include "kernels/cuda/cuda_backend.cuh"

namespace foretoken {

// Whether wide_product supports this and is estimated to be faster than the library's slices, which are added from
// memory: bf16 x and matrix [out, in], aligned, several slices, each a multiple of 64 inputs.
bool can_widen(const CudaBackend& backend, const Tensor& y, const Tensor& x, const Tensor& matrix);

// y = x W^T + b, or y += that, slices of splits_of() added in order. y f32 or bf16 [rows, out], x bf16 [rows, in].
void wide_product(const CudaBackend& backend, const Tensor& y, const Tensor& x, const Tensor& matrix,
                  const Tensor& bias, bool adds);

}  // namespace foretoken
