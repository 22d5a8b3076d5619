// What a streamed product is told, and its rows of x on their way into shared memory: as they are, normed, or gated.
// This room must not know how the matrix is read.
#pragma once
#include "kernels/cuda/elementwise.cuh"
#include "kernels/cuda/row_norm.cuh"
#include "kernels/cuda/tensor_core.cuh"

namespace foretoken {

enum class StreamInput { bf16, f32, norm, silu };

struct Stream {
  const Bf16* w;
  int out, in, tiles;
  StreamInput kind;
  const void* x;
  std::int64_t x_stride;
  int rows;
  const float* gain;
  float epsilon;
  int slices, slice, local;  // slices, inputs of a slice, slices of one block
  const float* bias;
  float* partials;  // [slices, tiles, NT, 32 lanes, 4]
  int* counters;    // [tiles]
  float* y;         // one of the two
  Bf16* y_bf16;
  std::int64_t y_stride;
  bool adds;
};

// The rows of x, `columns` columns from k0 on, go as bf16 into shared memory, rows `pitch` apart. Called by all threads of a block.

// to(r, i) <- from(r, i) for all rows r and columns i in fours, eight loads at once.
template <class From, class To> __device__ inline void each_four(int rows, int columns, From from, To to) {
  constexpr int kAtOnce = 8;
  const int fours = columns / 4, step = int(blockDim.x), count = rows * fours;
  for (int n = int(threadIdx.x); n < count; n += kAtOnce * step) {
    decltype(from(0, 0)) v[kAtOnce];
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j)
      if (n + j * step < count) v[j] = from((n + j * step) / fours, (n + j * step) % fours * 4);
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j)
      if (n + j * step < count) to((n + j * step) / fours, (n + j * step) % fours * 4, v[j]);
  }
}

__device__ inline uint2 fresh_four(const Bf16* p) { return __ldcg(reinterpret_cast<const uint2*>(p)); }
__device__ inline float4 fresh_four(const float* p) { return __ldcg(reinterpret_cast<const float4*>(p)); }

__device__ inline void load_norm(const Stream& a, int k0, int columns, Bf16* xs, int pitch) {
  __shared__ float partial[8 * 16], inverse[16];
  const float* const x = static_cast<const float*>(a.x);
  inverse_lengths<true>(x, a.x_stride, a.in, a.rows, a.epsilon, partial, inverse);
  each_four(a.rows, columns, [&](int r, int i) { return fresh_four(x + r * a.x_stride + k0 + i); },
            [&](int r, int i, float4 v) {
              const float4 g = load_four(a.gain + k0 + i);
              const float s = inverse[r];
              store_four(xs + r * pitch + i, {normalized(v.x, s, g.x), normalized(v.y, s, g.y), normalized(v.z, s, g.z), normalized(v.w, s, g.w)});
            });
}

__device__ inline void load_silu(const Stream& a, int k0, int columns, Bf16* xs, int pitch) {
  struct Pair {
    uint2 gate, up;
  };
  const Bf16* const x = static_cast<const Bf16*>(a.x) + k0;
  each_four(a.rows, columns, [&](int r, int i) { return Pair{fresh_four(x + r * a.x_stride + i), fresh_four(x + r * a.x_stride + a.in + i)}; },
            [&](int r, int i, Pair p) {
              const float4 g = widened(p.gate), u = widened(p.up);
              store_four(xs + r * pitch + i, {silu(g.x) * u.x, silu(g.y) * u.y, silu(g.z) * u.z, silu(g.w) * u.w});
            });
}

// `bulk` was made by all threads, and a barrier has passed since.
__device__ inline void load_rows(const Stream& a, int k0, int columns, Bf16* xs, int pitch, BulkRows& bulk) {
  if (a.kind == StreamInput::bf16) return bulk.copy(a.rows, xs, pitch, static_cast<const Bf16*>(a.x) + k0, a.x_stride, columns);
  if (a.kind == StreamInput::norm) load_norm(a, k0, columns, xs, pitch);
  if (a.kind == StreamInput::silu) load_silu(a, k0, columns, xs, pitch);
  if (a.kind == StreamInput::f32) {
    const float* const x = static_cast<const float*>(a.x) + k0;
    each_four(a.rows, columns, [&](int r, int i) { return fresh_four(x + r * a.x_stride + i); },
              [&](int r, int i, float4 v) { store_four(xs + r * pitch + i, v); });
  }
  __syncthreads();
}

}  // namespace foretoken
