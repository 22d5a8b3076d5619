// The kernels of products of at most 64 rows: sums over split-K slices in the blocks of a cluster, or whole sums, and
// how they are written. This header must not know which product takes which.
#pragma once
#include "kernels/cuda/elementwise/elementwise.cuh"
#include "kernels/cuda/products/product_maps.cuh"

namespace foretoken {

struct TileWork {
  CUtensorMap w, x;
  int out, rows, slices, boxes, tiles;  // boxes of a slice
  const float* bias;
  float* y;  // one of the two
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
  static constexpr int kPitch = T::kOuts + 4;  // what a warp writes at once lies in 32 banks
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

  // What y was, of the first items of this thread; all blocks may still be at work.
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

  // Slices in order, then the bias, then what was there.
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
  let_later_start();
  const TileRing<T> ring(shared, barriers);
  float sum[T::kRows / 2];
  if (warp == T::kWorkers) {
    if (lane == 0) ring.ask(a.w, a.x, {tile, a.tiles, tile + 1, slice * a.boxes * kBoxInputs, a.boxes, false});
    __syncwarp();
  } else {
    TileSums<T>(ring, warp / 4).add_up(sum, a.boxes);
  }
  wait_for_earlier();
  Shares<T> shares(a, ring.memory, slice, tile * T::kOuts);
  shares.begin();
  __syncthreads();  // nobody reads the ring any more, and all that was asked for has come
  if (warp < T::kOuts / 16)
    Shares<T>::put(reinterpret_cast<float*>(shared + (ring.memory - shared_address(shared))), sum, warp, lane);
  meet_cluster();
  shares.write();
  meet_cluster();  // the others may still read here
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
// The outputs that lie eight apart are gate and up of one.
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
  let_later_start();
  const TileRing<T> ring(shared, barriers);
  if (warp == T::kWorkers) {
    if (lane == 0) ring.ask(a.w, a.x, {first, stride, a.tiles, 0, a.boxes, a.gated});
    return;
  }
  wait_for_earlier();
  TileSums<T> sums(ring, warp / 4);
  float sum[T::kRows / 2];
  for (int tile = first; tile < a.tiles; tile += stride) {
    sums.add_up(sum, a.boxes);
    if (warp >= T::kOuts / 16) continue;  // what lies behind the box is multiplied too, and nobody's
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

}  // namespace foretoken
