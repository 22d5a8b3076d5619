// Attention of many rows of one sequence over a bf16 cache, on the warpgroup products of architecture 90a: a tile of 128 query
// vectors, two warpgroups that compute 64 each, one that fetches keys and values ahead of them. The arithmetic is that of
// attention.cuh in the order of attention_tiles.cuh, and the products round as mma.sync does (a test compares): the same bits.
#pragma once
#include "kernels/cuda/attention_prompt_tile.cuh"

namespace foretoken {

#ifdef FORETOKEN_WARPGROUPS

template <int kHead> struct PromptBlock : PromptTile<kHead> {
  using Tile = PromptTile<kHead>;
  using Tile::work, Tile::shared, Tile::place, Tile::bounds, Tile::begin, Tile::end, Tile::thread, Tile::lane, Tile::warp, Tile::kStages;

  using Tile::Tile;

  Quad q[kHead / 16];  // of this warp's vectors: from shared memory they would take half of what it can give to products

  __device__ void hold_queries(int group) {
#pragma unroll
    for (int k = 0; k < kHead / 16; ++k) q[k] = load_quad(shared_address(shared.q[group]) + unsigned(half_chunk(warp * 16 + (lane & 15), k * 2 + (lane >> 4), 64)));
  }
  __device__ void start_scores(float (&s)[32], int stage) {
    const std::uint64_t keys = tile_descriptor(shared_address(shared.stages[stage].keys), 16);
    begin_products();
#pragma unroll
    for (int k = 0; k < kHead / 16; ++k) multiply_scores(s, q[k], moved(keys, k / 4 * kStep * 128 + k % 4 * 32), k > 0);
    end_products();
  }
  __device__ void start_values(float (&sum)[kHead / 2], const Quad (&weights)[4], int stage, bool add) {
    const std::uint64_t values = tile_descriptor(shared_address(shared.stages[stage].values), kStep * 128);
    begin_products();
#pragma unroll
    for (int k = 0; k < 4; ++k) multiply_values(sum, weights[k], moved(values, k * 16 * 128), add || k > 0);
    end_products();
  }

  __device__ void hide(float (&s)[32], int step, const int (&low)[2], const int (&high)[2]) const {
    const int from = step * kStep;
    if (from >= bounds.all_low && from + kStep <= bounds.all_high) return;
#pragma unroll
    for (int i = 0; i < 32; ++i) {
      const int depth = from + i / 4 * 8 + lane % 4 * 2 + i % 2, h = i / 2 % 2;
      if (depth < low[h] || depth >= high[h]) s[i] = kUnseen;
    }
  }

  // Scores become weights (still f32); says by what earlier sums must be multiplied.
  __device__ void weigh(float (&s)[32], float (&peak)[2], float (&keep)[2]) const {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float most = s[2 * h];
#pragma unroll
      for (int i = 0; i < 8; ++i) most = fmaxf(most, fmaxf(s[i * 4 + 2 * h], s[i * 4 + 2 * h + 1]));
      most = fmaxf(most, __shfl_xor_sync(~0u, most, 1));
      most = fmaxf(most, __shfl_xor_sync(~0u, most, 2));
      const float now = fmaxf(peak[h], most), base = now == kUnseen ? 0.0f : now * work.scale;
      keep[h] = rescale(peak[h], now, work.scale);
      peak[h] = now;
#pragma unroll
      for (int i = 0; i < 8; ++i)
#pragma unroll
        for (int j = 0; j < 2; ++j) s[i * 4 + 2 * h + j] = exp2_fast(__fmaf_rn(s[i * 4 + 2 * h + j], work.scale, -base));
    }
  }

  __device__ void pack(const float (&s)[32], Quad (&weights)[4], float (&mass)[4], const float (&keep)[2]) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) mass[i] *= keep[i / 2];
#pragma unroll
    for (int k = 0; k < 4; ++k) {
#pragma unroll
      for (int i = 0; i < 4; ++i) weights[k].r[i] = pack_bf16(s[k * 8 + i / 2 * 4 + i % 2 * 2], s[k * 8 + i / 2 * 4 + i % 2 * 2 + 1]);
      multiply_add(mass, weights[k], kOnes, kOnes);
    }
  }
  // What a thread sums: of the chunk, and of the chunks before it.
  struct Sums {
    float sum[kHead / 2], mass[4] = {}, peak[2] = {kUnseen, kUnseen};
    float total[kHead / 2] = {}, total_mass[2] = {}, total_peak[2] = {kUnseen, kUnseen};

    __device__ __forceinline__ void close_chunk(const float (&chunk_mass)[2], const float (&chunk_peak)[2], float scale) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const Fold by = fold(total_peak[h], chunk_peak[h], scale);
        total_mass[h] = folded(total_mass[h], chunk_mass[h], by);
#pragma unroll
        for (int n = h * 2; n < kHead / 2; n += 4) total[n] = folded(total[n], sum[n], by), total[n + 1] = folded(total[n + 1], sum[n + 1], by);
      }
    }
  };

  // Adds the values of step i while it weighs step i + 1; says whether that one begins a chunk. `fresh`: step i began one.
  __device__ __forceinline__ bool next_step(int i, Sums& t, float (&s)[32], Quad (&weights)[4], const int (&low)[2], const int (&high)[2], bool fresh) {
    const int stage = i % kStages, next = (i + 1) % kStages;
    const bool last = (begin + i + 1) % (kChunk / kStep) == 0;  // of the chunk
    const float chunk_peak[2] = {t.peak[0], t.peak[1]}, chunk_mass[2] = {t.mass[0], t.mass[2]};
    float keep[2];
    wait_barrier(&shared.full[next], (i + 1) / kStages & 1);
    start_scores(s, next);
    start_values(t.sum, weights, stage, !fresh);
    if (last) {
      t.peak[0] = t.peak[1] = kUnseen;
      t.mass[0] = t.mass[1] = t.mass[2] = t.mass[3] = 0;
    }
    wait_products<1>();
    pin(s);
    hide(s, begin + i + 1, low, high);
    weigh(s, t.peak, keep);
    wait_products<0>();
    pin(t.sum);
    if (thread == 0) arrive(&shared.empty[stage]);
    if (last) {
      t.close_chunk(chunk_mass, chunk_peak, work.scale);
    } else {
#pragma unroll
      for (int n = 0; n < kHead / 2; ++n) t.sum[n] *= keep[n / 2 % 2];
    }
    pack(s, weights, t.mass, keep);
    return last;
  }

  __device__ __forceinline__ void compute(int group) {
    Sums t;
    float s[32], keep[2];
    int low[2], high[2];
    Quad weights[4];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int v = group * 64 + warp * 16 + h * 8 + lane / 4;
      low[h] = shared.sights.first[v], high[h] = shared.sights.common[v];
    }
#pragma unroll
    for (int i = 0; i < kHead / 2; ++i) t.sum[i] = 0;
    Tile::load(group);
    hold_queries(group);
    if (begin < end) {
      wait_barrier(&shared.full[0], 0);
      start_scores(s, 0);
      wait_products<0>();
      pin(s);
      hide(s, begin, low, high);
      weigh(s, t.peak, keep);
      pack(s, weights, t.mass, keep);
      bool fresh = true;
      for (int i = 0; i + 1 < end - begin; ++i) fresh = next_step(i, t, s, weights, low, high, fresh);
      start_values(t.sum, weights, (end - begin - 1) % kStages, !fresh);
      wait_products<0>();
      pin(t.sum);
      t.close_chunk({t.mass[0], t.mass[2]}, t.peak, work.scale);
    }
    Tile::store(group, t.total, t.total_mass);
  }

};

#endif

template <int kHead> __global__ void __launch_bounds__(kPromptThreads, 1) attend_prompt(const __grid_constant__ PromptWork work) {
#ifdef FORETOKEN_WARPGROUPS
  extern __shared__ __align__(1024) std::byte memory[];
  PromptBlock<kHead> block(work, *reinterpret_cast<PromptShared<kHead>*>(memory));
  let_later_start();
  if (!block.open()) return wait_for_earlier();
  if (threadIdx.x < 128) {
    give_registers<24>();
    if (work.box > 0) block.fetch_boxes();
    else block.fetch();
  } else {
    take_registers<240>();
    block.compute(int(threadIdx.x) / 128 - 1);
  }
#endif
}

}  // namespace foretoken
