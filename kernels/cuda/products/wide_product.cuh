// Products of many rows with split-K slices, on architecture 90a. This header must not know what is multiplied.
#pragma once
#include "kernels/cuda/cuda_backend.cuh"
#include "kernels/cuda/products/epilogue.cuh"

namespace foretoken {

// Whether wide_product supports a bf16 matrix [out, in] and is estimated to be faster than the library's slices, which
// are added from memory: several slices, each a multiple of 64 inputs; out a multiple of 4.
bool can_widen(const CudaBackend& backend, std::int64_t rows, std::int64_t out, std::int64_t in);

// Slices of splits_of() are added in order. x bf16 [rows, in] and the matrix bf16 [out, in], aligned to 16 bytes; y
// aligned to four outputs.
void wide_product(const CudaBackend& backend, const Epilogue& to, const Tensor& x, const Tensor& matrix);

}  // namespace foretoken
