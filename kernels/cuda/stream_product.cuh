// A product of few rows, whose time is that of reading the matrix once: the matrix streams from device memory through rings in
// shared memory into tensor cores. This room must not know what is multiplied.
#pragma once
#include "kernels/cuda/cuda_backend.cuh"
#include "kernels/cuda/products.cuh"

namespace foretoken {

constexpr std::int64_t kMostTiles = 1 << 16;      // of 16 outputs
constexpr std::int64_t kMostPartials = 4 << 20;   // f32: slices * outputs * rows in eights

// How the work is laid out: `blocks` blocks of `warps` warps. A block sums `local` slices of its tiles: all, or one.
struct StreamPlan {
  int slices = 1, local = 1, warps = 8, ring = 4, piece = 128, blocks = 1;
};
StreamPlan stream_plan(const CudaBackend& backend, std::int64_t out, std::int64_t in, const ProductInput& input);

// Whether stream_product takes this: bf16 matrix [out, in] with in a multiple of 128, aligned input, room in shared memory, and one row only
// where x is made on the way in.
bool can_stream(const CudaBackend& backend, const ProductInput& input, std::int64_t out, std::int64_t in);

// y = input W^T + b, or y += that; at most 16 rows. `partials` and `counters` as CudaProducts keeps them.
void stream_product(CudaBackend& backend, const StreamPlan& plan, const Tensor& y, const ProductInput& input, const Tensor& matrix, const Tensor& bias, bool adds,
                    const Tensor& partials, const Tensor& counters);

}  // namespace foretoken
