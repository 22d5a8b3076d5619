// The arguments of a tile product, and how its results are written: y = sums + bias, y += that, or y = silu(gate) * up,
// from whole sums or from slices in the blocks of a cluster. A lane holds the sums that TileSums of tile_ring.cuh gives
// it. This header must not know how they are computed.
#pragma once
#include <cuda.h>

#include "kernels/cuda/elementwise/elementwise.cuh"
#include "kernels/cuda/instructions/warpgroups.cuh"

namespace foretoken {

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

#endif

}  // namespace foretoken
