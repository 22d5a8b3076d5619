// The steps of a tile of prompt.cuh behind the prefix that its rows share, where some are nodes of a tree, and the end
// of every tile. From the step on in which the first row branches off, each row attends to keys of its own: slots of
// its prefix, then its ancestors in the order of depths. All of them are in the ring (PromptShared), so that a row
// gathers its keys by addresses of shared memory. A warp takes four rows of its 16 vectors at a time. It multiplies
// each by its own keys, with weights of zero for the other vectors, or all four by the same keys where they have them,
// computes their weights together, and continues the sums of the prefix: order of sums and bits are those of a chain. A
// block runs this code once, mostly from instructions that no cache holds, so loops are not unrolled. This header must
// not know how the shared steps are computed.
#pragma once
#include "kernels/cuda/attention/prompt.cuh"

namespace foretoken {

#ifdef FORETOKEN_WARPGROUPS

// Four consecutive numbers of an array in registers: the sums of 8 keys or 8 numbers of a head.
__device__ __forceinline__ float (&four(float& first))[4] { return reinterpret_cast<float(&)[4]>(first); }

template <int kHead, bool kSplit, bool kTree> struct PromptRows : PromptBlock<kHead, kSplit> {
  using Block = PromptBlock<kHead, kSplit>;
  using Block::work, Block::shared, Block::tile, Block::begin, Block::middle, Block::end, Block::lane, Block::warp,
      Block::kStages;
  using typename Block::Sums;

  using Block::Block;

  // Rows whose own steps are added at once: each by products with its own keys, with zeros for the other vectors; their
  // weights are computed together.
  static constexpr int kTogether = 4;

  // Of the rows of this warp, numbers [first, first + count), which all see the slots before `common`; and of vector h
  // of this thread, the number of its row among these (-1: it is none of them) and what that row sees.
  struct Rows {
    int first, count, common, number[2];
    Sight sight[2];

    // Whether all rows have the same keys at depths [depth, depth + 32): those of the first serve all.
    __device__ __forceinline__ bool are_one(int depth) const { return depth + 32 <= common; }
    __device__ __forceinline__ bool have(int h, int r, int depth) const {
      return are_one(depth) ? number[h] >= 0 : number[h] == r;
    }
  };
  // Of each half of a step and each row in it: key `lane` of 32, as offset in the ring; -1: there are none. A
  // queue: what is taken in front is put behind, so that loops over it need not be unrolled.
  struct Keys {
    int at[2 * kTogether];

    __device__ __forceinline__ int take() { return put(at[0]); }
    __device__ __forceinline__ int put(int last) {
#pragma unroll
      for (int i = 1; i < 2 * kTogether; ++i) at[i - 1] = at[i];
      return at[2 * kTogether - 1] = last;
    }
  };

  // ---- keys ----
  // The ancestors of all rows of this warp, which are loaded at once: word w of its row i is number i * words + w, held
  // by lane `number` % 32. A warp has at most 16 rows.
  std::uint64_t held[2];

  __device__ __forceinline__ void hold_ancestors(int first, int rows) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int number = i * 32 + lane;
      held[i] = number < rows * work.words ? work.ancestors[std::int64_t(tile.row + first) * work.words + number] : 0;
    }
  }
  __device__ __forceinline__ std::uint64_t ancestors_of(int number) const {
    return __shfl_sync(~0u, number < 32 ? held[0] : held[1], number % 32);
  }
  // As slot_at(), for the warp's row `index`; called by all lanes.
  __device__ __forceinline__ int slot_of(int depth, int index, Sight s) const {
    if (__all_sync(~0u, depth < s.visible)) return depth;
    int rank = depth - s.branch(), from = s.visible;
    std::uint64_t bits = ancestors_of(index * work.words);
    for (int w = 1; w < work.words; ++w) {
      const std::uint64_t next = ancestors_of(index * work.words + w);
      const int n = __popcll(bits);
      if (rank >= n) rank -= n, from += 64, bits = next;
    }
    return depth < s.visible ? depth : from + position_of(bits, rank);
  }
  // Keys that the row does not attend to are replaced by its last one: their weights are zero.
  __device__ __forceinline__ int offset_of(int depth, int index, Sight s) const {
    if (depth >= s.end || (depth >= s.visible && depth < s.branch())) depth = s.end - 1;
    const int slot = slot_of(depth, index, s), stage = (slot / kStep - begin) % kStages;
    return stage * int(sizeof shared.stages[0]) + slot % kStep * 128;
  }
  // Of 16-byte vector c of a key or value: as half_chunk().
  __device__ static unsigned part_of(int at, int c) {
    return unsigned(at + c / 8 * kStep * 128 + (c % 8 ^ (at >> 7 & 7)) * 16);
  }

  // ---- a step of several rows ----
  // Scores of 32 keys of one row for all vectors of this warp.
  __device__ __forceinline__ void scores(int warpgroup, int at, float (&s)[16]) const {
    const std::uint32_t keys = shared_address(shared.stages[0].keys), queries = shared_address(shared.q[warpgroup]);
    int key[2];
#pragma unroll
    for (int i = 0; i < 16; ++i) s[i] = 0;
#pragma unroll
    for (int n = 0; n < 2; ++n) key[n] = __shfl_sync(~0u, at, n * 16 + (lane & 7) + (lane >> 4) * 8);
#pragma unroll 2
    for (int k = 0; k < kHead / 16; ++k) {
      const Quad q = load_quad(queries + unsigned(half_chunk(warp * 16 + (lane & 15), k * 2 + (lane >> 4), 64)));
#pragma unroll
      for (int n = 0; n < 2; ++n) {
        const Quad b = load_quad(keys + part_of(key[n], k * 2 + (lane >> 3 & 1)));
        multiply_add(four(s[n * 8]), q, b.r[0], b.r[1]);
        multiply_add(four(s[n * 8 + 4]), q, b.r[2], b.r[3]);
      }
    }
  }
  // The scores of each vector, by the keys of its row, which it finds.
  __device__ __forceinline__ void scores(int warpgroup, int step, int first, const Rows& rows, Keys& keys,
                                         float (&s)[32]) const {
#pragma unroll
    for (int i = 16; i < 32; ++i) s[i] = kUnseen;
#pragma unroll 1
    for (int depth = step * kStep; depth < (step + 1) * kStep; depth += 32) {
#pragma unroll
      for (int i = 0; i < 16; ++i) s[i] = s[16 + i], s[16 + i] = kUnseen;
#pragma unroll 1
      for (int r = 0; r < kTogether; ++r) {
        const Sight sight = sight_of_row(warpgroup, first, rows.first + min(r, rows.count - 1));
        const bool any = r < (rows.are_one(depth) ? 1 : rows.count) && depth < sight.end;
        if (keys.put(any ? offset_of(depth + lane, rows.first + r, sight) : -1) < 0) continue;
        const bool own[2] = {rows.have(0, r, depth), rows.have(1, r, depth)};
        float x[16];
        scores(warpgroup, keys.at[2 * kTogether - 1], x);
#pragma unroll
        for (int i = 0; i < 16; ++i)
          if (own[i / 2 % 2]) s[16 + i] = x[i];
      }
    }
  }
  __device__ __forceinline__ void hide(int step, const Rows& rows, float (&s)[32]) const {
#pragma unroll
    for (int i = 0; i < 32; ++i) {
      const int h = i / 2 % 2, depth = step * kStep + i / 4 * 8 + lane % 4 * 2 + i % 2;
      if (depth < rows.sight[h].first || depth >= rows.sight[h].end) s[i] = kUnseen;
    }
  }
  __device__ __forceinline__ void add_values(int step, const Rows& rows, Keys& keys, Quad (&weights)[4],
                                             Sums& t) const {
    const std::uint32_t values = shared_address(shared.stages[0].values);
#pragma unroll
    for (int k = 0; k < 4; ++k) multiply_add(t.mass, weights[k], kOnes, kOnes);
#pragma unroll 1
    for (int depth = step * kStep; depth < (step + 1) * kStep; depth += 32) {
#pragma unroll 1
      for (int r = 0; r < kTogether; ++r) {
        const int at = keys.take();
        if (at < 0) continue;  // products with weights of zero would change no sum
        const bool have[2] = {rows.have(0, r, depth), rows.have(1, r, depth)};
        Quad own[2];
#pragma unroll
        for (int i = 0; i < 8; ++i) own[i / 4].r[i % 4] = have[i % 2] ? weights[i / 4].r[i % 4] : 0;
#pragma unroll
        for (int n = 0; n < kHead / 8; ++n) {
          const Quad b = load_quad_transposed(values + part_of(at, n));
          multiply_add(four(t.sum[n * 4]), own[0], b.r[0], b.r[1]);
          multiply_add(four(t.sum[n * 4]), own[1], b.r[2], b.r[3]);
        }
      }
      weights[0] = weights[2], weights[1] = weights[3];
    }
  }
  __device__ __forceinline__ void add_step(int warpgroup, int step, int first, const Rows& rows, Sums& t) const {
    float s[32], keep[2];
    Quad weights[4];
    Keys keys;
    scores(warpgroup, step, first, rows, keys, s);
    work.rules.apply<false>(s);
    hide(step, rows, s);
    Block::weigh(s, t.peak, keep);
    t.scale(keep);
    Block::pack(s, weights);
    add_values(step, rows, keys, weights, t);
  }

  // ---- all rows of this warp ----
  __device__ __forceinline__ void begin_chunk(int warpgroup, int step, const Rows& rows, Sums& t) const {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      if (rows.number[h] < 0 || rows.sight[h].end <= step * kStep) continue;
      t.end_chunk(h, work.rules);
      Block::close_chunk(warpgroup, h, chunk_of(step * kStep - 1), t);
#pragma unroll
      for (int n = 0; n < kHead / 2; ++n)
        if (n / 2 % 2 == h) t.sum[n] = 0;
    }
  }
  // What row `index` of this warp sees; `first`: the first of them, counted from that of the sequence.
  __device__ __forceinline__ Sight sight_of_row(int warpgroup, int first, int index) const {
    return shared.sights.of(max((first + index) * work.group - tile.vector, warpgroup * 64 + warp * 16));
  }
  __device__ __forceinline__ void add_some_rows(int warpgroup, int first, Rows& rows, Sums& t) const {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int v = warpgroup * 64 + warp * 16 + h * 8 + lane / 4,
                number = (tile.vector + v) / work.group - first - rows.first;
      rows.number[h] = v < tile.vectors && number >= 0 && number < rows.count ? number : -1;
      rows.sight[h] = shared.sights.of(v);
    }
    int deepest = 0;
    rows.common = INT_MAX;
#pragma unroll 1
    for (int r = 0; r < rows.count; ++r) {
      const Sight sight = sight_of_row(warpgroup, first, rows.first + r);
      deepest = max(deepest, sight.end), rows.common = min(rows.common, sight.visible);
    }
#pragma unroll 1
    for (int step = middle; step * kStep < deepest; ++step) {
      if (step > begin && begins_chunk(step * kStep)) begin_chunk(warpgroup, step, rows, t);
      add_step(warpgroup, step, first, rows, t);
    }
  }
  __device__ __forceinline__ void add_rows(int warpgroup, Sums& t) {
    const int from = warpgroup * 64 + warp * 16, last = min(from + 16, tile.vectors);
    if (from >= last) return;
    const int first = (tile.vector + from) / work.group, count = (tile.vector + last - 1) / work.group - first + 1;
    hold_ancestors(first, count);
    for (int step = middle; step < end; ++step)
      wait_barrier(&shared.full[(step - begin) % kStages], (step - begin) / kStages & 1);
#pragma unroll 1
    for (Rows rows{}; rows.first < count; rows.first += kTogether) {
      rows.count = min(count - rows.first, kTogether);
      add_some_rows(warpgroup, first, rows, t);
    }
  }

  // ---- the end of a tile ----
  // The chunk to which the last sums of vector v belong; -1: there are none.
  __device__ int last_chunk(int v) const {
    if (kTree && middle < end && shared.sights.end[v] > middle * kStep) return chunk_of(shared.sights.end[v] - 1);
    return begin < middle ? chunk_of(middle * kStep - 1) : -1;
  }
  __device__ __forceinline__ void compute(int warpgroup) {
    Sums t;
    Block::load(warpgroup);
    Block::hold_queries(warpgroup);
    if (begin < middle) Block::run(warpgroup, t);
    if (kTree && middle < end) add_rows(warpgroup, t);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      t.end_chunk(h, work.rules);
      const int chunk = kSplit ? last_chunk(warpgroup * 64 + warp * 16 + h * 8 + lane / 4) : 0;
      if (chunk >= 0) Block::close_chunk(warpgroup, h, chunk, t);
    }
    if constexpr (!kSplit) Block::store(warpgroup, t.total, t.totals);
  }
};

#endif

template <int kHead, bool kSplit, bool kTree> __global__ void __launch_bounds__(kPromptThreads, 1)
    attend_prompt(const __grid_constant__ PromptWork work) {
#ifdef FORETOKEN_WARPGROUPS
  extern __shared__ __align__(1024) std::byte memory[];
  PromptRows<kHead, kSplit, kTree> block(work, *reinterpret_cast<PromptShared<kHead>*>(memory));
  let_next_kernel_start();
  if (!block.open()) return wait_for_previous_kernels();
  if (threadIdx.x < 128) {
    release_registers<24>();
    if (work.box > 0)
      block.fetch_boxes();
    else
      block.fetch();
  } else {
    acquire_registers<240>();
    block.compute(int(threadIdx.x) / 128 - 1);
  }
#endif
}

}  // namespace foretoken
