// A product of few rows, bound by reading the matrix once: the matrix is streamed from device memory through rings in
// shared memory to tensor cores. This header must not know what is multiplied.
#pragma once
#include <array>
#include <optional>

#include "kernels/cuda/products/cuda_matrix.cuh"
#include "kernels/cuda/products/packed_matrix.cuh"
#include "kernels/cuda/products/products.cuh"
#include "kernels/cuda/products/stream_input.cuh"

namespace foretoken {

constexpr std::int64_t kMostTiles = 1 << 16;     // tiles of 16 outputs
constexpr std::int64_t kMostPartials = 4 << 20;  // f32: slices * outputs * rows in eights

constexpr int kMostWarps = 16;

// The matrix of a streamed product [out, in]: bf16, or packed.
struct StreamedMatrix {
  std::int64_t out = 0, in = 0;
  Tensor dense = {};  // bf16 [out, in]; absent where it is packed
  const PackedMatrix* packed = nullptr;

  static StreamedMatrix of(const Tensor& matrix) { return {matrix.dim(0), matrix.dim(1), matrix}; }
  static StreamedMatrix of(const PackedMatrix& m) { return {m.out, m.in, {}, &m}; }
};

// Stages of a warp's ring; inputs and bytes of the piece that a stage holds; whether lanes copy it themselves.
struct StreamPieces {
  int ring = 4, piece = 128, bytes = 4096;
  bool lanes = false;
};
// The launch plan: `blocks` blocks of `warps` warps. A block sums `local` slices of its tiles: all, or one. It holds x
// for `depth` inputs of a slice at once: all, or, where it sums one slice, a fraction.
struct StreamPlan {
  int slices = 1, local = 1, warps = 8;
  StreamPieces pieces = {};
  int blocks = 1, depth = 0;
};
// The fastest plan that fits (stream_plan.cu) for at most 16 rows; none where stream_product does not support this:
// `in` a multiple of 128 for each slice, a plan that fits shared memory, and one row only where x is converted or
// normed.
std::optional<StreamPlan> stream_plan(const CudaBackend& backend, const StreamedMatrix& matrix, StreamInput kind,
                                      std::int64_t rows);

StreamInput stream_input(const ProductInput& input);
// Bytes of shared memory of a block.
std::int64_t stream_bytes(const StreamPlan& plan, StreamInput kind, std::int64_t rows, std::int64_t in);

// The input aligned to 16 bytes; `plan`: of its kind and rows. Gated: out is a multiple of 16.
void stream_product(CudaProducts& products, const ProductResult& result, const ProductInput& input,
                    const StreamedMatrix& matrix, const StreamPlan& plan);

// Of packed matrices (stream_codes.cu): the pieces in which they can be streamed; the launch.
std::array<StreamPieces, 2> coded_pieces(const PackedMatrix& m);
void launch_coded(cudaStream_t stream, const Grid& grid, const StreamPlan& plan, const Stream& a,
                  const PackedMatrix& m);

}  // namespace foretoken
