// Products of up to 64 rows on architecture 90a: warpgroup products of boxes of the matrix. This header must not know
// what is multiplied.
#pragma once
#include "kernels/cuda/cuda_backend.cuh"
#include "kernels/cuda/products/epilogue.cuh"

namespace foretoken {

constexpr std::int64_t kTileRows = 64;  // with more rows, the rings hold too little of the matrix

// Whether all tiles of a matrix [out, in] run at once with one block on each multiprocessor: fast with 17 rows and
// more.
bool tiles_at_once(const CudaBackend& backend, std::int64_t out, std::int64_t in);

// Whether tile_product supports a bf16 matrix [out, in]: `in` a multiple of 64 for each slice of splits_of().
bool can_tile(const CudaBackend& backend, std::int64_t out, std::int64_t in);

// x bf16 [rows, in], at most kTileRows rows, and the matrix bf16 [out, in], aligned to 16 bytes; y aligned to four
// outputs, out a multiple of 4. Gated: out a multiple of 16, one slice.
void tile_product(const CudaBackend& backend, const Epilogue& to, const Tensor& x, const Tensor& matrix);

}  // namespace foretoken
