// y = x W^T + b for at most 64 rows. W bf16 [out, in], x bf16 [rows, in], sums in f32. Bytes: the matrix once, out * in
// * 2, from memory; x once for every 128 to 224 outputs, from L2. Operations: 2 * rows * out * in. One warp of a block
// copies boxes of 64 inputs by TMA, several ahead, to a ring in shared memory; the others multiply them. The order of
// sums does not depend on the number of rows, so a result has the bits of the other routes. Boxes of the matrix are
// requested before the kernel waits for the previous kernels: the multiprocessors hold up to 26 MB by then. Where
// splits_of() gives several slices, they are in the blocks of a cluster; each block adds a share of the rows, slices in
// order, from the shared memory of all. Otherwise a block computes one tile after another.
#include "kernels/cuda/elementwise/elementwise.cuh"
#include "kernels/cuda/products/product_maps.cuh"
#include "kernels/cuda/products/products.cuh"
#include "kernels/cuda/products/tile_product.cuh"

namespace foretoken {
namespace {

constexpr int kMostOuts = 224;  // of a block

struct TileWork {
  CUtensorMap w, x;
  int out, rows, slices, boxes, tiles;  // boxes: per slice
  const float* bias;
  float* y;  // one of y and y_bf16
  Bf16* y_bf16;
  std::int64_t y_stride;
  bool adds, gated;
};

#ifdef FORETOKEN_WARPGROUPS

// Four numbers from the shared memory of block `rank` of the cluster.
__device__ inline float4 load_four_of(unsigned address, int rank) {
  float4 v;
  asm volatile(
      "{\n.reg .b32 there;\nmapa.shared::cluster.u32 there, %4, %5;\nld.shared::cluster.v4.f32 {%0, %1, %2, %3}, "
      "[there];\n}"
      : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
      : "r"(address), "r"(rank)
      : "memory");
  return v;
}

// ---- slices in the blocks of a cluster ----

// The share of a block in the sums of its cluster, [rows, kOuts] in each block's shared memory, four outputs at a time.
template <class T> class Shares {
 public:
  static constexpr int kPitch = T::kOuts + 4;  // so that one write of a warp covers 32 banks
  static_assert(T::kStages * T::kBytes >= T::kRows * kPitch * 4);

  __device__ Shares(const TileWork& a, unsigned sums, int slice, int o0) : a_(a), sums_(sums), o0_(o0) {
    const int share = (a.rows + a.slices - 1) / a.slices;
    first_ = slice * share;
    count_ = max(0, min(a.rows - first_, share)) * kFours;
  }

  static __device__ void put(float* sums, const float (&sum)[T::kRows / 2], int warp, int lane) {
    float* const to = sums + lane % 4 * 2 * kPitch + warp * 16 + lane / 4;
#pragma unroll
    for (int n = 0; n < T::kRows / 8; ++n)
#pragma unroll
      for (int j = 0; j < 4; ++j) to[(8 * n + j % 2) * kPitch + j / 2 * 8] = sum[4 * n + j];
  }

  // Loads the previous y of the first items of this thread, while other blocks may still compute.
  __device__ void begin() {
#pragma unroll
    for (int n = 0; n < kAhead; ++n)
      if (a_.adds && there(n)) before_[n] = __ldcg(reinterpret_cast<const float4*>(a_.y + offset(n)));
  }
  __device__ void write() {
#pragma unroll
    for (int n = 0; n < kAhead; ++n)
      if (there(n)) finish(n, before_[n]);
    for (int n = kAhead; there(n); ++n)
      finish(n, a_.adds ? __ldcg(reinterpret_cast<const float4*>(a_.y + offset(n))) : float4{});
  }

 private:
  static constexpr int kFours = T::kOuts / 4, kAhead = 2;
  __device__ int item(int n) const { return int(threadIdx.x) + n * T::kThreads; }
  __device__ int row(int n) const { return first_ + item(n) / kFours; }
  __device__ int column(int n) const { return item(n) % kFours * 4; }
  __device__ bool there(int n) const { return item(n) < count_ && o0_ + column(n) < a_.out; }
  __device__ std::int64_t offset(int n) const { return row(n) * a_.y_stride + o0_ + column(n); }

  // Adds the slices in order, then the bias, then the previous y.
  __device__ void finish(int n, float4 before) {
    const unsigned at = sums_ + unsigned((row(n) * kPitch + column(n)) * 4);
    float4 part[8];
#pragma unroll
    for (int s = 0; s < 8; ++s)
      if (s < a_.slices) part[s] = load_four_of(at, s);
    float4 v = part[0];
#pragma unroll
    for (int s = 1; s < 8; ++s)
      if (s < a_.slices) v.x += part[s].x, v.y += part[s].y, v.z += part[s].z, v.w += part[s].w;
    const float* const b = a_.bias + o0_ + column(n);
    if (a_.bias != nullptr) v.x += b[0], v.y += b[1], v.z += b[2], v.w += b[3];
    if (a_.y == nullptr)
      store_four(a_.y_bf16 + offset(n), v);
    else if (a_.adds)
      store_four(a_.y + offset(n), {before.x + v.x, before.y + v.y, before.z + v.z, before.w + v.w});
    else
      store_four(a_.y + offset(n), v);
  }

  const TileWork& a_;
  unsigned sums_;
  int o0_, first_, count_;
  float4 before_[kAhead] = {};
};

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

// ---- whole sums ----

template <class T> __device__ void write_sums(const TileWork& a, const float (&sum)[T::kRows / 2], int o0, int lane) {
#pragma unroll
  for (int n = 0; n < T::kRows / 8; ++n)
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int r = 8 * n + lane % 4 * 2 + j % 2, o = o0 + lane / 4 + j / 2 * 8;
      if (r >= a.rows || o >= a.out) continue;
      const std::int64_t at = r * a.y_stride + o;
      const float v = a.bias != nullptr ? sum[4 * n + j] + a.bias[o] : sum[4 * n + j];
      if (a.y == nullptr)
        from_float(a.y_bf16[at], v);
      else
        a.y[at] = a.adds ? a.y[at] + v : v;
    }
}
// Outputs eight apart are the gate and up values of one result.
template <class T> __device__ void write_gated(const TileWork& a, const float (&sum)[T::kRows / 2], int o, int lane) {
  const auto rounded = [](float v) { return __bfloat162float(__float2bfloat16_rn(v)); };
#pragma unroll
  for (int n = 0; n < T::kRows / 8; ++n)
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const int r = 8 * n + lane % 4 * 2 + j;
      if (r < a.rows && o < a.out)
        from_float(a.y_bf16[r * a.y_stride + o], silu(rounded(sum[4 * n + j])) * rounded(sum[4 * n + 2 + j]));
    }
}

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
