// The kernel of a product of many rows, y = x W^T + b, whatever the numbers: wide_product.cu (bf16), rounded_boxes.cu
// (8 bits). Bytes: for every tile of kOuts x kRows its rows of both, mostly from L2. Operations: 2 * rows * out * in,
// which bound the time. A block computes all slices of its tile in sequence and keeps two sums in registers: that of
// the current slice, and that of the slices before it. Two blocks with neighbouring outputs form a cluster: each
// requests half of their rows of x, which are multicast to both. This header must not know which numbers are
// multiplied.
#pragma once
#include <algorithm>
#include <cmath>
#include <span>

#include "kernels/cuda/cuda_backend.cuh"
#include "kernels/cuda/products/box_work.cuh"
#include "kernels/cuda/products/product_maps.cuh"
#include "kernels/cuda/products/tile_output.cuh"

namespace foretoken {

constexpr int kWidePeers = 2;

template <class N, int kRows, int kOuts> using WideTile = BoxTile<N, kRows, kOuts, 1, kWidePeers>;

#ifdef FORETOKEN_WARPGROUPS

// Writes sums from shared memory, four outputs at a time.
template <class T, class S> __device__ void write_wide(const Epilogue& to, const S* sums, int o0, int r0) {
  const int fours = to.gated ? T::kOuts / 8 : T::kOuts / 4, rows = min(T::kRows, to.rows - r0);
  if (to.gated) o0 /= 2;
#pragma unroll 4
  for (int i = int(threadIdx.x); i < rows * fours; i += 32 * T::kWorkers) {
    const int r = i / fours, c = i % fours * 4, o = o0 + c;
    if (o >= to.out) continue;
    const S* const row = sums + r * T::kPitch;
    if (to.gated) {
      const S* const gates = row + c / 8 * 16 + c % 8;
#pragma unroll
      for (int k = 0; k < 4; ++k)
        to.write_gated(r0 + r, o + k, result_of<T>(to, gates[k], r0 + r, o + k),
                       result_of<T>(to, gates[8 + k], r0 + r, to.out + o + k));
      continue;
    }
    const auto v = *reinterpret_cast<const typename FourOf<S>::Type*>(row + c);
    const float4 p = {result_of<T>(to, v.x, r0 + r, o), result_of<T>(to, v.y, r0 + r, o + 1),
                      result_of<T>(to, v.z, r0 + r, o + 2), result_of<T>(to, v.w, r0 + r, o + 3)};
    to.write_four(r0 + r, o, p, to.previous_four(r0 + r, o));
  }
}

// Whether a block has three warpgroups of workers, or keeps three sums: then the requesting ones give up registers.
template <class T, RunFold kFold> constexpr int worker_registers() {
  return T::kGroups > 2 ? 160 : kFold == RunFold::none ? 0 : 240;
}

// The slices' products, added in order. Integers are not sliced.
template <class T, RunFold kFold> __device__ void add_slices(BoxSums<T>& sums, Folded<T, kFold> (&sum)[T::kRows / 2],
                                                             const BoxWork& a, const LaneOutputs& outputs, int r0) {
  if constexpr (std::is_same_v<typename T::Sum, int> || kFold == RunFold::scaled) {
    add_slice<T, kFold>(sums, sum, a, outputs, r0);
  } else {
    Folded<T, kFold> slice[T::kRows / 2];
    for (int s = 0; s < a.slices; ++s) {
      add_slice<T, kFold>(sums, slice, a, outputs, r0);
#pragma unroll
      for (int n = 0; n < T::kRows / 2; ++n) sum[n] = s == 0 ? slice[n] : sum[n] + slice[n];
    }
  }
}

// Block 2 i + j computes tile 2 (i / row_tiles) + j of the outputs, tile i % row_tiles of the rows: blocks that run at
// once share boxes of the matrix, which is read from memory once.
template <class T, RunFold kFold> __global__ void __launch_bounds__(T::kThreads, 1)
    wide_kernel(const __grid_constant__ BoxWork a, int row_tiles, bool once) {
  extern __shared__ unsigned char shared[];
  __shared__ std::uint64_t barriers[2 * T::kStages];
  const int warp = int(threadIdx.x) / 32, lane = int(threadIdx.x) % 32, rank = int(blockIdx.x) % kWidePeers,
            pair = int(blockIdx.x) / kWidePeers, tile = pair / row_tiles * kWidePeers + rank,
            r0 = pair % row_tiles * T::kRows;
  constexpr int kRegisters = worker_registers<T, kFold>(), kSpared = kRegisters == 240 ? 24 : 32;
  static_assert(32 * T::kWorkers * kRegisters + 128 * kSpared <= 65536 / T::kThreads / 8 * 8 * T::kThreads);
  let_next_kernel_start();
  const BoxRing<T> ring(shared, barriers);
  if (warp >= T::kWorkers) {
    if constexpr (kRegisters > 0) release_registers<kSpared>();
    if (warp == T::kWorkers && lane == 0)
      ring.request(a.w, a.x, {tile, a.tiles, tile + 1, 0, a.slices * a.slice_boxes(), r0, a.to.gated},
                   once ? read_once() : read_sometimes(), rank);
    __syncwarp();
    sync_cluster();
  } else {
    if constexpr (kRegisters > 0) acquire_registers<kRegisters>();
    if constexpr (kFold == RunFold::scaled) wait_for_previous_kernels();  // it reads scales of rows
    BoxSums<T> sums(ring, warp / 4);
    Folded<T, kFold> sum[T::kRows / 2];
    add_slices<T, kFold>(sums, sum, a, lane_outputs<T>(a.to, tile, warp, lane), r0);
    wait_for_previous_kernels();
    sync_workers<T>();  // the ring is no longer read, and all requested copies are complete
    auto* const all = reinterpret_cast<Folded<T, kFold>*>(shared + (ring.memory - shared_address(shared)));
    put_sums<T>(all, sum, warp, lane);
    sync_workers<T>();
    write_wide<T>(a.to, all, tile * T::kOuts, r0);
    sync_cluster();  // the other block may still arrive at this block's barriers
  }
}

#else
template <class T, RunFold kFold> __global__ void wide_kernel(const __grid_constant__ BoxWork, int, bool) {}
#endif

// ---- the host's side ----

template <class T, RunFold kFold>
void launch_wide(const CudaBackend& backend, BoxWork& work, const Tensor& x, const Tensor& matrix) {
  matrix_map(work.w, matrix, T::kOuts, work.to.gated);
  plain_map(work.x, x, T::kRows / kWidePeers);
  const int pairs = int(blocks_for(matrix.dim(0), kWidePeers * T::kOuts));
  work.tiles = kWidePeers * pairs;
  const unsigned row_tiles = blocks_for(work.to.rows, T::kRows), blocks = unsigned(kWidePeers * pairs) * row_tiles;
  // All blocks run at once, read the matrix at the same time, and do not read it again.
  const bool once = int(blocks) <= backend.multiprocessors();
  launch_kernel("a product", backend.cuda_stream(),
                {dim3(blocks), T::kThreads, std::size_t(T::kShared), kWidePeers, backend.dependent_launch()},
                wide_kernel<T, kFold>, work, int(row_tiles), once);
}

// A tile of the kernel: 64 outputs for each warpgroup, rows.
struct WideShape {
  int groups, rows;
};

// Estimated microseconds on an H200, within about 15 % of the measured time of the sliced bf16 products of 1B and 8B
// models at 192 to 2048 rows; numbers of 8 bits take half the boxes. A box takes the time of its products, or of its
// traffic through shared memory at 128 bytes a cycle; the first boxes and the last sums take 8 us.
inline double wide_cost(const CudaBackend& backend, const WideShape& shape, double rows, double out, double boxes) {
  const double tiles = kWidePeers * std::ceil(out / (kWidePeers * 64 * shape.groups)) * std::ceil(rows / shape.rows),
               waves = std::ceil(tiles / backend.multiprocessors());
  const double passed = shape.groups * (8192.0 + 128 * shape.rows) + 128.0 * (64 * shape.groups + shape.rows);
  return waves * (8 + boxes * std::max(2.0 * shape.groups * shape.rows, passed / 128) / 1750);
}

struct WideWay {
  WideShape shape;
  void (*launch)(const CudaBackend&, BoxWork&, const Tensor&, const Tensor&);
};
inline const WideWay& fastest_way(const CudaBackend& backend, std::span<const WideWay> ways, std::int64_t rows,
                                  std::int64_t out, std::int64_t boxes) {
  const auto cost = [&](const WideWay& w) {
    return wide_cost(backend, w.shape, double(rows), double(out), double(boxes));
  };
  return *std::min_element(ways.begin(), ways.end(),
                           [&](const WideWay& a, const WideWay& b) { return cost(a) < cost(b); });
}

}  // namespace foretoken
