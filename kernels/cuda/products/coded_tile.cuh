// Products of 17 to 64 rows with packed matrices, on architecture 90a: codes become the first operand of warpgroup
// products in registers. This header must not know what is multiplied.
#pragma once
#include "kernels/cuda/products/packed_matrix.cuh"

namespace foretoken {

constexpr std::int64_t kCodedRows = 64;

// Whether coded_tile_product supports this: `in` a multiple of 128 for each slice of splits_of().
bool can_tile_codes(const CudaBackend& backend, const PackedMatrix& matrix);

// x bf16 [rows, in], at most kCodedRows rows, aligned to 16 bytes; y aligned to four outputs, out a multiple of 4.
// Gated: out a multiple of 16, one slice.
void coded_tile_product(const CudaBackend& backend, const Epilogue& to, const Tensor& x, const PackedMatrix& matrix);

}  // namespace foretoken
