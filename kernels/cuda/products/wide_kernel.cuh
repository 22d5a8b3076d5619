// The kernel of a product of many rows, y = x W^T + b, whatever the numbers: wide_product.cu (bf16), rounded_boxes.cu
// (8 bits). Bytes: the matrix once from memory for every 2048 rows; for every tile of kOuts x kRows its rows of both,
// from L2. Operations: 2 * rows * out * in, which bound the time. Two blocks with neighbouring outputs form a cluster:
// each requests half of their rows of x, which are multicast to both. As many clusters as run at once compute all
// tiles, one after another: while the sums of a tile are written, the ring is filled for the next. A block computes all
// slices of a tile in sequence and keeps two sums in registers: that of the current slice, and that of the slices
// before it. This header must not know which numbers are multiplied.
#pragma once
#include <algorithm>
#include <cmath>
#include <span>

#include "kernels/cuda/cuda_backend.cuh"
#include "kernels/cuda/products/box_work.cuh"
#include "kernels/cuda/products/product_maps.cuh"
#include "kernels/cuda/products/wide_output.cuh"

namespace foretoken {

constexpr int kWidePeers = 2, kStagedRows = 16;

template <class N, int kRows, int kOuts> using WideTile = BoxTile<N, kRows, kOuts, 1, kWidePeers, kStagedRows>;

// The order of tiles: bands of rows; in each, pairs of tiles of the outputs; in each, the tiles of the rows. Blocks
// that run at once then read few boxes of the matrix and of x, which L2 holds.
struct WideOrder {
  static constexpr int kBandRows = 2048;

  int pairs, row_tiles, tile_rows, rank = 0;

  __host__ __device__ int count() const { return pairs * row_tiles; }
  __host__ __device__ TilePlace operator()(int i) const {
    const int band = (kBandRows + tile_rows - 1) / tile_rows, first = i / (band * pairs) * band,
              left = row_tiles - first, height = left < band ? left : band, at = i - first * pairs;
    return {at / height * kWidePeers + rank, (first + at % height) * tile_rows};
  }
};

#ifdef FORETOKEN_WARPGROUPS

// With three warpgroups that multiply, each has registers for two sums of 128 rows; of two, for more.
template <class T> constexpr int worker_registers() { return T::kGroups > 2 ? 160 : 232; }
template <class T> constexpr int spare_registers() { return T::kGroups > 2 ? 32 : 40; }

// The slices' products, added in order. Integers are not sliced.
template <class T, RunFold kFold, bool kSliced>
__device__ void add_slices(BoxSums<T>& sums, Folded<T, kFold> (&sum)[T::kRows / 2], const BoxWork& a,
                           const LaneOutputs& outputs, int r0, bool leads) {
  if constexpr (!kSliced) {
    add_slice<T, kFold>(sums, sum, a, outputs, r0, leads);
  } else {
    Folded<T, kFold> slice[T::kRows / 2] = {};  // else its registers are kept for the whole kernel
    for (int s = 0; s < a.slices; ++s) {
      add_slice<T, kFold>(sums, slice, a, outputs, r0, leads && s == 0);
#pragma unroll
      for (int n = 0; n < T::kRows / 2; ++n) sum[n] = s == 0 ? slice[n] : sum[n] + slice[n];
    }
  }
}

// A warp's part of all tiles of its block. Of two warpgroups the second begins each tile one box behind the first:
// while one adds or writes sums, the tensor cores then multiply for the other. The second waits for a count that the
// first can be ahead of by one at most, so this needs tiles of as many boxes as the ring has stages.
template <class T, RunFold kFold, bool kSliced> __device__ void multiply_tiles(const BoxWork& a, const WideOrder& order,
                                                                               const BoxRing<T>& ring, float* staging,
                                                                               int warp, int lane) {
  const int first = int(blockIdx.x) / kWidePeers, stride = int(gridDim.x) / kWidePeers;
  const bool follows = T::kGroups == 2 && a.slices * a.slice_boxes() >= T::kStages;
  wait_for_previous_kernels();
  BoxSums<T> sums(ring, warp / 4);
  WideOutput<T, kFold> output(a.to, staging);
  for (int i = first, round = 0; i < order.count(); i += stride, ++round) {
    const TilePlace at = order(i);
    output.begin(at);
    if (follows && warp / 4 == 1) wait_barrier(ring.lead(), round & 1);
    Folded<T, kFold> sum[T::kRows / 2];
    add_slices<T, kFold, kSliced>(sums, sum, a, lane_outputs<T>(a.to, at.tile, warp, lane), at.row,
                                  follows && warp / 4 == 0);
    output.write(sum);
  }
}

// Cluster c computes pairs c, c + clusters, ... of the order's tiles; each block one tile of a pair.
template <class T, RunFold kFold, bool kSliced> __global__ void __launch_bounds__(T::kThreads, 1)
    wide_kernel(const __grid_constant__ BoxWork a, WideOrder order, bool once) {
  extern __shared__ unsigned char shared[];
  __shared__ std::uint64_t barriers[T::kBarriers];
  const int warp = int(threadIdx.x) / 32, lane = int(threadIdx.x) % 32;
  constexpr int kRegisters = worker_registers<T>(), kSpared = spare_registers<T>();
  static_assert(32 * T::kWorkers * kRegisters + 128 * kSpared <= 65536 / T::kThreads / 8 * 8 * T::kThreads);
  order.rank = int(blockIdx.x) % kWidePeers;
  let_next_kernel_start();
  const BoxRing<T> ring(shared, barriers);
  if (warp >= T::kWorkers) {
    release_registers<kSpared>();
    if (warp == T::kWorkers && lane == 0) {
      const int first = int(blockIdx.x) / kWidePeers, stride = int(gridDim.x) / kWidePeers;
      ring.request(a.w, a.x, {first, stride, order.count(), 0, a.slices * a.slice_boxes(), a.to.gated},
                   once ? read_once() : read_sometimes(), order.rank, order);
    }
    __syncwarp();
  } else {
    acquire_registers<kRegisters>();
    auto* const staging = reinterpret_cast<float*>(shared + (ring.at(T::kStages) - shared_address(shared)));
    multiply_tiles<T, kFold, kSliced>(a, order, ring, staging, warp, lane);
  }
  sync_cluster();  // the other block may still arrive at this block's barriers
}

#else
template <class T, RunFold kFold, bool kSliced>
__global__ void wide_kernel(const __grid_constant__ BoxWork, WideOrder, bool) {}
#endif

// ---- the host's side ----

template <class T, RunFold kFold, bool kSliced>
void launch_wide(const CudaBackend& backend, BoxWork& work, const Tensor& x, const Tensor& matrix) {
  matrix_map(work.w, matrix, T::kOuts, work.to.gated);
  plain_map(work.x, x, T::kRows / kWidePeers);
  const WideOrder order{int(blocks_for(matrix.dim(0), kWidePeers * T::kOuts)), int(blocks_for(work.to.rows, T::kRows)),
                        T::kRows};
  const int clusters = std::clamp(backend.multiprocessors() / kWidePeers, 1, order.count());
  launch_kernel("a product", backend.cuda_stream(),
                {dim3(unsigned(kWidePeers * clusters)), T::kThreads, std::size_t(T::kShared), kWidePeers,
                 backend.dependent_launch()},
                wide_kernel<T, kFold, kSliced>, work, order, order.row_tiles == 1);
}

// A tile of the kernel: 64 outputs for each warpgroup, rows.
struct WideShape {
  int groups, rows;
};

// Estimated microseconds on an H200. A box takes the time of its products, or of its traffic through shared memory at
// 128 bytes a cycle; writing a tile's sums takes a cycle for ten, the kernel's start and the first boxes 5 us.
inline double wide_cost(const CudaBackend& backend, const WideShape& shape, double rows, double out, double boxes) {
  const double outs = 64 * shape.groups, pairs = std::ceil(out / (kWidePeers * outs)) * std::ceil(rows / shape.rows),
               waves = std::ceil(pairs / std::max(1, backend.multiprocessors() / kWidePeers));
  const double passed = shape.groups * (8192.0 + 128 * shape.rows) + 128 * (outs + shape.rows),
               products = outs * shape.rows * kBoxBytes / 4096;
  return 5 + waves * (boxes * std::max(products, passed / 128) + outs * shape.rows / 10) / 1750;
}

struct WideWay {
  WideShape shape;
  void (*launch)(const CudaBackend&, BoxWork&, const Tensor&, const Tensor&);
};
template <class N, RunFold kFold, bool kSliced, int kGroups, int kRows>
constexpr WideWay kWideWay = {{kGroups, kRows}, launch_wide<WideTile<N, kRows, 64 * kGroups>, kFold, kSliced>};

inline const WideWay& fastest_way(const CudaBackend& backend, std::span<const WideWay> ways, std::int64_t rows,
                                  std::int64_t out, std::int64_t boxes) {
  const auto cost = [&](const WideWay& w) {
    return wide_cost(backend, w.shape, double(rows), double(out), double(boxes));
  };
  return *std::min_element(ways.begin(), ways.end(),
                           [&](const WideWay& a, const WideWay& b) { return cost(a) < cost(b); });
}

}  // namespace foretoken
