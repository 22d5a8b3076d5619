// A product of few rows, whose time is that of reading the matrix once: the matrix streams from device memory through
// rings in shared memory into tensor cores. This header must not know what is multiplied.
#pragma once
#include "kernels/cuda/cuda_backend.cuh"
#include "kernels/cuda/products/products.cuh"
#include "kernels/cuda/products/stream_input.cuh"

namespace foretoken {

constexpr std::int64_t kMostTiles = 1 << 16;     // of 16 outputs
constexpr std::int64_t kMostPartials = 4 << 20;  // f32: slices * outputs * rows in eights

constexpr int kMostWarps = 16;
// How the work is laid out: `blocks` blocks of `warps` warps. A block sums `local` slices of its tiles: all, or one;
// it holds x for `depth` inputs of a slice at once: all, or, where it sums one slice, a part.
struct StreamPlan {
  int slices = 1, local = 1, warps = 8, ring = 4, piece = 128, blocks = 1, depth = 0;
};
// The fastest plan that fits (stream_plan.cu).
StreamPlan stream_plan(const CudaBackend& backend, std::int64_t out, std::int64_t in, const ProductInput& input);

StreamInput stream_input(const ProductInput& input);
// Shared memory of a block.
std::int64_t stream_bytes(const StreamPlan& plan, StreamInput kind, std::int64_t rows, std::int64_t in);

// Whether stream_product takes this: bf16 matrix [out, in] with in a multiple of 128, aligned input, room in shared
// memory, and one row only where x is made on the way in.
bool can_stream(const CudaBackend& backend, const ProductInput& input, std::int64_t out, std::int64_t in);

// y = input W^T + b, or y += that, or that gated; at most 16 rows. Gated: out is a multiple of 16. `partials` and
// `counters` as CudaProducts keeps them.
void stream_product(CudaBackend& backend, const StreamPlan& plan, const Tensor& y, const ProductInput& input,
                    const Tensor& matrix, const Tensor& bias, ProductEnd end, const Tensor& partials,
                    const Tensor& counters);

}  // namespace foretoken
