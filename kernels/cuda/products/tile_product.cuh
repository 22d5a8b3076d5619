// Products of up to 64 rows on architecture 90a: warpgroup products of boxes of the matrix. This header must not know
// what is multiplied.
#pragma once
#include "kernels/cuda/cuda_backend.cuh"

namespace foretoken {

constexpr std::int64_t kTileRows = 64;  // with more rows, the rings hold too little of the matrix

// Whether all tiles of a matrix [out, in] run at once with one block on each multiprocessor: fast with 17 rows and
// more.
bool tiles_at_once(const CudaBackend& backend, std::int64_t out, std::int64_t in);

// Whether tile_product supports this: up to kTileRows rows; bf16 x and matrix [out, in], aligned, `in` a multiple of 64
// for each slice of splits_of().
bool can_tile(const CudaBackend& backend, const Tensor& y, const Tensor& x, const Tensor& matrix);

// y = x W^T + b, or y += that. y f32 or bf16 [rows, out], x bf16 [rows, in].
void tile_product(const CudaBackend& backend, const Tensor& y, const Tensor& x, const Tensor& matrix,
                  const Tensor& bias, bool adds);

// Whether gated_tile_product supports this.
bool can_tile_gated(const CudaBackend& backend, const Tensor& x, const Tensor& matrix, const Tensor& bias);

// y = silu(x W^T, first half) * (x W^T, second half), both rounded to bf16 before the multiplication. y bf16 [rows, out
// / 2].
void gated_tile_product(const CudaBackend& backend, const Tensor& y, const Tensor& x, const Tensor& matrix);

}  // namespace foretoken
