// Products of 17 to 64 rows with packed matrices, on architecture 90a: codes become the first operand of warpgroup
// products in registers. This header must not know what is multiplied.
#pragma once
#include "kernels/cuda/products/packed_matrix.cuh"

namespace foretoken {

// Whether coded_tile_product supports this: at most 64 rows; aligned bf16 x; `in` a multiple of 128 for each slice of
// splits_of(); out a multiple of 4, or of 16 where it is gated, then without a bias and with one slice.
bool can_tile_codes(const CudaBackend& backend, const Tensor& x, const PackedMatrix& matrix, const Tensor& bias,
                    bool gated);

// y = x W^T + b, or y += that; gated: y = silu(x W^T, first half) * (x W^T, second half), both rounded to bf16 before
// the multiplication. y f32 or bf16 [rows, out] (gated: bf16 [rows, out / 2]), x bf16 [rows, in].
void coded_tile_product(const CudaBackend& backend, const Tensor& y, const Tensor& x, const PackedMatrix& matrix,
                        const Tensor& bias, bool adds, bool gated);

}  // namespace foretoken
