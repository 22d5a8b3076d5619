// How the results of a tile are written, from whole sums or from slices in the blocks of a cluster. A lane holds the
// sums that BoxSums of box_ring.cuh gives it: T is a BoxTile or a CodedTile. This header must not know how they are
// computed.
#pragma once
#include "kernels/cuda/products/box_products.cuh"
#include "kernels/cuda/products/epilogue.cuh"

namespace foretoken {

#ifdef FORETOKEN_WARPGROUPS

// Synchronizes the warps that multiply.
template <class T> __device__ inline void sync_workers() {
  asm volatile("bar.sync 1, %0;" ::"n"(32 * T::kWorkers) : "memory");
}

// Writes a lane's sums to [rows, kPitch] in shared memory.
template <class T, class S> __device__ void put_sums(S* sums, const S (&sum)[T::kRows / 2], int warp, int lane) {
  S* const to = sums + lane % 4 * 2 * T::kPitch + warp * 16 + lane / 4;
#pragma unroll
  for (int n = 0; n < T::kRows / 8; ++n)
#pragma unroll
    for (int j = 0; j < 4; ++j) to[(8 * n + j % 2) * T::kPitch + j / 2 * 8] = sum[4 * n + j];
}

// The number that a tile's sum stands for: a bf16 product's own.
template <class T, class S> __device__ float result_of(const Epilogue& to, S sum, int r, int o) {
  if constexpr (std::is_same_v<typename T::Numbers, Bf16Numbers>)
    return sum;
  else
    return to.scaled(sum, r, o);
}

// ---- slices in the blocks of a cluster ----

template <class S> struct FourOf;
template <> struct FourOf<float> {
  using Type = float4;
};
template <> struct FourOf<int> {
  using Type = int4;
};

// Four sums from the shared memory of block `rank` of the cluster.
template <class S> __device__ inline typename FourOf<S>::Type load_four_of(unsigned address, int rank) {
  int v[4];
  asm volatile("ld.shared::cluster.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3])
               : "r"(in_block(address, rank))
               : "memory");
  if constexpr (std::is_same_v<S, int>)
    return {v[0], v[1], v[2], v[3]};
  else
    return {__int_as_float(v[0]), __int_as_float(v[1]), __int_as_float(v[2]), __int_as_float(v[3])};
}

// The share of a block in the sums of its cluster, [rows, kPitch] in each block's shared memory, four outputs at a
// time, by its first kWriters threads.
template <class T> class Shares {
 public:
  using Four = typename FourOf<typename T::Sum>::Type;

  __device__ Shares(const Epilogue& to, unsigned sums, int slice, int slices, int o0)
      : to_(to), sums_(sums), slices_(slices), o0_(o0) {
    const int share = (to.rows + slices - 1) / slices;
    first_ = slice * share;
    count_ = max(0, min(to.rows - first_, share)) * kFours;
  }

  // Loads the previous y of the first items of this thread, while other blocks may still compute.
  __device__ void begin() {
#pragma unroll
    for (int n = 0; n < kAhead; ++n)
      if (there(n)) before_[n] = to_.previous_four(row(n), o0_ + column(n));
  }
  __device__ void write() {
#pragma unroll
    for (int n = 0; n < kAhead; ++n)
      if (there(n)) finish(n, before_[n]);
    for (int n = kAhead; there(n); ++n) finish(n, to_.previous_four(row(n), o0_ + column(n)));
  }

 private:
  static constexpr int kFours = T::kOuts / 4, kAhead = 2;
  __device__ int item(int n) const { return int(threadIdx.x) + n * T::kWriters; }
  __device__ int row(int n) const { return first_ + item(n) / kFours; }
  __device__ int column(int n) const { return item(n) % kFours * 4; }
  __device__ bool there(int n) const { return item(n) < count_ && o0_ + column(n) < to_.out; }

  // Adds the slices in order.
  __device__ void finish(int n, float4 before) {
    const unsigned at = sums_ + unsigned((row(n) * T::kPitch + column(n)) * 4);
    Four part[8];
#pragma unroll
    for (int s = 0; s < 8; ++s)
      if (s < slices_) part[s] = load_four_of<typename T::Sum>(at, s);
    Four v = part[0];
#pragma unroll
    for (int s = 1; s < 8; ++s)
      if (s < slices_) v.x += part[s].x, v.y += part[s].y, v.z += part[s].z, v.w += part[s].w;
    const int r = row(n), o = o0_ + column(n);
    to_.write_four(r, o,
                   {result_of<T>(to_, v.x, r, o), result_of<T>(to_, v.y, r, o + 1), result_of<T>(to_, v.z, r, o + 2),
                    result_of<T>(to_, v.w, r, o + 3)},
                   before);
  }

  const Epilogue& to_;
  unsigned sums_;
  int slices_, o0_, first_, count_;
  float4 before_[kAhead] = {};
};

// ---- whole sums ----

// The lane's outputs: o and `other`, eight after it or, where gated, that of the other half.
template <class T, class S>
__device__ void write_sums(const Epilogue& to, const S (&sum)[T::kRows / 2], int o, int other, int lane) {
#pragma unroll
  for (int n = 0; n < T::kRows / 8; ++n)
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const int r = 8 * n + lane % 4 * 2 + j;
      if (r >= to.rows) continue;
      if (to.gated) {
        if (o < to.out)
          to.write_gated(r, o, result_of<T>(to, sum[4 * n + j], r, o), result_of<T>(to, sum[4 * n + 2 + j], r, other));
        continue;
      }
      if (o < to.out) to.write(r, o, result_of<T>(to, sum[4 * n + j], r, o), to.previous(r, o));
      if (other < to.out) to.write(r, other, result_of<T>(to, sum[4 * n + 2 + j], r, other), to.previous(r, other));
    }
}

#endif

}  // namespace foretoken
