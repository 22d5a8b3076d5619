// Attention of one tile of queries over a cache of bf16 numbers or of codes, on mma.sync, by a block of four warps. In
// a step every warp takes 16 of the 64 keys for the scores, then a quarter of the head for the sum of the values, so
// that each key or value is read from shared memory once. This header must not know how many blocks there are.
#pragma once
#include "kernels/cuda/attention/tiles_steps.cuh"

namespace foretoken {

// kRules: ScoreRules::any().
template <int kHead, int kGroups, int kStages, bool kCodes = false, bool kRules = false> struct TileBlock
    : TileSteps<kHead, kGroups, kStages, kCodes> {
  using Steps = TileSteps<kHead, kGroups, kStages, kCodes>;
  using Steps::warp, Steps::lane, Steps::kChunks;
  using Steps::work, Steps::shared, Steps::tile, Steps::bounds, Steps::end_chunk;
  using typename Steps::Cursor;
  static constexpr int kColumns = kHead / 32;                  // 8-wide columns of the values that a warp sums
  static constexpr bool kHold = kGroups == 1 && kHead <= 128;  // queries are kept in registers

  float sum[kGroups][kColumns][4], mass[kGroups][4], peak[kGroups][2];  // of the chunk
  float total[kGroups][kColumns][4] = {};                               // of the chunks before
  Total totals[kGroups][2];
  Quad q_held[kHold ? kHead / 16 : 1];

  using Steps::Steps;

  // ---- one step ----
  __device__ Quad q_quad(int group, int k) const {
    return load_quad(shared_address(shared.q) + swizzled<kChunks>(group * 16 + (lane & 15), k * 2 + (lane >> 4)));
  }

  __device__ void scores(int stage, float (&s)[kGroups][2][4]) const {
    const std::uint32_t keys = shared_address(shared.keys(stage));
#pragma unroll
    for (int g = 0; g < kGroups; ++g)
#pragma unroll
      for (int i = 0; i < 8; ++i) s[g][i / 4][i % 4] = 0;
#pragma unroll
    for (int k = 0; k < kHead / 16; ++k) {
      const Quad b =
          load_quad(keys + swizzled<kChunks>(warp * 16 + (lane & 7) + (lane >> 4) * 8, k * 2 + (lane >> 3 & 1)));
#pragma unroll
      for (int g = 0; g < kGroups; ++g) {
        Quad a;
        if constexpr (kHold)
          a = q_held[k];
        else
          a = q_quad(g, k);
        multiply_add(s[g][0], a, b.r[0], b.r[1]);
        multiply_add(s[g][1], a, b.r[2], b.r[3]);
      }
    }
  }

  // The scales of the keys, or of the values, to which this lane's scores [i / 2][h * 2 + i % 2] belong.
  __device__ float4 scales_of(int stage, bool values) const {
    const float* const all = shared.stages[stage].scales[values] + warp * 16 + lane % 4 * 2;
    const float2 low = *reinterpret_cast<const float2*>(all), high = *reinterpret_cast<const float2*>(all + 8);
    return {low.x, low.y, high.x, high.y};
  }
  __device__ void scale_scores(int stage, float (&s)[kGroups][2][4]) const {
    const float4 by = scales_of(stage, false);
#pragma unroll
    for (int g = 0; g < kGroups; ++g)
#pragma unroll
      for (int i = 0; i < 8; ++i)
        s[g][i / 4][i % 4] =
            __fmul_rn(s[g][i / 4][i % 4], i / 4 == 0 ? (i % 2 == 0 ? by.x : by.y) : (i % 2 == 0 ? by.z : by.w));
  }

  __device__ void hide(const Cursor& at, float (&s)[kGroups][2][4]) const {
    const int from = at.step * kStep;
    if (at.row < 0 && from >= bounds.all_low && from + kStep <= bounds.all_high) return;
    const int depth = from + warp * 16 + lane % 4 * 2;
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int v = g * 16 + lane / 4 + h * 8;
        const bool own = at.row >= 0 && (tile.vector + v) / work.group == at.row && v < tile.vectors;
        const int low = shared.sights.first[v], high = at.row < 0 ? shared.sights.common[v]
                                                       : own      ? shared.sights.end[v]
                                                                  : 0;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int d = depth + i / 2 * 8 + i % 2;
          if (d < low || d >= high) s[g][i / 2][h * 2 + i % 2] = kUnseen;
        }
      }
    }
  }

  // Publishes this warp's greatest scores.
  __device__ void offer_peaks(const float (&s)[kGroups][2][4]) {
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        float most = fmaxf(fmaxf(s[g][0][h * 2], s[g][0][h * 2 + 1]), fmaxf(s[g][1][h * 2], s[g][1][h * 2 + 1]));
        most = fmaxf(most, __shfl_xor_sync(~0u, most, 1));
        most = fmaxf(most, __shfl_xor_sync(~0u, most, 2));
        if (lane % 4 == 0) shared.peaks[warp][g * 16 + h * 8 + lane / 4] = most;
      }
    }
  }

  // Writes weights to shared memory and makes the sums relative to the new peak.
  __device__ void weigh(int stage, const float (&s)[kGroups][2][4]) {
    [[maybe_unused]] float4 by = {};
    if constexpr (kCodes) by = scales_of(stage, true);
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int v = g * 16 + h * 8 + lane / 4;
        const float most =
            fmaxf(fmaxf(shared.peaks[0][v], shared.peaks[1][v]), fmaxf(shared.peaks[2][v], shared.peaks[3][v]));
        const Weigher weight = weigher_of(work.rules, peak[g][h], most);
#pragma unroll
        for (int n = 0; n < kColumns; ++n) sum[g][n][h * 2] *= weight.keep, sum[g][n][h * 2 + 1] *= weight.keep;
        mass[g][h * 2] *= weight.keep, mass[g][h * 2 + 1] *= weight.keep;
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          const float low = weight(s[g][j][h * 2]), high = weight(s[g][j][h * 2 + 1]);
          const int at = swizzled<8>(v, warp * 2 + j) + lane % 4 * 4;
          *reinterpret_cast<std::uint32_t*>(reinterpret_cast<std::byte*>(shared.weights) + at) = pack_bf16(low, high);
          if constexpr (kCodes)
            *reinterpret_cast<std::uint32_t*>(reinterpret_cast<std::byte*>(shared.scaled) + at) =
                pack_bf16(scaled_weight(low, j == 0 ? by.x : by.z), scaled_weight(high, j == 0 ? by.y : by.w));
        }
      }
    }
  }

  __device__ void add_values(int stage) {
    const std::uint32_t values = shared_address(shared.values(stage)), weights = shared_address(shared.weights);
#pragma unroll
    for (int k = 0; k < kStep / 32; ++k) {
      Quad a[kGroups][2];
#pragma unroll
      for (int g = 0; g < kGroups; ++g) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          a[g][i] = load_quad(weights + swizzled<8>(g * 16 + (lane & 15), k * 4 + i * 2 + (lane >> 4)));
          multiply_add(mass[g], a[g][i], kOnes, kOnes);
          if constexpr (kCodes)
            a[g][i] = load_quad(shared_address(shared.scaled) +
                                swizzled<8>(g * 16 + (lane & 15), k * 4 + i * 2 + (lane >> 4)));
        }
      }
#pragma unroll
      for (int n = 0; n < kColumns; ++n) {
        const Quad b = load_quad_transposed(values + swizzled<kChunks>(k * 32 + lane, warp * kColumns + n));
#pragma unroll
        for (int g = 0; g < kGroups; ++g) {
          multiply_add(sum[g][n], a[g][0], b.r[0], b.r[1]);
          multiply_add(sum[g][n], a[g][1], b.r[2], b.r[3]);
        }
      }
    }
  }

  // ---- chunks ----
  __device__ void clear_chunk() {
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {
#pragma unroll
      for (int n = 0; n < kColumns; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) sum[g][n][i] = 0;
#pragma unroll
      for (int i = 0; i < 4; ++i) mass[g][i] = 0;
      peak[g][0] = peak[g][1] = kUnseen;
    }
  }

  __device__ void close_chunk(int chunk) {
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int v = g * 16 + h * 8 + lane / 4;
        if (work.sums != nullptr && v < tile.vectors) store_chunk(chunk, g, h, v);
        const Fold by = totals[g][h].fold(work.rules, peak[g][h], mass[g][h * 2]);
#pragma unroll
        for (int n = 0; n < kColumns; ++n)
#pragma unroll
          for (int i = 0; i < 2; ++i) total[g][n][h * 2 + i] = folded(total[g][n][h * 2 + i], sum[g][n][h * 2 + i], by);
      }
    }
    clear_chunk();
  }

  // Whatever the scores and the depths that the vector attends to: fold_chunks reads the chunks that it needs. A
  // condition for each vector costs registers, of which kernels of 64 vectors have none left.
  __device__ void store_chunk(int chunk, int g, int h, int v) const {
    const std::int64_t at = piece_at(work, Steps::row_of(v), Steps::head_of(v), chunk);
    if (warp == 0 && lane % 4 == 0) work.peaks[at] = {peak[g][h], mass[g][h * 2]};
    float* to = work.sums + at * work.head_size;
#pragma unroll
    for (int n = 0; n < kColumns; ++n) {
      const int column = (warp * kColumns + n) * 8 + lane % 4 * 2;
      if (column < work.head_size) *reinterpret_cast<float2*>(to + column) = {sum[g][n][h * 2], sum[g][n][h * 2 + 1]};
    }
  }

  __device__ void join_sinks() {
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int v = min(g * 16 + h * 8 + lane / 4, tile.vectors - 1);
        const float keep = totals[g][h].join_sink(work.rules, Steps::head_of(v));
#pragma unroll
        for (int n = 0; n < kColumns; ++n) total[g][n][h * 2] *= keep, total[g][n][h * 2 + 1] *= keep;
      }
    }
  }

  __device__ void store() const {
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int v = g * 16 + h * 8 + lane / 4;
        if (v >= tile.vectors) continue;
        const float inverse = totals[g][h].inverse();
        const std::int64_t at = (Steps::row_of(v) * work.heads + Steps::head_of(v)) * work.head_size;
#pragma unroll
        for (int n = 0; n < kColumns; ++n) {
          const int column = (warp * kColumns + n) * 8 + lane % 4 * 2;
          if (column >= work.head_size) continue;
          const float low = total[g][n][h * 2] * inverse, high = total[g][n][h * 2 + 1] * inverse;
          if (work.q_bf16)
            *reinterpret_cast<std::uint32_t*>(static_cast<Bf16*>(work.out) + at + column) = pack_bf16(low, high);
          else
            *reinterpret_cast<float2*>(static_cast<float*>(work.out) + at + column) = {low, high};
        }
      }
    }
  }

  // ---- all of it ----
  __device__ void run() {
    Cursor at = Steps::start();
    clear_chunk();
    __syncthreads();
    if constexpr (kCodes) {
      Steps::reorder_queries();
      __syncthreads();
    }
    if constexpr (kHold)
      for (int k = 0; k < kHead / 16; ++k) q_held[k] = q_quad(0, k);
    for (int stage = 0; !at.done(end_chunk); stage = stage + 1 == kStages ? 0 : stage + 1) {
      Steps::next_stage(stage);
      if constexpr (kCodes) {
        Steps::unpack(stage, false);
        __syncthreads();
      }
      float s[kGroups][2][4];
      scores(stage, s);
      if constexpr (kCodes) scale_scores(stage, s);
      work.rules.apply<kRules>(reinterpret_cast<float(&)[kGroups * 8]>(s));
      hide(at, s);
      offer_peaks(s);
      __syncthreads();
      if constexpr (kCodes) Steps::unpack(stage, true);
      weigh(stage, s);
      __syncthreads();
      add_values(stage);
      const int chunk = at.chunk;
      at.advance(shared.sights, bounds, tile, work.group, end_chunk);
      if (at.done(end_chunk) || at.chunk != chunk) close_chunk(chunk);
    }
    wait_copies<0>();
    if (work.sums != nullptr) return;
    if constexpr (kRules) join_sinks();
    store();
  }
};

template <int kHead, int kGroups, int kStages, bool kCodes = false, bool kRules = false>
__global__ void __launch_bounds__(kTileThreads, kHead >= 256 ? 1 : 2)
    attend_tiles(const __grid_constant__ AttentionWork work) {
  extern __shared__ __align__(128) std::byte memory[];
  using Block = TileBlock<kHead, kGroups, kStages, kCodes, kRules>;
  Block block(work, *reinterpret_cast<typename Block::Shared*>(memory));
  let_next_kernel_start();
  if (block.open())
    block.run();
  else
    wait_for_previous_kernels();
}

}  // namespace foretoken
