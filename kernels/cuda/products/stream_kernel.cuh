// The kernel of a streamed product: y = x W^T + b for at most 16 rows, sums in f32. A warp takes 16 outputs (a tile)
// and one slice of the inputs. It copies pieces of W to a ring of its own, several ahead, and multiplies them by the
// rows of x in shared memory: mma.m16n8k16, k ascending in one chain, so a result does not depend on how many rows
// there are (and has the same bits as cuBLASLt without split-K, measured on an H200). The slices of a tile are added in
// order, in shared memory where one block has them all, else by the warp that finishes last. The rings are filled
// before the previous kernels have ended, so that the weights are loaded when x is. This header must not know how the
// matrix is stored.
#pragma once
#include "kernels/cuda/elementwise/elementwise.cuh"
#include "kernels/cuda/products/stream_input.cuh"
#include "kernels/cuda/products/stream_product.cuh"
#include "kernels/cuda/products/stream_ring.cuh"
#include "kernels/cuda/shared_memory.h"

namespace foretoken {

constexpr int kBoxAlignment = 1024;  // bytes

// Addresses of this lane's rows of x for ldmatrix; missing rows repeat row 0, and their results are not written.
template <int NT> __device__ void row_addresses(unsigned (&x)[NT], const Bf16* xs, int rows, int pitch, int lane) {
#pragma unroll
  for (int n = 0; n < NT; ++n) {
    const int r = n * 8 + lane % 8;
    x[n] = shared_address(xs + (r < rows ? r : 0) * pitch + lane / 8 * 8);
  }
}

// ---- the results ----

// Adds the slices of a tile in order, in the warp that finishes last; returns false in the others.
template <int NT> __device__ bool add_slices(const Stream& a, float (&sum)[NT][4], int slice, int tile, int lane) {
  float4* const partials = reinterpret_cast<float4*>(a.partials);
  const auto at = [&](int s, int n) { return ((std::int64_t(s) * a.tiles + tile) * NT + n) * 32 + lane; };
#pragma unroll
  for (int n = 0; n < NT; ++n) __stcg(partials + at(slice, n), make_float4(sum[n][0], sum[n][1], sum[n][2], sum[n][3]));
  __syncwarp();
  int before = 0;
  if (lane == 0) before = count_behind(a.counters + tile);
  if (__shfl_sync(0xffffffffu, before, 0) != a.slices - 1) return false;
  __syncwarp();  // orders the other lanes' reads after the first lane's acquire: a shuffle does not order memory
#pragma unroll
  for (int n = 0; n < NT; ++n) {
    float4 v = __ldcg(partials + at(0, n));
#pragma unroll 4
    for (int s = 1; s < a.slices; ++s) {
      const float4 p = __ldcg(partials + at(s, n));
      v.x += p.x, v.y += p.y, v.z += p.z, v.w += p.w;
    }
    sum[n][0] = v.x, sum[n][1] = v.y, sum[n][2] = v.z, sum[n][3] = v.w;
  }
  if (lane == 0) a.counters[tile] = 0;
  return true;
}

// The previous values of y, where a product adds to y.
template <int NT> struct Before {
  float y[NT][4] = {};
  __device__ void load(const Stream& a, int tile, int lane) {
    if (!a.to.adds) return;
#pragma unroll
    for (int n = 0; n < NT; ++n)
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const int r = n * 8 + lane % 4 * 2 + j % 2, o = tile * 16 + lane / 4 + j / 2 * 8;
        if (r < a.rows && o < a.out) y[n][j] = a.to.previous(r, o);
      }
  }
};

template <int NT>
__device__ void write_tile(const Stream& a, const float (&sum)[NT][4], const Before<NT>& before, int tile, int lane) {
#pragma unroll
  for (int n = 0; n < NT; ++n)
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int r = n * 8 + lane % 4 * 2 + j % 2, o = tile * 16 + lane / 4 + j / 2 * 8;
      if (r < a.rows && o < a.out) a.to.write(r, o, sum[n][j], before.y[n][j]);
    }
}

// A lane holds the gates of its rows in its first two sums and the other factors in the other two.
template <int NT> __device__ void write_gated(const Stream& a, const float (&sum)[NT][4], int tile, int lane) {
#pragma unroll
  for (int n = 0; n < NT; ++n)
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const int r = n * 8 + lane % 4 * 2 + j;
      if (r < a.rows) a.to.write_gated(r, tile * 8 + lane / 4, sum[n][j], sum[n][j + 2]);
    }
}

// As add_slices() where all slices are in this block: through shared memory. Called by all threads; the warp of the
// first slice gets the sum.
template <int NT>
__device__ void add_local_slices(float (&sum)[NT][4], float4* partials, int warp, int local, int lane) {
#pragma unroll
  for (int n = 0; n < NT; ++n)
    partials[(warp * NT + n) * 32 + lane] = make_float4(sum[n][0], sum[n][1], sum[n][2], sum[n][3]);
  __syncthreads();
  if (warp % local != 0) return;
#pragma unroll
  for (int n = 0; n < NT; ++n)
    for (int s = 1; s < local; ++s) {
      const float4 p = partials[((warp + s) * NT + n) * 32 + lane];
      sum[n][0] += p.x, sum[n][1] += p.y, sum[n][2] += p.z, sum[n][3] += p.w;
    }
}

// Writes a tile from the sum of its slices in this block. Where other blocks have slices of it too, only the warp that
// finishes last does.
template <int NT> __device__ __forceinline__ void finish_tile(const Stream& a, float (&sum)[NT][4],
                                                              const Before<NT>& before, int slice, int tile, int lane) {
  if (a.slices != a.local && !add_slices<NT>(a, sum, slice, tile, lane)) return;
  if (a.to.gated)
    write_gated<NT>(a, sum, tile, lane);
  else
    write_tile<NT>(a, sum, before, tile, lane);
}

// The work of a warp: tiles first, first + stride, ... below a.tiles, in rounds of its block from tile `begin` on,
// inputs of slice `slice`. Consecutive tiles are in different blocks, so that an incomplete last round is balanced.
struct Share {
  int part, slice, local, begin, first;
  __device__ Share(const Stream& a, int warp) {
    part = int(blockIdx.x) & ((1 << a.parts_log) - 1), local = warp & ((1 << a.local_log) - 1),
    slice = (part << a.local_log) + local;
    begin = int(blockIdx.x) >> a.parts_log, first = begin + (warp >> a.local_log) * a.groups;
  }
  __device__ int rounds(const Stream& a) const { return (a.tiles - begin + a.stride - 1) / a.stride; }
};

// Fills the ring while one warp waits for the previous kernels and requests x.
template <class R> __device__ void load_inputs(const Stream& a, StreamRows& rows, R& ring) {
  ring.start(a.window);
  __syncthreads();
  if constexpr (R::kCanPoll) {
    if (threadIdx.x < 32) {
      rows.prepare();
      wait_for_previous_kernels();
      rows.request();
    }
    ring.fill(a.window, [&] { return rows.arrived(); });
  } else {
    rows.request();
  }
  rows.finish();
}

// The layout of a block's shared memory: the rings of all warps, their barriers, slices to be added, rows of x.
template <int NT, class R> struct BlockLayout {
  unsigned char *pieces, *barriers;
  float4* partials;
  Bf16* xs;
  __device__ BlockLayout(const Stream& a, const typename R::Matrix& m, unsigned char* memory, int warps)
      : pieces(memory + (kBoxAlignment - shared_address(memory) % kBoxAlignment) % kBoxAlignment),
        barriers(pieces + warps * R::bytes(m)),
        partials(reinterpret_cast<float4*>(barriers + warps * R::kBarriers)),
        xs(reinterpret_cast<Bf16*>(partials + (a.local > 1 ? warps * NT * 32 : 0))) {}
};

// NT: groups of eight rows.
template <int NT, class R> __global__ void __launch_bounds__(kMostWarps * 32, 1)
    stream_kernel(const __grid_constant__ Stream a, const __grid_constant__ typename R::Matrix matrix) {
  extern __shared__ __align__(128) unsigned char shared[];
  __shared__ __align__(16) unsigned char x_barriers[Bulk::kBarrierBytes];
  static_assert(sizeof x_barriers + kNormBytes <= kStreamStaticBytes);  // the norm's are in StreamRows
  R::prepare(matrix);
  const int warps = int(blockDim.x) / 32, warp = int(threadIdx.x) / 32, lane = int(threadIdx.x) % 32;
  const BlockLayout<NT, R> layout(a, matrix, shared, warps);
  const Share share(a, warp);
  const int columns = a.local * a.slice;
  let_next_kernel_start();
  StreamRows rows(a, share.part * columns, columns, a.depth < a.slice ? share.rounds(a) : 1, layout.xs, x_barriers);
  rows.begin();
  R ring(a, matrix, layout.pieces + warp * R::bytes(matrix), layout.barriers + warp * R::kBarriers, share.first,
         share.slice * a.slice);
  load_inputs(a, rows, ring);
  ring.begin(lane);

  unsigned x[NT];
  row_addresses<NT>(x, layout.xs + share.local * a.slice, a.rows, rows.pitch(), lane);
  for (int begun = share.begin, round = 0, tile = share.first; begun < a.tiles; begun += a.stride, tile += a.stride) {
    float sum[NT][4] = {};
    Before<NT> before;
    if (share.local == 0 && tile < a.tiles) before.load(a, tile, lane);
    for (int begin = 0; begin < a.slice; begin += a.depth, ++round) {
      const int behind = rows.double_buffered() ? rows.wait(round) : 0;
      if constexpr (R::kInTurns) {
#pragma unroll 2
        for (int k = 0; k < a.depth && tile < a.tiles; k += R::kInputs) ring.multiply_next(sum, x, behind + k, lane);
      } else {
        for (int k = 0; k < a.depth && tile < a.tiles; k += R::kInputs) ring.multiply_next(sum, x, behind + k, lane);
      }
      if (rows.double_buffered()) rows.done(round);
    }
    if (a.local > 1) add_local_slices<NT>(sum, layout.partials, warp, a.local, lane);
    if (tile < a.tiles && share.local == 0) finish_tile<NT>(a, sum, before, share.slice, tile, lane);
    if (a.local > 1 && begun + a.stride < a.tiles) __syncthreads();
  }
}

template <class M> using StreamKernel = void (*)(Stream, M);

}  // namespace foretoken
