// The input of a block of coded_stream.cuh: its rows and depths, and the ring of codes and scales that one warp fills.
// This header must not know how a step is summed.
#pragma once
#include <climits>

#include "kernels/cuda/attention/attention.cuh"
#include "kernels/cuda/attention/page_boxes.cuh"
#include "kernels/cuda/attention/plans.h"
#include "kernels/cuda/instructions/matrix_tiles.cuh"
#include "kernels/cuda/shared_memory.h"

namespace foretoken {

constexpr int kCodedVectors = 8, kCodedSets = 4;      // of a set; sets of a block, at most
constexpr int kCodedWarps = 4, kCodedStages = 8;      // warps that compute; stages of the ring, at most
constexpr int kCodedThreads = 32 * kCodedWarps + 32;  // one more warp fills the ring
// Blocks that a multiprocessor runs at once: the limit of registers.
constexpr int coded_stream_blocks(int head, int sets) { return sets > 2 ? 2 : head == 128 && sets > 1 ? 3 : 4; }

// Heads of 64 or 128, no trees, queries in bf16 and aligned.
struct CodedStreamWork {
  AttentionWork a;
  CUtensorMap keys, values;
  int box = 0;     // rows of a copy
  int stages = 2;  // of the ring
  int sets = 1;    // of 8 query vectors: 1, 2 or 4
};

// What warps exchange for a set, mostly in a step, of which warp w computes keys 16 w ... 16 w + 15.
struct CodedExchange {
  // The second factors of those keys, as lanes hold them: two registers of weights, and two of weights times the scales
  // of values.
  uint4 weights[kCodedWarps][32];
  float peaks[kCodedWarps][kCodedVectors];
  int2 sights[kCodedVectors];  // a vector attends to depths [x, y)
};
static_assert(sizeof(CodedExchange) == kCodedExchangeBytes);

// Shared memory: codes [stages][2][kStep][kHead], this, CodedExchange [sets], then, of four sets, their queries as the
// second factors of products: uint4 [sets][kHead / 32][32].
struct CodedShared {
  float scales[kCodedStages][2][kStep];  // of keys, of values
  std::uint64_t full[kCodedStages], empty[kCodedStages];
};
static_assert(sizeof(CodedShared) == kCodedStreamFixedBytes);

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

template <int kHead> struct CodedStreamRows {
  static constexpr int kPlane = kStep * kHead;

  const CodedStreamWork& work;
  const AttentionWork& a;
  std::byte* const ring;
  CodedShared& shared;
  CodedExchange* const exchange;
  uint4* const queries;
  const int thread = int(threadIdx.x), warp = thread / 32, lane = thread % 32;
  int sequence, head, row, rows, vectors;  // kv head; the sequence's first row and how many
  int seen_low, seen_high;                 // depths outside are attended to by no row
  int all_low, all_high;                   // every row attends to the depths between
  int step, end;                           // of this block

  __device__ CodedStreamRows(const CodedStreamWork& w, std::byte* memory)
      : work(w),
        a(w.a),
        ring(memory),
        shared(*reinterpret_cast<CodedShared*>(memory + w.stages * 2 * kPlane)),
        exchange(reinterpret_cast<CodedExchange*>(&shared + 1)),
        queries(reinterpret_cast<uint4*>(exchange + w.sets)) {}

  // ---- the block's work; false: none ----
  __device__ bool open() {
    sequence = int(blockIdx.x), head = int(blockIdx.y), row = a.begins[sequence];
    rows = min(a.begins[sequence + 1] - row, a.longest), vectors = rows * a.group;
    if (rows <= 0) return false;
    int least[2] = {INT_MAX, INT_MAX}, most[2] = {};
    for (int r = lane; r < rows; r += 32) {
      const int visible = a.visible[row + r], from = a.first ? max(a.first[row + r], 0) : 0;
      least[0] = min(least[0], from), least[1] = min(least[1], visible);
      most[0] = max(most[0], visible), most[1] = max(most[1], from);
    }
    seen_low = __reduce_min_sync(~0u, least[0]), all_high = __reduce_min_sync(~0u, least[1]);
    seen_high = __reduce_max_sync(~0u, most[0]), all_low = __reduce_max_sync(~0u, most[1]);
    const DepthRange range = split_of(seen_low, seen_high, a.splits, int(blockIdx.z));
    if (range.empty() && a.sums != nullptr) return false;
    step = range.begin / kStep, end = (range.end + kStep - 1) / kStep;
    if (range.empty()) end = step;  // the rows attend to nothing: their results are zeros
    if (thread < work.stages)       // full: the copy engine's bytes, and what each lane copies itself
      init_barrier(&shared.full[thread], 1 + 32), init_barrier(&shared.empty[thread], kCodedWarps);
    fence_barriers();
    return true;
  }

  // ---- query vectors ----
  // The row and query head of vector 2 (l % 4) + h of set n of this block; false: there is none.
  __device__ bool find(int n, int h, int& of_row, int& of_head) const {
    const int v = n * kCodedVectors + lane % 4 * 2 + h, r = v / a.group;
    of_row = row + r, of_head = head * a.group + v - r * a.group;
    return v < vectors;
  }
  // Vector l / 4 of set n as the second factors of two products of sixteen, numbers 32 k ... 32 k + 31, in the order of
  // cache_codes.cuh.
  __device__ uint4 load_query(int n, int k) const {
    const int v = n * kCodedVectors + lane / 4, r = min(v, vectors - 1) / a.group;
    const Bf16* const from = static_cast<const Bf16*>(a.q) + (row + r) * a.q_stride +
                             (head * a.group + v % a.group) * kHead + k * 32 + lane % 4 * 4;
    uint2 x = {}, y = {};
    if (v < vectors) x = *reinterpret_cast<const uint2*>(from), y = *reinterpret_cast<const uint2*>(from + 16);
    return {alternate_numbers(x.x, x.y, 0), alternate_numbers(x.x, x.y, 1), alternate_numbers(y.x, y.y, 0),
            alternate_numbers(y.x, y.y, 1)};
  }

  // ---- the ring ----
  // Lane l copies scales 4 (l % 16) ... of keys (l / 16 = 0) or values (1), and box l % 8 of keys (l / 8 = 0) or
  // values. One instruction copies the scales of a step, where the copy engine would take one for each box of them.
  __device__ void fill() {
    const int boxes = kStep / work.box, box = lane % 8, what = lane / 8, four = lane % 16 * 4,
              shift = __ffs(work.box) - 1;
    const std::int32_t* const table = table_of(a, sequence, head);
    const auto index_of = [&](int depth) { return a.page_shift >= 0 ? depth >> a.page_shift : depth / a.page_rows; };
    const auto reads = [&](int depth) { return box < boxes && depth < seen_high && depth + work.box > seen_low; };
    const auto page_of = [&](int of_step) {
      const int depth = of_step * kStep + box * work.box;
      return reads(depth) ? table[index_of(depth)] : -1;
    };
    const std::uint64_t policy = read_once();
    int page = page_of(step), behind = page_of(step + 1);
    wait_for_previous_kernels();
    for (int at = step, stage = 0, parity = 1; at < end; ++at) {
      const int depth = at * kStep + box * work.box, in_page = depth - index_of(depth) * a.page_rows;
      wait_barrier(&shared.empty[stage], parity);
      const int copies = __popc(__ballot_sync(~0u, page >= 0 && what == 0));
      if (lane == 0) expect_copies(&shared.full[stage], copies * work.box * 2 * kHead);
      __syncwarp();
      const int source = four >> shift, from = __shfl_sync(~0u, page, source),
                row_in_page = __shfl_sync(~0u, in_page, source) + (four & (work.box - 1));
      copy_scales(stage, four, from, row_in_page);
      if (page >= 0 && what < 2)
        copy_box(shared_address(ring) + unsigned((stage * 2 + what) * kPlane + box * work.box * kHead),
                 what ? work.values : work.keys, 0, in_page, head, page, &shared.full[stage], policy);
      if (++stage == work.stages) stage = 0, parity ^= 1;
      page = behind, behind = page_of(at + 2);
    }
    wait_copies<0>();
  }
  // Scales of four keys from a row of a page on; zeros where page is -1.
  __device__ void copy_scales(int stage, int four, int page, int in_page) {
    const bool values = lane >= 16;
    copy_behind(shared_address(shared.scales[stage][values] + four),
                a.pool + max(page, 0) * a.page_bytes + (values ? a.value_scales : a.key_scales) +
                    (std::int64_t(head) * a.page_rows + in_page) * 4,
                page >= 0);
    arrive_behind_copies(shared_address(&shared.full[stage]));
  }
};

#endif

// Whether this route takes the work; then sets its splits. `architecture`: the GPU's, as in 90.
bool plan_coded_stream(CodedStreamWork& to, const AttentionWork& a, const Machine& machine, int architecture);
void launch_coded_stream(const CodedStreamWork& work, cudaStream_t stream, bool dependent_launch);

}  // namespace foretoken
