// y = x W^T + b for at most 64 rows. W bf16 [out, in], x bf16 [rows, in], sums in f32. Bytes: the matrix once, out * in
// * 2, from memory; x once for every 128 to 224 outputs, from L2. Operations: 2 * rows * out * in. One warp of a block
// copies boxes of 64 inputs by TMA, several ahead, to a ring in shared memory; the others multiply them. The order of
// sums does not depend on the number of rows, so a result has the bits of the other routes. Boxes of the matrix are
// requested before the kernel waits for the previous kernels: the multiprocessors hold up to 26 MB by then. Where
// splits_of() gives several slices, they are in the blocks of a cluster; each block adds a share of the rows, slices in
// order, from the shared memory of all. Otherwise a block computes one tile after another.
#include "kernels/cuda/products/product_maps.cuh"
#include "kernels/cuda/products/products.cuh"
#include "kernels/cuda/products/tile_output.cuh"
#include "kernels/cuda/products/tile_product.cuh"
#include "kernels/cuda/products/tile_ring.cuh"

namespace foretoken {
namespace {

constexpr int kMostOuts = 224;  // of a block

#ifdef FORETOKEN_WARPGROUPS

// Block i computes slice i % slices of tile i / slices; the slices of a tile are a cluster.
template <class T> __global__ void __launch_bounds__(T::kThreads, T::kBlocks)
    sliced_kernel(const __grid_constant__ TileWork a) {
  extern __shared__ unsigned char shared[];
  __shared__ std::uint64_t barriers[2 * T::kStages];
  const int warp = int(threadIdx.x) / 32, lane = int(threadIdx.x) % 32, slice = int(blockIdx.x) % a.slices,
            tile = int(blockIdx.x) / a.slices;
  let_next_kernel_start();
  const TileRing<T> ring(shared, barriers);
  float sum[T::kRows / 2];
  if (warp == T::kWorkers) {
    if (lane == 0) ring.request(a.w, a.x, {tile, a.tiles, tile + 1, slice * a.boxes * kBoxInputs, a.boxes, false});
    __syncwarp();
  } else {
    TileSums<T>(ring, warp / 4).add_up(sum, a.boxes);
  }
  wait_for_previous_kernels();
  Shares<T> shares(a, ring.memory, slice, tile * T::kOuts);
  shares.begin();
  __syncthreads();  // the ring is no longer read, and all requested copies are complete
  if (warp < T::kOuts / 16)
    Shares<T>::put(reinterpret_cast<float*>(shared + (ring.memory - shared_address(shared))), sum, warp, lane);
  sync_cluster();
  shares.write();
  sync_cluster();  // other blocks may still read this block's shared memory
}

// One slice: a block computes tiles blockIdx.x, blockIdx.x + gridDim.x, ...
template <class T> __global__ void __launch_bounds__(T::kThreads, T::kBlocks)
    whole_kernel(const __grid_constant__ TileWork a) {
  extern __shared__ unsigned char shared[];
  __shared__ std::uint64_t barriers[2 * T::kStages];
  const int warp = int(threadIdx.x) / 32, lane = int(threadIdx.x) % 32, first = int(blockIdx.x),
            stride = int(gridDim.x);
  let_next_kernel_start();
  const TileRing<T> ring(shared, barriers);
  if (warp == T::kWorkers) {
    if (lane == 0) ring.request(a.w, a.x, {first, stride, a.tiles, 0, a.boxes, a.gated});
    return;
  }
  wait_for_previous_kernels();
  TileSums<T> sums(ring, warp / 4);
  float sum[T::kRows / 2];
  for (int tile = first; tile < a.tiles; tile += stride) {
    sums.add_up(sum, a.boxes);
    if (warp >= T::kOuts / 16) continue;  // outputs after the box are computed too, but not used
    if (a.gated)
      write_gated<T>(a, sum, tile * T::kOuts / 2 + warp * 8 + lane / 4, lane);
    else
      write_sums<T>(a, sum, tile * T::kOuts + warp * 16, lane);
  }
}

#else
template <class T> __global__ void sliced_kernel(const __grid_constant__ TileWork) {}
template <class T> __global__ void whole_kernel(const __grid_constant__ TileWork) {}
#endif

// ---- the host's side ----

// T is the tile of a kernel, sliced_kernel or whole_kernel.
template <class T> void launch(const CudaBackend& backend, TileWork& work, const Tensor& x, const Tensor& matrix,
                               void (*kernel)(TileWork)) {
  if (work.gated)
    gated_map(work.w, matrix, T::kOuts);
  else
    plain_map(work.w, matrix, T::kOuts);
  plain_map(work.x, x, T::kRows);
  work.tiles = int(blocks_for(matrix.dim(0), T::kOuts));
  Grid grid{dim3(unsigned(work.tiles * work.slices)), T::kThreads, std::size_t(T::kShared), work.slices,
            backend.dependent_launch()};
  if (work.slices == 1) grid.blocks.x = std::min(grid.blocks.x, unsigned(T::kBlocks * backend.multiprocessors()));
  launch_kernel("a product", backend.cuda_stream(), grid, kernel, work);
}

template <int kRows, int kOuts = 128, int kBlocks = 2>
void launch_rows(const CudaBackend& backend, TileWork& work, const Tensor& x, const Tensor& matrix) {
  using T = Tile<kRows, kOuts, kBlocks>;
  launch<T>(backend, work, x, matrix, work.slices == 1 ? whole_kernel<T> : sliced_kernel<T>);
}

// Outputs of a block where each multiprocessor has one block with a deep ring, and all run at once. Clusters of four
// and eight such blocks leave a twelfth of the multiprocessors unused (an H200 has 132, in groups of 16 and 18).
std::int64_t outs_at_once(const CudaBackend& backend, std::int64_t out, int slices) {
  const std::int64_t blocks = slices == 1 ? backend.multiprocessors() : backend.multiprocessors() * 10 / 11 / slices;
  return blocks_for(out, std::max<std::int64_t>(1, blocks));
}

// With many rows, two blocks on a multiprocessor have rings that are too shallow: the matrix is read at 3.5 TB/s at 64
// rows, but at more than 4 with one block and a ring of twice the size. A gated product's tiles are of the whole matrix
// too: one round of 224 for 8b's gate and up, not two of 128 (steps of 24 to 64 rows 1 % slower).
template <int kRows>
void launch_many(const CudaBackend& backend, TileWork& work, const Tensor& x, const Tensor& matrix) {
  constexpr int kFew = 4;  // with so few boxes a deep ring has no use
  const std::int64_t outs = outs_at_once(backend, matrix.dim(0), work.slices);
  if (work.boxes <= kFew || outs > kMostOuts)
    launch_rows<kRows>(backend, work, x, matrix);
  else if (outs <= 128)
    launch_rows<kRows, 128, 1>(backend, work, x, matrix);
  else if (outs <= 144)
    launch_rows<kRows, 144, 1>(backend, work, x, matrix);
  else if (outs <= 208)
    launch_rows<kRows, 208, 1>(backend, work, x, matrix);
  else
    launch_rows<kRows, kMostOuts, 1>(backend, work, x, matrix);
}

void launch(const CudaBackend& backend, TileWork& work, const Tensor& x, const Tensor& matrix) {
  if (work.rows <= 8)
    launch_rows<8>(backend, work, x, matrix);
  else if (work.rows <= 16)
    launch_rows<16>(backend, work, x, matrix);
  else if (work.rows <= 32)
    launch_many<32>(backend, work, x, matrix);
  else
    launch_many<64>(backend, work, x, matrix);
}

bool takes(const CudaBackend& backend, const Tensor& x, const Tensor& matrix) {
  const int slices = splits_of(matrix.dim(0), matrix.dim(1));
  return backend.warpgroups() && all_fit(kProductTiles, backend.shared_memory()) && x.dim(0) <= kTileRows &&
         matrix.dtype() == DType::bf16 && x.dtype() == DType::bf16 && aligned(x, 16) && aligned(matrix, 16) &&
         matrix.dim(1) % (kBoxInputs * slices) == 0 && map_encoder() != nullptr;
}

TileWork work_of(const Tensor& y, const Tensor& x, const Tensor& matrix) {
  TileWork a = {};
  a.out = int(y.dim(1)), a.rows = int(x.dim(0)), a.slices = splits_of(matrix.dim(0), matrix.dim(1)),
  a.boxes = int(matrix.dim(1)) / a.slices / kBoxInputs;
  if (y.dtype() == DType::f32)
    a.y = y.data<float>();
  else
    a.y_bf16 = y.data<Bf16>();
  a.y_stride = y.row_stride();
  return a;
}

}  // namespace

bool tiles_at_once(const CudaBackend& backend, std::int64_t out, std::int64_t in) {
  return outs_at_once(backend, out, splits_of(out, in)) <= kMostOuts;
}

bool can_tile(const CudaBackend& backend, const Tensor& y, const Tensor& x, const Tensor& matrix) {
  return takes(backend, x, matrix) && matrix.dim(0) % 4 == 0 && aligned(y, 4 * size_of(y.dtype()));
}

void tile_product(const CudaBackend& backend, const Tensor& y, const Tensor& x, const Tensor& matrix,
                  const Tensor& bias, bool adds) {
  TileWork a = work_of(y, x, matrix);
  if (bias) a.bias = bias.data<float>();
  a.adds = adds;
  launch(backend, a, x, matrix);
}

bool can_tile_gated(const CudaBackend& backend, const Tensor& x, const Tensor& matrix, const Tensor& bias) {
  return !bias && takes(backend, x, matrix) && matrix.dim(0) % 16 == 0 && splits_of(matrix.dim(0), matrix.dim(1)) == 1;
}

void gated_tile_product(const CudaBackend& backend, const Tensor& y, const Tensor& x, const Tensor& matrix) {
  TileWork a = work_of(y, x, matrix);
  a.gated = true;
  launch(backend, a, x, matrix);
}

}  // namespace foretoken
