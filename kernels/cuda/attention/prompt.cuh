// Attention of many rows of one sequence over a bf16 cache, by the warpgroup products of architecture 90a: a tile of
// 128 query vectors, two warpgroups that compute 64 each, and one that fetches keys and values ahead of them. Nodes of
// a tree share the steps of their prefix; the steps behind it are added by prompt_tree.cuh. Where the tiles do not
// occupy all multiprocessors, blocks share the context of a tile and write its chunks to memory (kSplit). The
// arithmetic is that of attention.cuh in the order of tiles.cuh, and the products round as mma.sync does (a test
// compares them): the same bits.
#pragma once
#include "kernels/cuda/attention/prompt_tile.cuh"

namespace foretoken {

#ifdef FORETOKEN_WARPGROUPS

// The sums of a thread for two vectors, h = 0 and 1: of the current chunk, and of the chunks before it.
template <int kHead, bool kSplit> struct PromptSums {
  static constexpr int kTotals = kSplit ? 1 : kHead / 2;  // a split has no total: its chunks go to memory
  float sum[kHead / 2] = {}, mass[4] = {}, peak[2] = {kUnseen, kUnseen};
  float ended[2];  // the greatest score of the chunk that has ended and is not closed yet
  Fold by[2];      // factors that fold it into the total
  float total[kTotals] = {};
  Total totals[2];

  // All weights of this vector's chunk have been computed.
  __device__ __forceinline__ void end_chunk(int h, const ScoreRules& rules) {
    if constexpr (kSplit)
      ended[h] = peak[h];
    else
      by[h] = totals[h].begin(rules, peak[h]);
    peak[h] = kUnseen;
  }
  // Folds the chunk that has ended into the total.
  __device__ __forceinline__ void fold_chunk(int h) {
#pragma unroll
    for (int n = 0; n < kTotals; ++n)
      if (n / 2 % 2 == h) total[n] = folded(total[n], sum[n], by[h]);
    totals[h].mass = folded(totals[h].mass, mass[2 * h], by[h]);
  }
  // Makes the chunk's sums relative to a later peak.
  __device__ __forceinline__ void scale(const float (&keep)[2]) {
#pragma unroll
    for (int n = 0; n < kHead / 2; ++n) sum[n] *= keep[n / 2 % 2];
#pragma unroll
    for (int n = 0; n < 4; ++n) mass[n] *= keep[n / 2];
  }
};

// d [64, 8] += a b: a in registers, b [16, 8] ones, in shared memory.
__device__ inline void multiply_mass(float (&d)[4], const Quad& a, std::uint64_t b) {
  asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%0, %1, %2, %3}, {%4, %5, %6, %7}, %8, 1, 1, 1, 0;"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(a.r[0]), "r"(a.r[1]), "r"(a.r[2]), "r"(a.r[3]), "l"(b));
}

template <int kHead, bool kSplit> struct PromptBlock : PromptTile<kHead> {
  using Tile = PromptTile<kHead>;
  using Sums = PromptSums<kHead, kSplit>;
  using Tile::work, Tile::shared, Tile::tile, Tile::bounds, Tile::begin, Tile::middle, Tile::lane, Tile::warp,
      Tile::kStages;

  using Tile::Tile;

  // Queries of this warp's vectors, in registers: reading them from shared memory would take half of its bandwidth for
  // products.
  Quad q[kHead / 16];

  __device__ void hold_queries(int warpgroup) {
#pragma unroll
    for (int k = 0; k < kHead / 16; ++k)
      q[k] = load_quad(shared_address(shared.q[warpgroup]) +
                       unsigned(half_chunk(warp * 16 + (lane & 15), k * 2 + (lane >> 4), 64)));
  }
  __device__ __forceinline__ void start_scores(float (&s)[32], int stage) {
    const std::uint64_t keys =
        moved(tile_descriptor(shared_address(shared.stages[0].keys), 16), stage * int(sizeof shared.stages[0]));
    begin_products();
#pragma unroll
    for (int k = 0; k < kHead / 16; ++k) multiply_scores(s, q[k], moved(keys, k / 4 * kStep * 128 + k % 4 * 32), k > 0);
    end_products();
  }
  // Weights times values, and weights times ones: the mass of the rounded weights.
  __device__ __forceinline__ void start_values(Sums& t, const Quad (&weights)[4], int stage, bool add) {
    const std::uint64_t values = moved(tile_descriptor(shared_address(shared.stages[0].values), kStep * 128),
                                       stage * int(sizeof shared.stages[0]));
    const std::uint64_t ones = shared_address(shared.ones) >> 4;
    begin_products();
#pragma unroll
    for (int k = 0; k < 4; ++k) multiply_values(t.sum, weights[k], moved(values, k * 16 * 128), add || k > 0);
#pragma unroll
    for (int k = 0; k < 4; ++k) multiply_mass(t.mass, weights[k], ones);
    end_products();
  }

  __device__ __forceinline__ void hide(float (&s)[32], int step, int warpgroup) const {
    if (step * kStep >= bounds.all_low && (step + 1) * kStep <= bounds.all_high) return;
    const int from = step * kStep;
    int low[2], high[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int v = warpgroup * 64 + warp * 16 + h * 8 + lane / 4;
      low[h] = shared.sights.first[v], high[h] = shared.sights.common[v];
    }
#pragma unroll
    for (int i = 0; i < 32; ++i) {
      const int depth = from + i / 4 * 8 + lane % 4 * 2 + i % 2, h = i / 2 % 2;
      if (depth < low[h] || depth >= high[h]) s[i] = kUnseen;
    }
  }
  // Converts scores to weights (still f32); sets the factors of earlier sums.
  __device__ __forceinline__ void weigh(float (&s)[32], float (&peak)[2], float (&keep)[2]) const {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float most = s[2 * h];
#pragma unroll
      for (int i = 0; i < 8; ++i) most = fmaxf(most, fmaxf(s[i * 4 + 2 * h], s[i * 4 + 2 * h + 1]));
      most = fmaxf(most, __shfl_xor_sync(~0u, most, 1));
      most = fmaxf(most, __shfl_xor_sync(~0u, most, 2));
      const Weigher weight = weigher_of(work.rules, peak[h], most);
      keep[h] = weight.keep;
#pragma unroll
      for (int i = 0; i < 8; ++i)
#pragma unroll
        for (int j = 0; j < 2; ++j) s[i * 4 + 2 * h + j] = weight(s[i * 4 + 2 * h + j]);
    }
  }
  __device__ __forceinline__ void pack(const float (&s)[32], Quad (&weights)[4]) const {
#pragma unroll
    for (int k = 0; k < 4; ++k)
#pragma unroll
      for (int i = 0; i < 4; ++i)
        weights[k].r[i] = pack_bf16(s[k * 8 + i / 2 * 4 + i % 2 * 2], s[k * 8 + i / 2 * 4 + i % 2 * 2 + 1]);
  }
  __device__ __forceinline__ void finish_values(Sums& t, int stage) {
    wait_products<0>();
    pin(t.sum);
    pin(t.mass);
    if (lane == 0 && stage >= 0) arrive(&shared.empty[stage]);
  }

  // ---- chunks ----
  // Closes the chunk of vector h that has ended: folds it into the total or writes it to memory.
  __device__ __forceinline__ void close_chunk(int warpgroup, int h, int chunk, Sums& t) const {
    if constexpr (kSplit)
      write_chunk(warpgroup, h, chunk, t);
    else
      t.fold_chunk(h);
    t.mass[2 * h] = t.mass[2 * h + 1] = 0;
  }
  __device__ __forceinline__ void close_chunk(int warpgroup, int chunk, Sums& t) const {
    close_chunk(warpgroup, 0, chunk, t), close_chunk(warpgroup, 1, chunk, t);
  }
  __device__ __forceinline__ void write_chunk(int warpgroup, int h, int chunk, const Sums& t) const {
    const int v = warpgroup * 64 + warp * 16 + h * 8 + lane / 4, at = tile.vector + v;
    if (v >= tile.vectors) return;
    const std::int64_t piece =
        piece_at(work, tile.row + at / work.group, Tile::head * work.group + at % work.group, chunk);
    if (lane % 4 == 0) work.peaks[piece] = {t.ended[h], t.mass[2 * h]};
    float* const to = work.sums + piece * work.head_size + lane % 4 * 2;
#pragma unroll
    for (int n = 0; n < kHead / 8; ++n)
      if (n * 8 < work.head_size)
        *reinterpret_cast<float2*>(to + n * 8) = {t.sum[n * 4 + h * 2], t.sum[n * 4 + h * 2 + 1]};
  }

  // ---- steps that all rows share ----
  // The current step: its weights (f32, not yet rounded), the factors of the sums before it, whether it begins a chunk,
  // whether it is the tile's first, its stage and round of the ring, and the stage of the step before, whose values are
  // being added (-1: none).
  struct Step {
    float s[32], keep[2];
    bool fresh = false, first = true;
    int stage = 0, round = 0, before = -1;
  };

  // Adds the values of the current step while it computes the weights of step `step`, which becomes the current one.
  __device__ __forceinline__ void next_step(int step, int warpgroup, Sums& t, Step& now) {
    Quad weights[4];
    finish_values(t, now.before);
    pack(now.s, weights);
    now.before = now.stage;
    if (++now.stage == kStages) now.stage = 0, ++now.round;
    wait_barrier(&shared.full[now.stage], now.round & 1);
    if (kSplit && now.fresh) {
      close_chunk(warpgroup, chunk_of((step - 1) * kStep - 1), t);
      start_scores(now.s, now.stage);
    } else if (now.fresh) {  // in one branch with the products, so that the compiler interleaves them
      start_scores(now.s, now.stage);
      close_chunk(warpgroup, chunk_of((step - 1) * kStep - 1), t);
    } else {
      start_scores(now.s, now.stage);
      t.scale(now.keep);
    }
    const bool add = !(now.fresh || now.first);
    now.fresh = begins_chunk(step * kStep), now.first = false;
    if (now.fresh) t.end_chunk(0, work.rules), t.end_chunk(1, work.rules);
    wait_products<0>();
    pin(now.s);
    work.rules.apply<false>(now.s);
    hide(now.s, step, warpgroup);
    start_values(t, weights, now.before, add);  // the weights are computed while these products run
    weigh(now.s, t.peak, now.keep);
  }

  __device__ __forceinline__ void run(int warpgroup, Sums& t) {
    Step now;
    wait_barrier(&shared.full[0], 0);
    start_scores(now.s, 0);
    wait_products<0>();
    pin(now.s);
    work.rules.apply<false>(now.s);
    hide(now.s, begin, warpgroup);
    weigh(now.s, t.peak, now.keep);
    for (int step = begin + 1; step < middle; ++step) next_step(step, warpgroup, t, now);
    Quad weights[4];
    finish_values(t, now.before);
    pack(now.s, weights);
    if (now.fresh)
      close_chunk(warpgroup, chunk_of((middle - 1) * kStep - 1), t);
    else
      t.scale(now.keep);
    start_values(t, weights, now.stage, !(now.fresh || now.first));
    finish_values(t, now.stage);
  }
};

#endif

}  // namespace foretoken
