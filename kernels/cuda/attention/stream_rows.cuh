// The input of a block of stream.cuh: its rows and depths, its queries, and the ring of keys and values that one warp
// fills. This header must not know how a step is summed.
#pragma once
#include <climits>

#include "kernels/cuda/attention/decode_rows.cuh"
#include "kernels/cuda/attention/page_boxes.cuh"
#include "kernels/cuda/attention/teams.cuh"
#include "kernels/cuda/shared_memory.h"

namespace foretoken {

constexpr int kMostSets = 8, kMostStages = 16;  // of a block; of its ring

// Heads of 64 or 128. splits: blocks that share the context of a sequence and kv head.
struct StreamWork {
  DecodeWork of;  // of codes `a` alone: the rows have been stored
  CUtensorMap keys, values;
  int box = 0;             // rows of a copy
  int stages = 2;          // of the ring: keys and values of a step alternate
  std::int64_t bytes = 0;  // of shared memory of a block, at least stream_bytes()
  int sets = 1;            // of query vectors
  bool apart = false;      // those that share a context are no cluster that folds its chunks, but write them to `sums`

  __host__ __device__ int cluster() const { return apart ? 1 : of.a.splits; }  // blocks
};

constexpr int stream_teams(int sets) { return sets > kTeamSets ? 2 : 1; }
constexpr int stream_threads(int sets) {
  return 32 * (kTeamWarps * stream_teams(sets) + 1);
}  // one warp fills the ring
// Blocks that a multiprocessor runs at once: the limit of registers.
constexpr int stream_blocks(int head, int sets) {
  return sets > kTeamSets ? 1 : sets > 2 ? 2 : head == 128 && sets > 1 ? 3 : 4;
}

// ---- shared memory: see attention_stream_bytes() ----

struct StreamBarriers {
  std::uint64_t full[kMostStages], empty[kMostStages];
  alignas(16) std::uint64_t received;  // of what the cluster sends to this block
};
template <bool kCodes> struct StreamShared : StreamBarriers {
  int slots[kSetVectors * kMostSets];  // of each row
};
template <> struct StreamShared<true> : StreamBarriers {
  float scales[kMostStages][kStep];  // of a stage's keys or values
};
static_assert(sizeof(StreamShared<false>) == stream_fixed_bytes(false) &&
              sizeof(StreamShared<true>) == stream_fixed_bytes(true));
inline std::int64_t stream_bytes(const StreamWork& w) {
  const AttentionWork& a = w.of.a;
  return attention_stream_bytes(a.head_size, a.codes != CacheCodes::none, w.stages, w.sets, a.longest, w.cluster(),
                                a.chunks);
}

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

// kSets: of the block, 1, 2, 4 or 8, the last of which may be empty.
template <int kHeadSize, CacheCodes kCodesOf, int kSets> struct StreamRows {
  static constexpr int kHead = kHeadSize;
  static constexpr CacheCodes kKind = kCodesOf;
  static constexpr bool kCodes = kKind != CacheCodes::none, kPadded = false;
  static constexpr int kBoxes = kCodes ? 1 : kHead / 64;                                   // side by side in a row
  static constexpr int kBoxRow = kCodes ? kHead : 128, kPlane = kStep * kBoxes * kBoxRow;  // bytes
  static constexpr int kTeams = stream_teams(kSets), kOfTeam = kSets / kTeams, kWorkers = 32 * kTeamWarps * kTeams;
  static constexpr int kSteps = 1, kPeers = kTeamWarps;  // at once; warps with the same sets
  static constexpr bool kHold = kSets <= 2;              // queries are kept in registers
  using Exchange = TeamExchange<kCodes, kPeers>;

  const StreamWork& work;
  const DecodeWork& of;
  const AttentionWork& a;
  std::byte* const ring;
  StreamShared<kCodes>& shared;
  Exchange* const exchange;          // [kSets]
  uint4* const queries;              // [kSets][kHead / 32][32], where they are not kept in registers
  Bf16* const own;                   // the rows themselves, not of codes: [2][longest][kHead] keys, values
  Rotation* const rotations;         // [longest][kHead / 2]
  float2 *const peaks, *const sums;  // received from the cluster: see attention_stream_bytes()
  const int thread = int(threadIdx.x), lane = thread % 32, warp = thread / 32 % kTeamWarps, peer = warp,
            team = kTeams == 1 ? 0 : thread / (32 * kTeamWarps), sets;
  uint4 q[kHold ? kOfTeam : 1][kHead / 32];      // queries of the team's sets: two tiles of 16 numbers each
  int sequence, head, rank, row, rows, vectors;  // kv head; block of the context; the first row and how many
  int begin, chunks, used;                   // the sequence's first chunk and number of chunks; blocks that have some
  DepthRange range;                          // of this block
  int all_low, all_high, own_low, own_high;  // depths that every row attends to; slots of the rows
  int seen_low, seen_high;                   // depths outside are attended to by no row
  int step, end;                             // of this block
  int position;                              // of the first row
  float frequency;                           // of pair `thread`
  const std::int32_t* table;

  __device__ StreamRows(const StreamWork& w, std::byte* memory)
      : work(w),
        of(w.of),
        a(w.of.a),
        ring(memory),
        shared(*reinterpret_cast<StreamShared<kCodes>*>(memory + w.stages * kPlane)),
        exchange(reinterpret_cast<Exchange*>(&shared + 1)),
        queries(reinterpret_cast<uint4*>(exchange + kSets)),
        own(reinterpret_cast<Bf16*>(queries + (kHold ? 0 : kSets * kHead))),
        rotations(reinterpret_cast<Rotation*>(own + 2 * a.longest * kHead)),
        peaks(reinterpret_cast<float2*>(rotations + a.longest * kHead / 2)),
        sums(peaks + a.chunks * w.sets * kSetVectors),
        sets(w.sets) {}

  // ---- the block's work; false: none ----
  __device__ bool open() {
    sequence = int(blockIdx.x) / work.cluster(), head = int(blockIdx.y);
    rank = work.cluster() > 1 ? int(blockIdx.x) % work.cluster() : int(blockIdx.z);
    table = table_of(a, sequence, head);
    const bool single = a.rows == a.sequences && a.longest == 1;
    row = single ? sequence : a.begins[sequence], rows = single ? 1 : min(a.begins[sequence + 1] - row, a.longest),
    vectors = rows * a.group;
    if (rows <= 0) return false;
    if constexpr (!kCodes)  // loaded with the rest
      frequency = of.frequencies[thread % (kHead / 2)], position = of.positions[row];
    find_depths();
    if (range.empty() && a.splits > 1) return false;
    step = range.begin / kStep, end = (range.end + kStep - 1) / kStep;
    if (range.empty()) end = step;  // the rows attend to nothing: their results are zeros
    // full: the copy engine's bytes, and scales that each lane copies itself
    if (thread < work.stages)
      init_barrier(&shared.full[thread], kCodes ? 1 + 32 : 1), init_barrier(&shared.empty[thread], kWorkers / 32);
    fence_barriers();
    return true;
  }
  __device__ void find_depths() {
    int least[3] = {INT_MAX, INT_MAX, INT_MAX}, most[3] = {};
    for (int r = lane; r < rows; r += 32) {
      const int visible = a.visible[row + r], from = a.first ? max(a.first[row + r], 0) : 0;
      least[0] = min(least[0], from), least[1] = min(least[1], visible);
      most[0] = max(most[0], visible), most[1] = max(most[1], from);
      if constexpr (!kCodes) {
        const int slot = of.slots[row + r];
        least[0] = min(least[0], slot), least[2] = min(least[2], slot);
        most[0] = max(most[0], slot + 1), most[2] = max(most[2], slot + 1);
        if (thread < 32) shared.slots[r] = slot;
      }
    }
    seen_low = __reduce_min_sync(~0u, least[0]), all_high = __reduce_min_sync(~0u, least[1]);
    seen_high = __reduce_max_sync(~0u, most[0]), all_low = __reduce_max_sync(~0u, most[1]);
    if constexpr (!kCodes) own_low = __reduce_min_sync(~0u, least[2]), own_high = __reduce_max_sync(~0u, most[2]);
    begin = chunk_of(seen_low), chunks = chunks_of(seen_high) - begin;
    used = min(a.splits, most_splits(seen_low, seen_high)), range = split_of(seen_low, seen_high, a.splits, rank);
  }

  // ---- query vectors ----
  // The row and query head of vector v of this block; false: there is none.
  __device__ bool find(int v, int& of_row, int& of_head) const {
    const int r = v / a.group;
    of_row = row + r, of_head = head * a.group + v - r * a.group;
    return v < vectors;
  }
  // Vector l / 4 of set n as the second factors of two products of sixteen each: numbers 16 k + 2 (l % 4), the next,
  // and the two numbers eight after them, rotated; of codes in the order of cache_codes.cuh.
  __device__ void load_set(int n, uint4 (&q)[kHead / 32]) const {
    const int v = n * kSetVectors + lane / 4, r = min(v, vectors - 1) / a.group;
    const Bf16* const from =
        static_cast<const Bf16*>(a.q) + (row + r) * a.q_stride + (head * a.group + v % a.group) * kHead;
    if constexpr (kCodes) {
#pragma unroll
      for (int k = 0; k < kHead / 32; ++k) {
        const Bf16* const at = from + k * 32 + lane % 4 * 4;
        uint2 x = {}, y = {};
        if (v < vectors) x = *reinterpret_cast<const uint2*>(at), y = *reinterpret_cast<const uint2*>(at + 16);
        q[k] = {alternate_numbers(x.x, x.y, 0), alternate_numbers(x.x, x.y, 1), alternate_numbers(y.x, y.y, 0),
                alternate_numbers(y.x, y.y, 1)};
      }
    } else {
      std::uint32_t x[kHead / 8];
#pragma unroll
      for (int i = 0; i < kHead / 8; ++i)
        x[i] = v < vectors ? *reinterpret_cast<const std::uint32_t*>(from + i * 8 + lane % 4 * 2) : 0;
      const Rotation* const by = rotations + r * kHead / 2 + lane % 4 * 2;
#pragma unroll
      for (int i = 0; i < kHead / 16; ++i) rotate_two(x[i], x[i + kHead / 16], by + i * 8);
#pragma unroll
      for (int k = 0; k < kHead / 32; ++k) q[k] = {x[k * 4], x[k * 4 + 1], x[k * 4 + 2], x[k * 4 + 3]};
    }
  }

  __device__ int set(int n) const { return team * kOfTeam + n; }
  __device__ static int over(int n, int d) { return n / d; }
  __device__ void load_queries() {
    if constexpr (kHold) {
#pragma unroll
      for (int n = 0; n < kOfTeam; ++n) load_set(n, q[n]);
    } else {
      static_assert(kOfTeam == kTeamWarps);
      load_set(set(warp), q[0]);
#pragma unroll
      for (int k = 0; k < kHead / 32; ++k) queries[(set(warp) * (kHead / 32) + k) * 32 + lane] = q[0][k];
    }
  }
  // The second factors of two products of set n of the team.
  __device__ uint4 query(int n, int k) const {
    if constexpr (kHold)
      return q[n][k];
    else
      return queries[(set(n) * (kHead / 32) + k) * 32 + lane];
  }

  // ---- the ring: lane l copies box l % boxes of column l / boxes of a row ----
  __device__ void fill() {
    const int boxes = kStep / work.box, box = lane % boxes, column = lane / boxes;
    const auto index_of = [&](int depth) { return a.page_shift >= 0 ? depth >> a.page_shift : depth / a.page_rows; };
    const auto page_of = [&](int of_step) {
      const int depth = of_step * kStep + box * work.box, index = index_of(depth);
      const bool read = column < kBoxes && depth < seen_high && depth + work.box > seen_low && index < a.table_width;
      return read ? table[index] : -1;
    };
    const std::uint32_t to = shared_address(ring) + unsigned(column * kStep + box * work.box) * kBoxRow;
    const std::uint64_t policy = read_once();
    int page = page_of(step), behind = page_of(step + 1), stage = 0, parity = 1;
    wait_for_previous_kernels();
    for (int at = step; at < end; ++at) {
      const int depth = at * kStep + box * work.box, in_page = depth - index_of(depth) * a.page_rows,
                bytes = __popc(__ballot_sync(~0u, page >= 0)) * work.box * kBoxRow;
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        wait_barrier(&shared.empty[stage], parity);
        if (lane == 0) expect_copies(&shared.full[stage], bytes);
        __syncwarp();
        if constexpr (kCodes) copy_scales(stage, i ? a.value_scales : a.key_scales, page, in_page);
        if (page >= 0)
          copy_box(to + unsigned(stage * kPlane), i ? work.values : work.keys, column * 64, in_page, head, page,
                   &shared.full[stage], policy);
        if (++stage == work.stages) stage = 0, parity ^= 1;
      }
      page = behind, behind = page_of(at + 2);
    }
    if constexpr (kCodes) wait_copies<0>();
  }
  // Sixteen lanes copy four scales each, zeros where a page is -1; `page` and `in_page` are those of this lane's box.
  // One instruction copies the scales of a stage, where the copy engine would take one for each box of them.
  __device__ void copy_scales(int stage, std::int64_t scales, int page, int in_page) {
    const int four = lane % 16 * 4, source = four >> (__ffs(work.box) - 1), from = __shfl_sync(~0u, page, source),
              at = __shfl_sync(~0u, in_page, source) + (four & (work.box - 1));
    if (lane < 16)
      copy_behind(shared_address(shared.scales[stage] + four),
                  a.pool + max(from, 0) * a.page_bytes + scales + (std::int64_t(head) * a.page_rows + at) * 4,
                  from >= 0);
    arrive_behind_copies(shared_address(&shared.full[stage]));
  }
  __device__ void sync_team() const {
    asm volatile("bar.sync %0, %1;" ::"r"(1 + team), "n"(32 * kTeamWarps) : "memory");
  }
  __device__ static void sync_workers() { asm volatile("bar.sync 3, %0;" ::"n"(kWorkers) : "memory"); }
};

#endif

// Blocks of the largest cluster that the device runs with `shared_memory` bytes a block.
int stream_cluster(std::int64_t shared_memory);
// Whether the stream route takes this. Sets how many blocks share a context, and the depth of their rings. All blocks
// run at once: a second wave of clusters costs as much as the first, and a cluster costs about 3 us (measured), so
// sequences that occupy nearly all multiprocessors get one block each. Long contexts are shared without clusters.
bool plan_stream(StreamWork& w, const Machine& machine);
// The same of rows that have been stored in a quantized cache. `architecture`: the GPU's, as in 90.
bool plan_coded_stream(StreamWork& w, const AttentionWork& a, const Machine& machine, int architecture);
void launch_stream(const StreamWork& work, cudaStream_t stream, bool dependent_launch);

}  // namespace foretoken
