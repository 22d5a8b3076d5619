// y = x W^T + b for at most 64 rows, W packed, x bf16 [rows, in], sums in f32. Bytes: the codes once, from memory; x
// once for every 144 or 224 outputs, from L2: at 64 rows as many as codes of 4 bits. Operations: 2 * rows * out * in,
// and some 2 to 5 instructions for each weight. One warp of a block copies cells and boxes of x to a ring, several
// stages ahead; the others unpack codes to registers and multiply them by the rows: wgmma with its first operand in
// registers, inputs ascending in one chain, so that a result has the bits of the other routes. While the products of 64
// inputs run, the next 64 are unpacked. Slices of splits_of() are in the blocks of a cluster, as in tile_kernel.cuh.
#include "kernels/cuda/products/coded_ring.cuh"
#include "kernels/cuda/products/coded_tile.cuh"
#include "kernels/cuda/products/product_maps.cuh"

namespace foretoken {
namespace {

#ifdef FORETOKEN_WARPGROUPS

// The tiles of a block, whole.
template <class T, class U>
__device__ void write_tiles(const CodedWork& a, CodedSums<T, U>& sums, int first, int stride, int warp, int lane) {
  wait_for_previous_kernels();
  float sum[T::kRows / 2];
  for (int tile = first; tile < a.tiles; tile += stride) {
    sums.add_up(sum);
    const LaneOutputs outputs = lane_outputs<T>(a.to, tile, warp, lane);
    if (warp < T::kOuts / 16) write_sums<T>(a.to, sum, outputs.o, outputs.other, lane);
  }
}

// One slice: a block computes tiles blockIdx.x, blockIdx.x + gridDim.x, ... More: block i computes slice i % slices of
// tile i / slices, and the slices of a tile are a cluster.
template <class T, class U> __global__ void __launch_bounds__(T::kThreads, 1)
    coded_kernel(const __grid_constant__ CodedWork a) {
  extern __shared__ unsigned char shared[];
  __shared__ std::uint64_t barriers[2 * CodedTileSize::kMostStages];
  __shared__ float numbers[16];
  static_assert(sizeof barriers + sizeof numbers == CodedTileSize::kStaticBytes);
  if (U::kCode == Code::table && threadIdx.x < 16) numbers[threadIdx.x] = a.layout.numbers[threadIdx.x];
  const int warp = int(threadIdx.x) / 32, lane = int(threadIdx.x) % 32, slices = a.slices,
            slice = slices == 1 ? 0 : int(blockIdx.x) % slices, first = int(blockIdx.x) / slices,
            stride = slices == 1 ? int(gridDim.x) : a.tiles;
  let_next_kernel_start();
  const CodedRing<T> ring(a, shared, barriers);
  if (warp >= T::kWorkers) {
    release_registers<T::kSpared>();
    if (warp == T::kWorkers) ring.request(first, stride, slice * a.pieces);
    __syncwarp();
    if (slices > 1) sync_cluster(), sync_cluster();
    return;
  }
  acquire_registers<T::kRegisters>();
  CodedSums<T, U> sums(a, ring, shared_address(numbers), warp, lane);
  if (slices == 1) return write_tiles<T>(a, sums, first, stride, warp, lane);
  float sum[T::kRows / 2];
  sums.add_up(sum);
  wait_for_previous_kernels();
  Shares<T> shares(a.to, ring.memory(), slice, slices, first * T::kOuts);
  shares.begin();
  sync_workers<T>();  // the ring is no longer read, and all requested copies are complete
  if (warp < T::kOuts / 16)
    put_sums<T>(reinterpret_cast<float*>(shared + (ring.memory() - shared_address(shared))), sum, warp, lane);
  sync_cluster();
  shares.write();
  sync_cluster();  // other blocks may still read this block's shared memory
}

#else
template <class T, class U> __global__ void coded_kernel(const __grid_constant__ CodedWork) {}
#endif

// ---- the host's side ----

template <class T> void launch(const CudaBackend& backend, CodedWork& work, const Tensor& x, const PackedMatrix& m) {
  plain_map(work.x, x, T::kRows);
  work.tiles = int(blocks_for(m.out, T::kOuts));
  const std::int64_t cell = m.layout.cell;
  work.stage = int(T::kSize.stage(cell));
  work.stages = int(T::kSize.stages(cell, backend.shared_memory()));
  Grid grid{dim3(unsigned(work.tiles * work.slices)), T::kThreads, std::size_t(T::kSize.bytes(cell, work.stages)),
            work.slices, backend.dependent_launch()};
  if (work.slices == 1) grid.blocks.x = std::min(grid.blocks.x, unsigned(backend.multiprocessors()));
  with_unpack(m.layout,
              [&]<class U>(U) { launch_kernel("a product", backend.cuda_stream(), grid, coded_kernel<T, U>, work); });
}

template <int kRows>
void launch_rows(const CudaBackend& backend, CodedWork& work, const Tensor& x, const PackedMatrix& m) {
  if (m.out <= 144 * blocks_at_once(backend, work.slices))
    launch<CodedTile<kRows, 144>>(backend, work, x, m);
  else
    launch<CodedTile<kRows, 224>>(backend, work, x, m);
}

}  // namespace

bool can_tile_codes(const CudaBackend& backend, const PackedMatrix& m) {
  const bool fits = std::all_of(std::begin(kCodedTiles), std::end(kCodedTiles), [&](const CodedTileSize& t) {
    return t.stages(m.layout.cell, backend.shared_memory()) >= CodedTileSize::kFewestStages;
  });
  return backend.warpgroups() && fits && m.in % (kCellInputs * splits_of(m.out, m.in)) == 0 && map_encoder() != nullptr;
}

void coded_tile_product(const CudaBackend& backend, const Epilogue& to, const Tensor& x, const PackedMatrix& m) {
  CodedWork a = {};
  a.to = to, a.slices = splits_of(m.out, m.in), a.cells = m.data(), a.layout = m.layout;
  a.pieces = int(m.in) / kCellInputs / a.slices;
  if (to.rows <= 32)
    launch_rows<32>(backend, a, x, m);
  else
    launch_rows<64>(backend, a, x, m);
}

}  // namespace foretoken
