// The queries of one block, and the steps of the context that it processes for them. A tile is up to kRows query
// vectors (a row and a head of one kv head, of one sequence); a step is kStep depths. Steps that all rows of the tile
// share come first; where a row has ancestors in a tree, the steps from the end of its prefix on are its own, since
// other rows have other slots there. This header must not know how a step is computed.
#pragma once
#include <algorithm>
#include <climits>

#include "kernels/cuda/attention/attention.cuh"
#include "kernels/cuda/instructions/matrix_tiles.cuh"

namespace foretoken {

// An upper bound of the number of tiles of all rows, from the layout's bounds on the host.
inline int tiles_of(const AttentionWork& work, int size) {
  return std::min(work.sequences * ((work.longest * work.group + size - 1) / size),
                  work.rows * work.group / size + work.sequences);
}

struct TilePosition {
  int sequence = -1, row = 0;   // the sequence's first row
  int vector = 0, vectors = 0;  // the tile's first vector and their number; vector v is row v / group, head v % group
};

// Tiles are numbered sequence by sequence; sequence -1: there is no tile `index`.
__device__ inline TilePosition find_tile(const AttentionWork& work, int index, int size) {
  TilePosition t;
  const int lane = int(threadIdx.x) & 31;
  if (work.longest * work.group <= size) {
    t.sequence = index;
  } else {
    for (int base = 0; base < work.sequences && t.sequence < 0; base += 32) {
      const int s = base + lane;
      const int rows = s < work.sequences ? work.begins[s + 1] - work.begins[s] : 0,
                own = (rows * work.group + size - 1) / size;
      int sum = own;
      for (int step = 1; step < 32; step *= 2) {
        const int other = __shfl_up_sync(~0u, sum, step);
        if (lane >= step) sum += other;
      }
      const unsigned behind = __ballot_sync(~0u, sum > index);
      if (behind) {
        const int found = __ffs(int(behind)) - 1;
        t.sequence = base + found, t.vector = (index - __shfl_sync(~0u, sum - own, found)) * size;
      } else {
        index -= __shfl_sync(~0u, sum, 31);
      }
    }
    if (t.sequence < 0) return t;
  }
  t.row = work.begins[t.sequence];
  t.vectors = min(size, (work.begins[t.sequence + 1] - t.row) * work.group - t.vector);
  if (t.vectors <= 0) t.sequence = -1;
  return t;
}

// The slot behind the last ancestor of a row.
__device__ inline int reach_of(const AttentionWork& work, int row, Sight s) {
  for (int w = work.words - 1; w >= 0; --w)
    if (const std::uint64_t bits = work.ancestors[std::int64_t(row) * work.words + w])
      return s.visible + 64 * (w + 1) - __clzll(std::int64_t(bits));
  return s.visible;
}

// In shared memory: the depths that each vector attends to; in shared steps, [first, common); and no slot from `reach`
// on.
template <int kRows> struct TileSights {
  int first[kRows], visible[kRows], common[kRows], end[kRows], reach[kRows];

  __device__ void fill(const AttentionWork& work, const TilePosition& t, int thread) {
    if (thread >= kRows) return;
    Sight s;
    const int row = t.row + (t.vector + thread) / work.group;
    if (thread < t.vectors) s = sight_of(work, row);
    reach[thread] = s.branches() ? reach_of(work, row, s) : s.visible;
    first[thread] = s.first, visible[thread] = s.visible, end[thread] = s.end;
    common[thread] = s.branches() ? s.visible / kStep * kStep : s.visible;
  }
  __device__ Sight of(int v) const { return {first[v], visible[v], end[v]}; }
};

// Bounds over the vectors of a tile, the same in every thread.
struct TileBounds {
  int low, high, end;     // shared steps are in [low, high); no row attends to depth `end` or later
  int reach;              // no row attends to a slot outside [low, reach)
  int all_low, all_high;  // in [all_low, all_high) every vector attends to all depths of shared steps
  int branch;             // no row's own steps begin before this depth; INT_MAX: there are none

  template <int kRows> __device__ static TileBounds of(const TileSights<kRows>& s, int vectors) {
    TileBounds b{INT_MAX, 0, 0, 0, 0, INT_MAX, INT_MAX};
    for (int v = int(threadIdx.x) & 31; v < vectors; v += 32) {
      const bool branches = s.of(v).branches();
      b.low = min(b.low, branches ? min(s.first[v], s.visible[v]) : s.first[v]);
      b.high = max(b.high, s.common[v]), b.end = max(b.end, s.end[v]), b.reach = max(b.reach, s.reach[v]);
      b.all_low = max(b.all_low, s.first[v]), b.all_high = min(b.all_high, s.common[v]);
      if (branches) b.branch = min(b.branch, s.common[v]);
    }
    return {__reduce_min_sync(~0u, b.low),   __reduce_max_sync(~0u, b.high),    __reduce_max_sync(~0u, b.end),
            __reduce_max_sync(~0u, b.reach), __reduce_max_sync(~0u, b.all_low), __reduce_min_sync(~0u, b.all_high),
            __reduce_min_sync(~0u, b.branch)};
  }
};

// The queries of vectors [from, from + rows) of a tile, in bf16, then zeros; `address_of(vector, chunk)` is the offset
// of 16 bytes from `to` in shared memory. Called by 128 threads.
template <int kChunks, class AddressOf> __device__ void load_queries(const AttentionWork& work, const TilePosition& t,
                                                                     int head, int from, int rows, std::byte* to,
                                                                     int thread, AddressOf address_of) {
  for (int i = thread; i < rows * kChunks; i += 128) {
    const int v = i / kChunks, c = i % kChunks, at = t.vector + from + v;
    uint4 packed = {};
    if (from + v < t.vectors && c * 8 < work.head_size) {
      const std::int64_t row = t.row + at / work.group;
      const int column = (head * work.group + at % work.group) * work.head_size + c * 8;
      if (work.q_bf16 && work.q_aligned) {
        packed = *reinterpret_cast<const uint4*>(static_cast<const Bf16*>(work.q) + row * work.q_stride + column);
      } else {
        float x[8];
        for (int j = 0; j < 8; ++j) x[j] = load_q(work, row, column + j);
        packed = {pack_bf16(x[0], x[1]), pack_bf16(x[2], x[3]), pack_bf16(x[4], x[5]), pack_bf16(x[6], x[7])};
      }
    }
    *reinterpret_cast<uint4*>(to + address_of(v, c)) = packed;
  }
}

// Pages of the keys of one step, held by the lanes of each warp: lane l holds depths l and l + 32 of the step. They are
// looked up one step ahead, so that copies do not wait for a page number.
struct StepPages {
  int page[2], at[2];  // page -1: not read; zeros are stored instead

  template <class SlotAt> __device__ void look_up(const AttentionWork& work, const std::int32_t* table, int step,
                                                  int low, int high, SlotAt slot_of) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int depth = step * kStep + i * 32 + (int(threadIdx.x) & 31);
      page[i] = -1;
      if (depth < low || depth >= high) continue;
      const int slot = slot_of(depth), number = work.page_shift >= 0 ? slot >> work.page_shift : slot / work.page_rows;
      at[i] = slot - number * work.page_rows, page[i] = table[number];
    }
  }

  // Copies keys and values; `address_of(key, chunk)` is the offset of 16 bytes from `keys` and `values` in shared
  // memory. Called by 128 threads.
  template <int kChunks, class AddressOf> __device__ void copy(const AttentionWork& work, int head, std::uint32_t keys,
                                                               std::uint32_t values, int thread,
                                                               AddressOf address_of) const {
    std::int64_t offset[2];
#pragma unroll
    for (int i = 0; i < 2; ++i)
      offset[i] = page[i] < 0
                      ? -1
                      : page[i] * work.page_bytes + (std::int64_t(head) * work.page_rows + at[i]) * work.head_size * 2;
#pragma unroll
    for (int i = 0; i < kStep * kChunks / 128; ++i) {
      const int item = thread + i * 128, key = item / kChunks, c = item % kChunks;
      std::int64_t from;
      if constexpr (128 % kChunks == 0) {
        from = __shfl_sync(~0u, offset[i * (128 / kChunks) / 32], key & 31);
      } else {
        const std::int64_t left = __shfl_sync(~0u, offset[0], key & 31), right = __shfl_sync(~0u, offset[1], key & 31);
        from = key < 32 ? left : right;
      }
      const bool read = from >= 0 && c * 8 < work.head_size;
      const std::byte* begin = work.pool + (read ? from + c * 16 : 0);
      const int to = address_of(key, c);
      copy_behind(keys + to, begin + work.keys, read);
      copy_behind(values + to, begin + work.values, read);
    }
  }

  // The same of codes, rows of kHead bytes; and the scales of keys and values, [kStep] each.
  template <int kHead> __device__ void copy_codes(const AttentionWork& work, int head, std::uint32_t keys,
                                                  std::uint32_t values, std::uint32_t scales, int thread) const {
    constexpr int kPieces = kHead / 16;
    static_assert(128 % kPieces == 0);
#pragma unroll
    for (int i = 0; i < kStep * kPieces / 128; ++i) {
      const int item = thread + i * 128, key = item / kPieces, c = item % kPieces, half = i * (128 / kPieces) / 32;
      const int of = __shfl_sync(~0u, page[half], key & 31), row = __shfl_sync(~0u, at[half], key & 31);
      const bool read = of >= 0 && c * 16 < work.head_size;
      const std::byte* begin = work.pool;
      if (read) begin += of * work.page_bytes + (std::int64_t(head) * work.page_rows + row) * work.head_size + c * 16;
      copy_behind(keys + unsigned(item * 16), begin + work.keys, read);
      copy_behind(values + unsigned(item * 16), begin + work.values, read);
    }
    // The first two warps copy scales of keys, the others of values.
    const int half = thread / 32 % 2, of = half == 0 ? page[0] : page[1], row = half == 0 ? at[0] : at[1];
    const std::byte* begin = work.pool + (thread < 64 ? work.key_scales : work.value_scales);
    if (of >= 0) begin += of * work.page_bytes + (std::int64_t(head) * work.page_rows + row) * 4;
    copy_word_behind(scales + unsigned(thread * 4), begin, of >= 0);
  }
};

// The steps of a block, chunk by chunk: in each chunk the shared ones, then each row's own.
template <int kRows> struct StepCursor {
  int step = 0, row = -1;  // row of the sequence to which this step belongs; -1: shared
  int chunk = 0;

  // Before the first step of chunks [begin, ...).
  __device__ void start(int begin, const TileSights<kRows>& s, const TileBounds& b, const TilePosition& t, int group,
                        int end) {
    chunk = begin, row = -1;
    seek(s, b, t, group, end);
  }
  __device__ bool done(int end) const { return chunk >= end; }
  __device__ void advance(const TileSights<kRows>& s, const TileBounds& b, const TilePosition& t, int group, int end) {
    if (++step < last) return;
    next_row(b, t, group);
    seek(s, b, t, group, end);
  }

 private:
  int last = 0;

  __device__ void next_row(const TileBounds& b, const TilePosition& t, int group) {
    row = row < 0 ? t.vector / group : row + 1;
    if (b.branch >= chunk_begin(chunk + 1) || row * group >= t.vector + t.vectors) row = -1, ++chunk;
  }
  __device__ void seek(const TileSights<kRows>& s, const TileBounds& b, const TilePosition& t, int group, int end) {
    for (; chunk < end; next_row(b, t, group)) {
      int from = b.low, to = b.high;
      if (row >= 0) {
        const int v = max(row * group - t.vector, 0);
        from = s.common[v], to = s.of(v).branches() ? s.end[v] : 0;
      }
      step = max(from, chunk_begin(chunk)) / kStep;
      last = (min(to, chunk_begin(chunk + 1)) + kStep - 1) / kStep;
      if (step < last) return;
    }
  }
};

}  // namespace foretoken
