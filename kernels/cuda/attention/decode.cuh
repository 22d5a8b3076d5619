// Rotation, storing and attention of a few rows of each sequence in one kernel, for decoding few sequences. Every block
// takes one span of 128 depths (or a few) of the context of one kv head, for up to four sets of query vectors; the
// blocks of a sequence, kv head and its sets form a cluster, which folds the chunks (team_fold.cuh). All copies of a
// span's keys and values are issued before the first is used, and the two steps of a span are scored at once by a team
// each. The keys and values of the rows themselves are not read from global memory: every block rotates those that it
// needs. The kernel is bound by latency, mostly that of instructions that run once, so there is no division by run-time
// values. The arithmetic is that of attention.cuh in the order of tiles.cuh: the same bits. This header must not know
// how it is launched.
#pragma once
#include "kernels/cuda/attention/decode_rows.cuh"
#include "kernels/cuda/attention/team_fold.cuh"

namespace foretoken {

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

template <int kHeadSize, int kSets> struct DecodeBlock : TeamFold<TeamStep<DecodeRows<kHeadSize, kSets>>> {
  using Rows = TeamFold<TeamStep<DecodeRows<kHeadSize, kSets>>>;
  using Rows::work, Rows::a, Rows::shared, Rows::thread, Rows::team, Rows::first, Rows::last;

  using Rows::Rows;

  // What may precede the end of the previous kernels, then a wait for it: initializes the block's barrier, arrives at
  // the cluster's, and copies (settled pages) or prefetches the keys and values of the first span.
  __device__ __forceinline__ void start() {
    const int from = Rows::over(Rows::begin, work.spans);
    Rows::share_units(from, Rows::over(Rows::end - 1, work.spans) - from + 1);
    if (thread == 0) Rows::expect();
    __syncwarp();
    arrive_cluster();  // started: others may write to this block's shared memory
    if (!Rows::sees_all(first) || Rows::owns(first, first + 1)) __syncthreads();  // the rows' bounds in shared memory
    Rows::find_sources(first);
    __syncthreads();
    if (work.settled)
      Rows::request();
    else
      Rows::read_ahead();
    wait_for_previous_kernels();
  }

  __device__ void run() {
    if (first >= last)
      return;  // the cluster's barriers count remaining blocks only, and those wait for earlier kernels
    start();
    const typename Rows::Piece query = Rows::load_query(), own = Rows::load_row(first, thread);
    Rows::fill_rotations();
    __syncthreads();
    for (int span = first; span < last; ++span) {
      float s[kSets][4];
      if (span == first || begins_chunk(span * kSpan)) Rows::clear_chunk();
      if (span != first || !work.settled) Rows::request();
      if (span == first) Rows::store_query(query);
      Rows::store_rows(span, own);
      wait_copies<0>();
      __syncthreads();
      Rows::scores(team * 2, s);
      Rows::hide(span * kSpan + team * kStep, s);
      Rows::offer_peaks(s);
      __syncthreads();
      Rows::weigh({}, s);
      __syncthreads();
      if (span + 1 < last) Rows::page_number = Rows::page_at(span + 1), Rows::find_sources(span + 1);
      Rows::add_values({}, 1);
      if (span == first) wait_cluster();
      if (span + 1 == last || begins_chunk((span + 1) * kSpan)) Rows::send_sums(chunk_of(span * kSpan) - Rows::chunk);
      if (span + 1 < last) __syncthreads();
    }
    if (a.splits == 1)
      __syncthreads();
    else
      wait_for_cluster(&shared.received, 0);
    Rows::fold_units();
  }
};

#endif

template <int kHead, int kSets> __global__ void __launch_bounds__(kDecodeThreads, 2)
    attend_decode(const __grid_constant__ DecodeCall work) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  extern __shared__ __align__(128) std::byte memory[];
  DecodeBlock<kHead, kSets> block(work, *reinterpret_cast<DecodeShared<kHead, kSets>*>(memory));
  let_next_kernel_start();
  if (block.open())
    block.run();
  else
    wait_for_previous_kernels();
#endif
}

}  // namespace foretoken
