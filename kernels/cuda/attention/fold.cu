// Folds the chunks of each row that blocks wrote to memory into its result, in order: see attention.cuh. Bytes: 4 *
// chunks * (head_size + 2) read for each row and head, mostly from L2.
#include "kernels/cuda/attention/attention.cuh"

namespace foretoken {
namespace {

constexpr int kThreads = 64, kAhead = 16;  // kAhead: chunks that a thread reads before it adds them

// One thread sums four numbers of the head.
template <bool kRules> __global__ void __launch_bounds__(kThreads)
    fold_chunks(const __grid_constant__ AttentionWork work) {
  let_next_kernel_start();
  const int quads = work.head_size / 4;
  const std::int64_t unit = std::int64_t(blockIdx.x) * kThreads + threadIdx.x, vector = unit / quads;
  const int quad = int(unit % quads), row = work.first_row + int(vector / work.heads), head = int(vector % work.heads);
  const bool mine = vector < std::int64_t(work.rows) * work.heads;
  const Sight sight = mine ? sight_of(work, row) : Sight{};
  wait_for_previous_kernels();
  if (!mine) return;
  const int begin = chunk_of(sight.first), end = sight.end > sight.first ? chunks_of(sight.end) : begin;
  const float4* sums = reinterpret_cast<const float4*>(work.sums) + piece_at(work, row, head, 0) * quads + quad;
  const float2* peaks = work.peaks + piece_at(work, row, head, 0);
  Total of_row;
  float4 total = {};
  for (int c = begin; c < end; c += kAhead) {
    float2 of[kAhead];
    float4 sum[kAhead];
#pragma unroll
    for (int i = 0; i < kAhead; ++i)
      if (c + i < end) of[i] = peaks[c + i], sum[i] = sums[std::int64_t(c + i) * quads];
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      if (c + i >= end) break;
      const Fold by = of_row.fold(work.rules, of[i].x, of[i].y);
      total = {folded(total.x, sum[i].x, by), folded(total.y, sum[i].y, by), folded(total.z, sum[i].z, by),
               folded(total.w, sum[i].w, by)};
    }
  }
  float keep = 1;
  if constexpr (kRules) keep = of_row.join_sink(work.rules, head);
  const float inverse = kRules ? keep * of_row.inverse() : of_row.inverse();
  const std::int64_t at = (std::int64_t(row) * work.heads + head) * work.head_size + quad * 4;
  store_out(work, at, total.x * inverse), store_out(work, at + 1, total.y * inverse);
  store_out(work, at + 2, total.z * inverse), store_out(work, at + 3, total.w * inverse);
}

}  // namespace

void launch_fold(const AttentionWork& work, cudaStream_t stream, bool dependent_launch) {
  Grid grid{dim3(blocks_for(std::int64_t(work.rows) * work.heads * (work.head_size / 4), kThreads)), kThreads};
  grid.dependent_launch = dependent_launch;
  launch_kernel("attend", stream, grid, work.rules.any() ? fold_chunks<true> : fold_chunks<false>, work);
}

}  // namespace foretoken
