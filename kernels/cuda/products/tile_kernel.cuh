// The kernels of a product of at most 64 rows, y = x W^T + b, whatever the numbers: tile_product.cu (bf16),
// rounded_boxes.cu (8 bits). Bytes: the matrix once from memory; x once for every 64 to 224 outputs, from L2.
// Operations: 2 * rows * out * in. The order of sums does not depend on the number of rows. Boxes of the matrix are
// requested before the kernel waits for the previous kernels: the multiprocessors hold up to 26 MB by then. This header
// must not know which numbers are multiplied.
#pragma once
#include "kernels/cuda/cuda_backend.cuh"
#include "kernels/cuda/products/box_work.cuh"
#include "kernels/cuda/products/product_maps.cuh"
#include "kernels/cuda/products/tile_output.cuh"

namespace foretoken {

#ifdef FORETOKEN_WARPGROUPS

// Block i computes slice i % slices of tile i / slices; the slices of a tile are a cluster. Each block adds a share of
// the rows, slices in order, from the shared memory of all.
template <class T, RunFold kFold> __global__ void __launch_bounds__(T::kThreads, T::kBlocks)
    sliced_kernel(const __grid_constant__ BoxWork a) {
  extern __shared__ unsigned char shared[];
  __shared__ std::uint64_t barriers[T::kBarriers];
  const int warp = int(threadIdx.x) / 32, lane = int(threadIdx.x) % 32, slice = int(blockIdx.x) % a.slices,
            tile = int(blockIdx.x) / a.slices, boxes = a.slice_boxes();
  let_next_kernel_start();
  const BoxRing<T> ring(shared, barriers);
  Folded<T, kFold> sum[T::kRows / 2];
  if (warp == T::kWorkers) {
    if (lane == 0) ring.request(a.w, a.x, {tile, a.tiles, tile + 1, slice * boxes, boxes}, read_once());
    __syncwarp();
  } else {
    BoxSums<T> sums(ring, warp / 4);
    add_slice<T, kFold>(sums, sum, a, {}, 0);
  }
  wait_for_previous_kernels();
  Shares<T> shares(a.to, ring.memory, slice, a.slices, tile * T::kOuts);
  shares.begin();
  __syncthreads();  // the ring is no longer read, and all requested copies are complete
  if (warp < T::kOuts / 16)
    put_sums<T>(reinterpret_cast<Folded<T, kFold>*>(shared + (ring.memory - shared_address(shared))), sum, warp, lane);
  sync_cluster();
  shares.write();
  sync_cluster();  // other blocks may still read this block's shared memory
}

// One slice: a block computes tiles blockIdx.x, blockIdx.x + gridDim.x, ...
template <class T, RunFold kFold> __global__ void __launch_bounds__(T::kThreads, T::kBlocks)
    whole_kernel(const __grid_constant__ BoxWork a) {
  extern __shared__ unsigned char shared[];
  __shared__ std::uint64_t barriers[T::kBarriers];
  const int warp = int(threadIdx.x) / 32, lane = int(threadIdx.x) % 32, first = int(blockIdx.x),
            stride = int(gridDim.x);
  let_next_kernel_start();
  const BoxRing<T> ring(shared, barriers);
  if (warp == T::kWorkers) {
    if (lane == 0) ring.request(a.w, a.x, {first, stride, a.tiles, 0, a.slice_boxes(), a.to.gated}, read_once());
    return;
  }
  wait_for_previous_kernels();
  BoxSums<T> sums(ring, warp / 4);
  Folded<T, kFold> sum[T::kRows / 2];
  for (int tile = first; tile < a.tiles; tile += stride) {
    const LaneOutputs outputs = lane_outputs<T>(a.to, tile, warp, lane);
    add_slice<T, kFold>(sums, sum, a, outputs, 0);
    if (warp < T::kOuts / 16)  // outputs after the box are computed too, but not used
      write_sums<T>(a.to, sum, outputs.o, outputs.other, lane);
  }
}

#else
template <class T, RunFold kFold> __global__ void sliced_kernel(const __grid_constant__ BoxWork) {}
template <class T, RunFold kFold> __global__ void whole_kernel(const __grid_constant__ BoxWork) {}
#endif

// ---- the host's side ----

template <class T, RunFold kFold>
void launch_tile(const CudaBackend& backend, BoxWork& work, const Tensor& x, const Tensor& matrix) {
  matrix_map(work.w, matrix, T::kOuts, work.to.gated);
  plain_map(work.x, x, T::kRows);
  work.tiles = int(blocks_for(matrix.dim(0), T::kOuts));
  Grid grid{dim3(unsigned(work.tiles * work.slices)), T::kThreads, std::size_t(T::kShared), work.slices,
            backend.dependent_launch()};
  if (work.slices == 1) grid.blocks.x = std::min(grid.blocks.x, unsigned(T::kBlocks * backend.multiprocessors()));
  auto kernel = whole_kernel<T, kFold>;
  if constexpr (kFold != RunFold::scaled)  // which is not sliced
    if (work.slices > 1) kernel = sliced_kernel<T, kFold>;
  launch_kernel("a product", backend.cuda_stream(), grid, kernel, work);
}

// Blocks of `outs` outputs that run at once, one on each multiprocessor. Clusters of four and eight such blocks leave a
// twelfth of the multiprocessors unused (an H200 has 132, in groups of 16 and 18).
inline std::int64_t blocks_at_once(const CudaBackend& backend, int slices) {
  return slices == 1 ? backend.multiprocessors()
                     : std::max<std::int64_t>(1, backend.multiprocessors() * 10 / 11 / slices);
}

}  // namespace foretoken
