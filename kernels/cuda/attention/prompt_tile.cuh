// A tile of 128 query vectors of a prompt: its steps, the ring that one warpgroup fills for those that compute, loading
// (and rotating) of its queries and storing of its result. This header must not know how a step is computed.
#pragma once
#include "kernels/cuda/attention/page_boxes.cuh"
#include "kernels/cuda/attention/rotation.cuh"
#include "kernels/cuda/attention/tile.cuh"
#include "kernels/cuda/instructions/warpgroups.cuh"
#include "kernels/cuda/shared_memory.h"
#include "kernels/layout.h"

namespace foretoken {

constexpr int kPromptThreads = 384, kPromptRows = 128, kFetchers = 4, kReaders = 8;  // fetchers and readers in warps

// An AttentionWork; where pages are TMA boxes, the maps and the rows of a box (0: threads copy 16 bytes each).
struct PromptWork {
  AttentionWork a;
  CUtensorMap keys, values;
  int box = 0;
};

// A head is stored in halves of 64 numbers, so that a row of a half is 128 bytes.
template <int kHead> struct PromptShared {
  static constexpr int kHalves = kHead / 64, kStages = prompt_stages(kHead);
  // From the step in which the first row branches off to the last ancestor of any row: see Layout.
  static_assert(kStages * kStep >= kStep - 1 + kMostVisibleApart + 64 * kMostTreeWords);
  struct Stage {
    Bf16 keys[kHalves][kStep][64], values[kHalves][kStep][64];
  };
  alignas(1024) Stage stages[kStages];
  alignas(1024) Bf16 q[2][kHalves][64][64];  // of each warpgroup
  alignas(128) Bf16 ones[64];
  std::uint64_t full[kStages], empty[kStages], rotated;  // rotated: barrier of the last use of the rotations
  TileSights<kPromptRows> sights;
};

#ifdef FORETOKEN_WARPGROUPS

// Byte offset of 16-byte vector c of row `row` in [halves][rows][64] numbers, swizzled.
__device__ inline int half_chunk(int row, int c, int rows) {
  return (c / 8 * rows + row) * 128 + (c % 8 ^ (row & 7)) * 16;
}

template <int kHead> struct PromptTile {
  using Shared = PromptShared<kHead>;
  static constexpr int kHalves = Shared::kHalves, kStages = Shared::kStages, kChunks = kHead / 8;
  // Steps whose copies are in flight. Far fewer than stages, or computation would wait for the next copy to begin.
  static constexpr int kLag = 2;

  const PromptWork& maps;
  const AttentionWork& work;
  Shared& shared;
  TilePosition tile;
  TileBounds bounds;
  int head;  // kv head
  // The block's steps: those that all rows share, [begin, middle), and steps of slots [middle, end), of which each row
  // gathers its own in the order of depths (prompt_tree.cuh).
  int begin, middle, end;
  const int thread = int(threadIdx.x) % 128, lane = thread % 32, warp = thread / 32;

  __device__ PromptTile(const PromptWork& w, Shared& s) : maps(w), work(w.a), shared(s) {}

  __device__ bool open() {
    tile = find_tile(work, int(gridDim.y - 1 - blockIdx.y), kPromptRows);
    if (tile.sequence < 0) return false;
    head = int(blockIdx.x);
    shared.sights.fill(work, tile, int(threadIdx.x));
    if (threadIdx.x < kStages)
      init_barrier(&shared.full[threadIdx.x], kFetchers), init_barrier(&shared.empty[threadIdx.x], kReaders);
    if (threadIdx.x == kStages) init_barrier(&shared.rotated, kPromptThreads - 32 * kFetchers);
    __syncwarp();
    if (threadIdx.x < 32)
      reinterpret_cast<std::uint32_t*>(shared.ones)[threadIdx.x] =
          kOnes;  // by the warp that initializes the barriers: from another warp, racecheck reports a hazard
    fence_barriers();
    fence_async_proxy();
    __syncthreads();
    bounds = TileBounds::of(shared.sights, tile.vectors);
    return find_steps(int(blockIdx.z));
  }
  // False: the block has no steps, and its result is written by others.
  __device__ bool find_steps(int split) {
    const bool tree = bounds.branch != INT_MAX;
    const int high = tree ? bounds.branch : bounds.high;
    const DepthRange range = split_of(bounds.low, high, work.splits, split);
    begin = (range.empty() ? high : range.begin) / kStep;
    end = middle = range.empty() ? begin : (range.end + kStep - 1) / kStep;
    // The last block that has shared steps has the rest, too.
    if (tree && split == max(min(work.splits, most_splits(bounds.low, high)), 1) - 1)
      end = (bounds.reach + kStep - 1) / kStep;
    if (end - middle > kStages) __trap();  // see Layout: ancestors are near the ends of prefixes
    return work.sums == nullptr || begin < end;
  }

  // ---- the warpgroup that fetches ----
  // Waits until step i may be written to its stage. The last stage holds the rotations first.
  __device__ void wait_for_stage(int i) {
    const int stage = i % kStages;
    if (i == kStages - 1) wait_barrier(&shared.rotated, 0);
    if (i >= kStages) wait_barrier(&shared.empty[stage], (i / kStages - 1) & 1);
  }
  __device__ void publish_step(int stage) {
    fence_async_proxy();
    __syncwarp();
    if (lane == 0) arrive(&shared.full[stage]);
  }
  __device__ void fetch() {
    StepPages pages;
    const auto look_up = [&](int step) {
      if (step < end)
        pages.look_up(work, table_of(work, tile.sequence, head), step, bounds.low, bounds.reach,
                      [](int slot) { return slot; });
    };
    look_up(begin);
    wait_for_previous_kernels();
    for (int i = 0; i < end - begin + kLag; ++i) {
      if (i < end - begin) {
        wait_for_stage(i);
        typename Shared::Stage& to = shared.stages[i % kStages];
        pages.copy<kChunks>(work, head, shared_address(to.keys), shared_address(to.values), thread,
                            [](int key, int c) { return half_chunk(key, c, kStep); });
        look_up(begin + i + 1);
      }
      end_copies();
      if (i < kLag) continue;
      wait_copies<kLag>();
      publish_step((i - kLag) % kStages);
    }
  }

  // The same by TMA, except for steps with keys that no row attends to: those must be zeros. A lane copies one box of a
  // step; a warp issues its boxes one after another (16 of them took 0.9 us), so all four warps share them.
  __device__ void fetch_boxes() {
    const std::int32_t* const table = table_of(work, tile.sequence, head);
    const int boxes = kStep / maps.box, copies = 2 * kHalves * boxes, copy = lane * kFetchers + warp,
              box = copy % boxes, half = copy / boxes % kHalves;
    const bool mine = copy < copies, value = copy / boxes / kHalves == 1;
    const std::uint32_t offset = unsigned(((value ? kHalves : 0) + half) * kStep + box * maps.box) * 128;
    const int bytes = (copies - warp + kFetchers - 1) / kFetchers * maps.box * 128;
    const auto number = [&](int slot) {
      return work.page_shift >= 0 ? slot >> work.page_shift : slot / work.page_rows;
    };
    const auto page_of = [&](int slot) {
      const int index = number(slot);
      return mine && index < work.table_width ? table[index] : 0;
    };
    int slot = begin * kStep + box * maps.box, page = page_of(slot), behind = page_of(slot + kStep);
    wait_for_previous_kernels();
    for (int i = 0; i < end - begin; ++i, slot += kStep) {
      const int stage = i % kStages, step = begin + i;
      typename Shared::Stage& to = shared.stages[stage];
      wait_for_stage(i);
      if (step * kStep < bounds.low || (step + 1) * kStep > bounds.reach) {
        StepPages pages;
        pages.look_up(work, table, step, bounds.low, bounds.reach, [](int slot) { return slot; });
        pages.copy<kChunks>(work, head, shared_address(to.keys), shared_address(to.values), thread,
                            [](int key, int c) { return half_chunk(key, c, kStep); });
        end_copies();
        wait_copies<0>();
        publish_step(stage);
      } else {
        if (lane == 0) expect_copies(&shared.full[stage], bytes);
        __syncwarp();
        if (mine)
          copy_box(shared_address(&to) + offset, value ? maps.values : maps.keys, half * 64,
                   slot - number(slot) * work.page_rows, head, page, &shared.full[stage]);
      }
      page = behind, behind = page_of(slot + 2 * kStep);
    }
  }

  // ---- queries that are still to be rotated ----
  __device__ Rotation* rotations() {
    return reinterpret_cast<Rotation*>(&shared.stages[kStages - 1]);
  }  // [rows of rotates_queries()][kHead / 2]
  __device__ void fill_rotations() {
    const int from = tile.vector / work.group, rows = (tile.vector + tile.vectors - 1) / work.group - from + 1;
    for (int i = int(threadIdx.x) - 128; i < rows * (kHead / 2); i += 256)
      rotations()[i] =
          rotation_of(work.positions[tile.row + from + i / (kHead / 2)], work.frequencies[i % (kHead / 2)]);
    asm volatile("bar.sync 3, 256;" ::: "memory");
  }
  // Aligned queries in bf16, rotated where they are not yet; all are loaded before the first is used.
  __device__ void load_pairs(int warpgroup) {
    constexpr int kPairs = kChunks / 2, kEach = 64 * kPairs / 128;
    uint4 low[kEach] = {}, high[kEach] = {};
    int offset[kEach];
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int v = (thread + i * 128) / kPairs, c = thread % kPairs, at = tile.vector + warpgroup * 64 + v,
                row = at / work.group;
      offset[i] = (row - tile.vector / work.group) * (kHead / 2) + c * 8;
      if (warpgroup * 64 + v >= tile.vectors) continue;
      const auto* x =
          reinterpret_cast<const uint4*>(static_cast<const Bf16*>(work.q) + (tile.row + row) * work.q_stride +
                                         (head * work.group + at % work.group) * kHead);
      low[i] = x[c], high[i] = x[c + kPairs];
    }
    std::byte* const to = reinterpret_cast<std::byte*>(shared.q[warpgroup]);
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int v = (thread + i * 128) / kPairs, c = thread % kPairs;
      if (work.frequencies != nullptr && warpgroup * 64 + v < tile.vectors)
        rotate_eight(low[i], high[i], rotations() + offset[i]);
      *reinterpret_cast<uint4*>(to + half_chunk(v, c, 64)) = low[i],
                                                      *reinterpret_cast<uint4*>(to + half_chunk(v, c + kPairs, 64)) =
                                                          high[i];
    }
  }

  // Loads the queries of a computing warpgroup.
  __device__ void load(int warpgroup) {
    if (work.frequencies != nullptr) fill_rotations();
    wait_for_previous_kernels();
    if (work.q_bf16 && work.q_aligned && work.head_size == kHead)
      load_pairs(warpgroup);
    else
      load_queries<kChunks>(work, tile, head, warpgroup * 64, 64, reinterpret_cast<std::byte*>(shared.q[warpgroup]),
                            thread, [](int v, int c) { return half_chunk(v, c, 64); });
    fence_async_proxy();
    arrive(&shared.rotated);
    asm volatile("bar.sync %0, 128;" ::"r"(warpgroup + 1) : "memory");
  }

  // ---- the result ----
  // Offset of vector v of the tile in the output.
  __device__ std::int64_t out_at(int v) const {
    const int at = tile.vector + v;
    return ((tile.row + at / work.group) * std::int64_t(work.heads) + head * work.group + at % work.group) *
           work.head_size;
  }
  // Through the queries' memory, so that rows are written 16 bytes at a time.
  __device__ void store_rows(int warpgroup, const float (&total)[kHead / 2], const float (&inverse)[2]) {
    asm volatile("bar.sync %0, 128;" ::"r"(warpgroup + 1) : "memory");
    std::byte* const rows = reinterpret_cast<std::byte*>(shared.q[warpgroup]);
#pragma unroll
    for (int h = 0; h < 2; ++h)
#pragma unroll
      for (int n = 0; n < kChunks; ++n)
        *reinterpret_cast<std::uint32_t*>(rows + half_chunk(warp * 16 + h * 8 + lane / 4, n, 64) + lane % 4 * 4) =
            pack_bf16(total[n * 4 + h * 2] * inverse[h], total[n * 4 + h * 2 + 1] * inverse[h]);
    __syncwarp();
#pragma unroll
    for (int i = lane; i < 16 * kChunks; i += 32) {
      const int v = warp * 16 + i / kChunks, c = i % kChunks;
      if (warpgroup * 64 + v < tile.vectors)
        reinterpret_cast<uint4*>(static_cast<Bf16*>(work.out) + out_at(warpgroup * 64 + v))[c] =
            *reinterpret_cast<const uint4*>(rows + half_chunk(v, c, 64));
    }
  }
  __device__ void store(int warpgroup, const float (&total)[kHead / 2], const Total (&totals)[2]) {
    const float inverse[2] = {totals[0].inverse(), totals[1].inverse()};
    if (work.q_bf16 && work.head_size == kHead) return store_rows(warpgroup, total, inverse);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int v = warpgroup * 64 + warp * 16 + h * 8 + lane / 4;
      if (v >= tile.vectors) continue;
      const std::int64_t to = out_at(v) + lane % 4 * 2;
#pragma unroll
      for (int n = 0; n < kChunks; ++n) {
        if (n * 8 >= work.head_size) continue;
        store_out(work, to + n * 8, total[n * 4 + h * 2] * inverse[h]),
            store_out(work, to + n * 8 + 1, total[n * 4 + h * 2 + 1] * inverse[h]);
      }
    }
  }
};

#endif

}  // namespace foretoken
