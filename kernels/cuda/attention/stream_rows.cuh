// The input of a block of stream.cuh: its rows and depths, the ring of boxes that one warp fills, and how the rows
// themselves are rotated and stored, in shared memory and in their pages. This header must not know how a step is
// summed.
#pragma once
#include <climits>

#include "kernels/cuda/attention/decode_rows.cuh"
#include "kernels/cuda/attention/page_boxes.cuh"
#include "kernels/cuda/shared_memory.h"

namespace foretoken {

constexpr int kStreamVectors = 8, kStreamWarps = 8;  // query vectors of a warp; warps that compute, at most

// A DecodeWork of heads of 64 or 128. splits: blocks that share the context of a sequence and kv head.
struct StreamWork {
  DecodeWork of;
  CUtensorMap keys, values;
  int box = 0;             // rows of a copy
  int stages = 2;          // of the ring: keys and values of a step alternate
  std::int64_t bytes = 0;  // of shared memory of a block, at least stream_bytes()
  int warps = 1;           // warps that compute; one more fills the ring
  bool apart = false;      // those that share a context are no cluster that folds its chunks, but write them to `sums`

  __host__ __device__ int cluster() const { return apart ? 1 : of.a.splits; }  // blocks
};

constexpr int kMostStages = 16;
struct StreamShared {
  std::uint64_t full[kMostStages], empty[kMostStages];
  // Of each row: first and last + 1 depth that it attends to, its slot.
  int low[kStreamVectors * kStreamWarps], high[kStreamVectors * kStreamWarps], slot[kStreamVectors * kStreamWarps];
};

// Bytes of shared memory: Bf16 ring[stages][kHead / 64][kStep][64], StreamShared, Bf16 own[2][longest][kHead], Rotation
// rotations[longest][kHead / 2]; where a cluster folds, what this block receives: float2 peaks[chunks][warps * 8] and
// float2 sums[units][32], a unit is 8 numbers of the head of one warp's vectors in one chunk.
static_assert(sizeof(StreamShared) == kStreamFixedBytes);
inline std::int64_t stream_bytes(const StreamWork& w) {
  const AttentionWork& a = w.of.a;
  return attention_stream_bytes(a.head_size, w.stages, w.warps, a.longest, w.cluster(), a.chunks);
}

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

template <int kHead> struct PageStreamRows {
  static constexpr int kHalves = kHead / 64, kChunks = kHead / 8, kStageBytes = kStep * kHead * 2;

  const StreamWork& work;
  const DecodeWork& of;
  const AttentionWork& a;
  std::byte* const ring;
  StreamShared& shared;
  int sequence, head, rank, row, rows, vectors;  // kv head; block of the cluster; the first row and how many
  int begin, chunks, used;                   // the sequence's first chunk and number of chunks; blocks that have some
  DepthRange range;                          // of this block
  int all_low, all_high, own_low, own_high;  // depths that every row attends to; slots of the rows
  int seen_low, seen_high;                   // depths outside are attended to by no row
  int step, end;                             // of this block
  int position;                              // of the first row
  float frequency;                           // of pair `thread`
  const std::int32_t* table;
  Bf16* own;
  Rotation* rotations;
  float2 *peaks, *sums;
  const int thread = int(threadIdx.x), warp = thread / 32, lane = thread % 32, threads;  // threads: those that compute

  __device__ PageStreamRows(const StreamWork& w, std::byte* memory)
      : work(w),
        of(w.of),
        a(w.of.a),
        ring(memory),
        shared(*reinterpret_cast<StreamShared*>(memory + w.stages * kStageBytes)),
        threads(w.warps * 32) {
    own = reinterpret_cast<Bf16*>(&shared + 1);
    rotations = reinterpret_cast<Rotation*>(own + 2 * a.longest * kHead);
    peaks = reinterpret_cast<float2*>(rotations + a.longest * kHead / 2);
    sums = peaks + a.chunks * w.warps * kStreamVectors;
  }

  // ---- the block's work; false: none ----
  __device__ bool open() {
    sequence = int(blockIdx.x) / work.cluster(), head = int(blockIdx.y);
    rank = work.cluster() > 1 ? int(blockIdx.x) % work.cluster() : int(blockIdx.z);
    table = a.tables + std::int64_t(sequence) * a.table_width;
    const bool single = a.rows == a.sequences && a.longest == 1;
    row = single ? sequence : a.begins[sequence], rows = single ? 1 : min(a.begins[sequence + 1] - row, a.longest),
    vectors = rows * a.group;
    if (rows <= 0) return false;
    frequency = of.frequencies[thread % (kHead / 2)], position = of.positions[row];  // loaded with the rest
    int least[3] = {INT_MAX, INT_MAX, INT_MAX}, most[3] = {};
    for (int r = lane; r < rows; r += 32) {
      const int visible = a.visible[row + r], from = a.first ? max(a.first[row + r], 0) : 0, slot = of.slots[row + r];
      least[0] = min(least[0], min(from, slot)), least[1] = min(least[1], visible), least[2] = min(least[2], slot);
      most[0] = max(most[0], max(visible, slot + 1)), most[1] = max(most[1], from), most[2] = max(most[2], slot + 1);
      if (warp == 0) shared.low[r] = from, shared.high[r] = visible, shared.slot[r] = slot;
    }
    seen_low = __reduce_min_sync(~0u, least[0]), all_high = __reduce_min_sync(~0u, least[1]),
    own_low = __reduce_min_sync(~0u, least[2]);
    seen_high = __reduce_max_sync(~0u, most[0]), all_low = __reduce_max_sync(~0u, most[1]),
    own_high = __reduce_max_sync(~0u, most[2]);
    begin = chunk_of(seen_low), chunks = chunks_of(seen_high) - begin;
    used = min(a.splits, most_splits(seen_low, seen_high)), range = split_of(seen_low, seen_high, a.splits, rank);
    if (range.empty()) return false;
    step = range.begin / kStep, end = (range.end + kStep - 1) / kStep;
    if (thread < work.stages) init_barrier(&shared.full[thread], 1), init_barrier(&shared.empty[thread], work.warps);
    fence_barriers();
    return true;
  }

  // ---- the ring, filled by one warp: lane l copies box l % boxes of half l / boxes ----
  __device__ void fill() {
    const int boxes = kStep / work.box, box = lane % boxes, half = lane / boxes;
    const bool mine = half < kHalves;
    const auto page_of = [&](int of_step) {
      const int depth = of_step * kStep + box * work.box,
                index = a.page_shift >= 0 ? depth >> a.page_shift : depth / a.page_rows;
      return mine && depth < seen_high && index < a.table_width ? table[index] : 0;
    };
    const std::uint32_t to = shared_address(ring) + unsigned(half * kStep + box * work.box) * 128;
    int page = page_of(step), behind = page_of(step + 1), stage = 0, parity = 1;
    const std::uint64_t policy = read_once();
    wait_for_previous_kernels();
    for (int of_step = step; of_step < end; ++of_step) {
      const int depth = of_step * kStep + box * work.box,
                row_in_page = a.page_shift >= 0 ? depth & (a.page_rows - 1) : depth % a.page_rows;
      const bool read = mine && depth < seen_high && depth + work.box > seen_low;
      const int bytes = __popc(__ballot_sync(~0u, read)) * work.box * 128;
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        wait_barrier(&shared.empty[stage], parity);
        if (lane == 0) expect_copies(&shared.full[stage], bytes);
        __syncwarp();
        if (read)
          copy_box(to + unsigned(stage * kStageBytes), i ? work.values : work.keys, half * 64, row_in_page, head, page,
                   &shared.full[stage], policy);
        if (++stage == work.stages) stage = 0, parity ^= 1;
      }
      page = behind, behind = page_of(of_step + 2);
    }
  }
  __device__ void sync_workers() const {  // of those that compute
    if (threads == 32)
      __syncwarp();
    else
      asm volatile("bar.sync 1, %0;" ::"r"(threads) : "memory");
  }

  // ---- the rows themselves ----
  __device__ void fill_rotations() {  // by all threads
    constexpr int kHalf = kHead / 2;
    if (thread < kHalf) rotations[thread] = rotation_of(position, frequency);
    for (int i = thread < kHalf ? thread + int(blockDim.x) : thread; i < rows * kHalf; i += int(blockDim.x))
      rotations[i] = rotation_of(of.positions[row + i / kHalf], of.frequencies[i % kHalf]);
  }
  // Of several rows with the same slot (padding) the last is stored.
  __device__ bool last_of_slot(int r) const {
    for (int other = r + 1; other < rows; ++other)
      if (shared.slot[other] == shared.slot[r]) return false;
    return true;
  }
  // Stores the rows whose slots are in this block's range in `own` and in their pages: pieces of 16 bytes, for keys
  // two each.
  struct Piece {
    uint4 low = {}, high = {};
    int page = 0;
  };
  static constexpr int kPairs = kChunks / 2, kPieces = kPairs + kChunks;
  __device__ bool is_here(int r) const { return shared.slot[r] >= range.begin && shared.slot[r] < range.end; }
  __device__ int page_index(int slot) const { return a.page_shift >= 0 ? slot >> a.page_shift : slot / a.page_rows; }
  __device__ Piece load_piece(int i) const {
    Piece p;
    const int r = i / kPieces, c = i % kPieces;
    if (i >= rows * kPieces || !is_here(r)) return p;
    p.page = table[page_index(shared.slot[r])];
    if (c < kPairs) {
      const uint4* const x = reinterpret_cast<const uint4*>(of.k + (row + r) * of.k_stride + head * kHead);
      p.low = x[c], p.high = x[c + kPairs];
    } else {
      p.low = reinterpret_cast<const uint4*>(of.v + (row + r) * of.v_stride + head * kHead)[c - kPairs];
    }
    return p;
  }
  __device__ void store_piece(int i, Piece p) {
    const int r = i / kPieces, c = i % kPieces, slot = shared.slot[r];
    if (!is_here(r) || !last_of_slot(r)) return;
    std::byte* const page = const_cast<std::byte*>(a.pool) + p.page * a.page_bytes;
    const std::int64_t at = (std::int64_t(head) * a.page_rows + (slot - page_index(slot) * a.page_rows)) * kChunks;
    if (c < kPairs) {
      rotate_eight(p.low, p.high, rotations + r * kHead / 2 + c * 8);
      uint4 *const to = reinterpret_cast<uint4*>(own) + r * kChunks, *const too =
                                                                         reinterpret_cast<uint4*>(page + a.keys) + at;
      to[c] = too[c] = p.low, to[c + kPairs] = too[c + kPairs] = p.high;
    } else {
      reinterpret_cast<uint4*>(own)[(a.longest + r) * kChunks + c - kPairs] =
          reinterpret_cast<uint4*>(page + a.values)[at + c - kPairs] = p.low;
    }
  }
  // This warp's vectors as the second factors of products, rotated: lane l holds of vector l / 4 numbers 16 k + 2 (l %
  // 4), the next, and the two numbers eight after them.
  __device__ void load_queries(std::uint32_t (&q)[kHead / 16][2]) const {
    const int v = warp * kStreamVectors + lane / 4, r = min(v, vectors - 1) / a.group;
    const Bf16* const from =
        static_cast<const Bf16*>(a.q) + (row + r) * a.q_stride + (head * a.group + v % a.group) * kHead + lane % 4 * 2;
#pragma unroll
    for (int i = 0; i < kHead / 8; ++i)
      q[i / 2][i % 2] = v < vectors ? *reinterpret_cast<const std::uint32_t*>(from + i * 8) : 0;
    const Rotation* const by = rotations + r * kHead / 2 + lane % 4 * 2;
#pragma unroll
    for (int i = 0; i < kHead / 16; ++i) {
      std::uint32_t &x = q[i / 2][i % 2], &y = q[i / 2 + kHead / 32][i % 2];
      const float2 left = rotated(__uint_as_float(x << 16), __uint_as_float(y << 16), by[i * 8]);
      const float2 right = rotated(__uint_as_float(x & 0xffff0000u), __uint_as_float(y & 0xffff0000u), by[i * 8 + 1]);
      x = pack_bf16(left.x, right.x), y = pack_bf16(left.y, right.y);
    }
  }

  // ---- steps that contain the rows themselves, or keys that some row does not attend to ----
  __device__ bool odd(int from) const {
    return from < all_low || from + kStep > all_high || (from < own_high && from + kStep > own_low);
  }
  __device__ uint4* line(int stage, int key, int c) const {
    return reinterpret_cast<uint4*>(ring + stage * kStageBytes + (c / 8 * kStep + key) * 128) + (c % 8 ^ (key & 7));
  }
  __device__ std::uint64_t seen_keys(int from) const {  // keys that any row attends to
    bool low = false, high = false;
    for (int r = 0; r < rows; ++r) {
      const int begins = shared.low[r] - from, ends = shared.high[r] - from;
      low = low || (lane >= begins && lane < ends), high = high || (lane + 32 >= begins && lane + 32 < ends);
    }
    return __ballot_sync(~0u, low) | std::uint64_t(__ballot_sync(~0u, high)) << 32;
  }
  // Writes zeros to values that no row attends to, in tiles of 16 keys with some that are attended to. Returns the mask
  // of those tiles.
  __device__ unsigned clear_unseen(int stage, int from) const {
    const std::uint64_t seen = seen_keys(from);
    unsigned tiles = 0;
#pragma unroll 1
    for (int t = 0; t < kStep / 16; ++t) {
      const unsigned keys = unsigned(seen >> t * 16) & 0xffffu;
      if (keys != 0) tiles |= 1u << t;
      if (keys == 0 || keys == 0xffffu) continue;
#pragma unroll 4
      for (int key = thread / kChunks; key < 16; key += threads / kChunks)
        if (!(keys >> key & 1)) *line(stage, t * 16 + key, thread % kChunks) = uint4{};
    }
    sync_workers();
    return tiles;
  }
  // Copies the rows' own keys or values to a stage of the ring. For values, returns the mask of clear_unseen().
  __device__ unsigned patch(int stage, int from, bool values) const {
    sync_workers();  // all reads of this stage's previous contents are done: the ring's barriers ensure it too, but
                     // racecheck does not follow them
    const unsigned tiles = values ? clear_unseen(stage, from) : 0;
    for (int i = thread; i < rows * kChunks; i += threads) {
      const int r = i / kChunks, key = shared.slot[r] - from;
      if (key >= 0 && key < kStep && last_of_slot(r))
        *line(stage, key, i % kChunks) =
            reinterpret_cast<const uint4*>(own)[(values * a.longest + r) * kChunks + i % kChunks];
    }
    fence_async_proxy();
    sync_workers();
    return tiles;
  }
};

#endif

// Blocks of the largest cluster that the device runs with `shared_memory` bytes a block.
int stream_cluster(std::int64_t shared_memory);
// Whether the stream route takes this. Sets how many blocks share a context, and the depth of their rings. All blocks
// run at once: a second wave of clusters costs as much as the first, and a cluster costs about 3 us (measured), so
// sequences that occupy nearly all multiprocessors get one block each. Long contexts are shared without clusters.
bool plan_stream(StreamWork& w, const Machine& machine);
void launch_stream(const StreamWork& work, cudaStream_t stream, bool dependent_launch);

}  // namespace foretoken
