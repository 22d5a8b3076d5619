// The input of a block of tiles.cuh: its tile and steps, its shared memory, the ring to which keys and values of steps
// are copied ahead, and loading of its queries. This header must not know how a step is computed.
#pragma once
#include "kernels/cuda/attention/tile.cuh"
#include "kernels/cuda/instructions/matrix_tiles.cuh"

namespace foretoken {

constexpr int kTileThreads = 128;

// kHead: numbers of a head in shared memory (a smaller one is padded by zeros); kRows: 16 kGroups vectors; kStages of
// the ring: see tile_stages(); kCodes: of a quantized cache.
template <int kHead, int kGroups, int kStages, bool kCodes = false> struct TileShared {
  static constexpr int kRows = 16 * kGroups, kChunks = kHead / 8;
  struct alignas(128) Stage {
    Bf16 keys[kStep * kHead], values[kStep * kHead];
  };
  Stage stages[kStages];
  alignas(128) Bf16 q[kRows * kHead];
  alignas(128) Bf16 weights[kRows * kStep];
  float peaks[4][kRows];
  TileSights<kRows> sights;

  __device__ const Bf16* keys(int stage) const { return stages[stage].keys; }
  __device__ const Bf16* values(int stage) const { return stages[stage].values; }
};
// The ring holds codes and scales. Those of the current step become bf16 in `numbers`: its keys, then its values.
template <int kHead, int kGroups, int kStages> struct TileShared<kHead, kGroups, kStages, true> {
  static constexpr int kRows = 16 * kGroups, kChunks = kHead / 8;
  struct alignas(128) Stage {
    std::uint8_t keys[kStep * kHead], values[kStep * kHead];
    float scales[2][kStep];  // of keys, of values
  };
  Stage stages[kStages];
  alignas(128) Bf16 numbers[kStep * kHead];
  alignas(128) Bf16 q[kRows * kHead];
  alignas(128) Bf16 weights[kRows * kStep];
  alignas(128) Bf16 scaled[kRows * kStep];  // weights times the scales of values
  float peaks[4][kRows];
  TileSights<kRows> sights;

  __device__ const Bf16* keys(int) const { return numbers; }
  __device__ const Bf16* values(int) const { return numbers; }
};

template <int kHead, int kGroups, int kStages, bool kCodes = false> struct TileSteps {
  using Shared = TileShared<kHead, kGroups, kStages, kCodes>;
  using Cursor = StepCursor<Shared::kRows>;
  static constexpr int kRows = Shared::kRows, kChunks = Shared::kChunks;

  const AttentionWork& work;
  Shared& shared;
  TilePosition tile;
  TileBounds bounds;
  Cursor fetched;              // the step that is copied next
  StepPages pages;             // its
  int head;                    // kv head
  int begin_chunk, end_chunk;  // of this block
  const int thread = int(threadIdx.x), warp = thread / 32, lane = thread % 32;

  __device__ TileSteps(const AttentionWork& w, Shared& s) : work(w), shared(s) {}

  // ---- the block's work ----
  // False: the block has no work.
  __device__ bool open() {
    tile = find_tile(work, int(gridDim.x - 1 - blockIdx.x), work.tile);
    if (tile.sequence < 0) return false;
    head = int(blockIdx.y);
    shared.sights.fill(work, tile, thread);
    __syncthreads();
    bounds = TileBounds::of(shared.sights, tile.vectors);
    const DepthRange range = split_of(bounds.low, bounds.end, work.splits, int(blockIdx.z));
    begin_chunk = chunk_of(range.begin), end_chunk = range.empty() ? begin_chunk : chunks_of(range.end);
    return work.sums == nullptr || !range.empty();
  }

  __device__ std::int64_t row_of(int v) const { return tile.row + (tile.vector + v) / work.group; }
  __device__ int head_of(int v) const { return head * work.group + (tile.vector + v) % work.group; }  // query head

  // ---- copies ----
  // Looks up the pages of the next step, one step before they are needed.
  __device__ void look_up() {
    if (fetched.done(end_chunk)) return;
    Sight s{bounds.low, INT_MAX, bounds.high};
    if (fetched.row >= 0) s = shared.sights.of(max(fetched.row * work.group - tile.vector, 0));
    pages.look_up(work, table_of(work, tile.sequence, head), fetched.step, s.first, s.end,
                  [&](int depth) { return slot_at(work, tile.row + fetched.row, s, depth); });
  }

  __device__ void fetch(int stage) {
    if (!fetched.done(end_chunk)) {
      auto& to = shared.stages[stage];
      if constexpr (kCodes)
        pages.copy_codes<kHead>(work, head, shared_address(to.keys), shared_address(to.values),
                                shared_address(to.scales), thread);
      else
        pages.copy<kChunks>(work, head, shared_address(to.keys), shared_address(to.values), thread, swizzled<kChunks>);
      fetched.advance(shared.sights, bounds, tile, work.group, end_chunk);
      look_up();
    }
    end_copies();
  }

  // Waits for the previous kernels, requests the first kStages - 1 steps and loads the queries, for which the caller
  // synchronizes the block. Returns the first step.
  __device__ __forceinline__ Cursor start() {
    Cursor at;
    at.start(begin_chunk, shared.sights, bounds, tile, work.group, end_chunk);
    fetched = at;
    look_up();
    wait_for_previous_kernels();
    for (int i = 0; i < kStages - 1; ++i) fetch(i);
    load_queries<kChunks>(work, tile, head, 0, kRows, reinterpret_cast<std::byte*>(shared.q), thread,
                          swizzled<kChunks>);
    return at;
  }

  // Waits until the current step is in `stage`. With several stages, it then requests the step kStages - 1 later, in
  // the stage of the step before, which all warps have read; with one stage, it first copies the current step itself.
  __device__ __forceinline__ void next_stage(int stage) {
    if constexpr (kStages == 1) {
      __syncthreads();  // all warps have read the previous step
      fetch(0);
      wait_copies<0>();
      __syncthreads();
    } else {
      wait_copies<kStages - 2>();
      __syncthreads();
      fetch(stage == 0 ? kStages - 1 : stage - 1);
    }
  }

  // Keys or values of the step in `stage` become numbers. All warps have read the numbers before; the caller
  // synchronizes.
  __device__ void unpack(int stage, bool values) {
    if (work.codes == CacheCodes::int8)
      unpack_all<CacheCodes::int8>(stage, values);
    else
      unpack_all<CacheCodes::e4m3>(stage, values);
  }
  template <CacheCodes kKind> __device__ __forceinline__ void unpack_all(int stage, bool values) {
    const auto& from = shared.stages[stage];
    if (values) {
#pragma unroll 4
      for (int i = thread; i < kStep * kChunks; i += kTileThreads)
        *vector_of(shared.numbers, i / kChunks, i % kChunks) =
            eight_of_codes<kKind>(reinterpret_cast<const uint2*>(from.values)[i]);
    } else {
#pragma unroll 2
      for (int i = thread; i < kStep * kChunks / 2; i += kTileThreads)
        store_sixteen(shared.numbers, i, sixteen_of_codes<kKind>(reinterpret_cast<const uint4*>(from.keys)[i]));
    }
  }
  // The queries in the order of keys. The caller synchronizes before and after.
  __device__ void reorder_queries() {
    for (int i = thread; i < kRows * kChunks / 2; i += kTileThreads) {
      const int v = i / (kChunks / 2), c = i % (kChunks / 2) * 2;
      store_sixteen(shared.q, i, alternated({*vector_of(shared.q, v, c), *vector_of(shared.q, v, c + 1)}));
    }
  }

 private:
  __device__ static uint4* vector_of(Bf16* tile, int row, int c) {
    return reinterpret_cast<uint4*>(reinterpret_cast<std::byte*>(tile) + swizzled<kChunks>(row, c));
  }
  // Numbers 16 i of a tile on.
  __device__ static void store_sixteen(Bf16* tile, int i, const Sixteen& s) {
    const int row = i / (kChunks / 2), c = i % (kChunks / 2) * 2;
    *vector_of(tile, row, c) = s.low, *vector_of(tile, row, c + 1) = s.high;
  }
};

}  // namespace foretoken
