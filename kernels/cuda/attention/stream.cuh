// Attention of a few rows of each of many sequences, bound by memory bandwidth, over pages of bf16 numbers or of codes.
// One warp fills a ring of boxes by TMA: keys, then values of a step. Teams of four warps share each step of up to four
// sets of 8 query vectors of one kv head, so that each number is read from shared memory once for a team
// (team_step.cuh). Of numbers in bf16 the kernel rotates and stores the rows themselves, whose keys and values are
// not read from global memory (stream_own.cuh). Codes have been stored before (store_codes.cu).
//
// Where the sequences do not occupy all multiprocessors, several blocks share the context of a sequence: a cluster,
// which folds the chunks, or blocks that write the chunks to memory. The arithmetic is that of attention.cuh in the
// order of tiles.cuh: the same bits. This header must not know how it is launched.
#pragma once
#include "kernels/cuda/attention/stream_own.cuh"
#include "kernels/cuda/attention/team_fold.cuh"

namespace foretoken {

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

template <int kHeadSize, CacheCodes kCodesOf, int kSets> struct StreamBlock
    : TeamFold<TeamStep<StreamOwn<StreamRows<kHeadSize, kCodesOf, kSets>>>> {
  using Rows = TeamFold<TeamStep<StreamOwn<StreamRows<kHeadSize, kCodesOf, kSets>>>>;
  using Rows::kCodes, Rows::kHead, Rows::kOfTeam, Rows::kWorkers, Rows::kMine, Rows::kOther;
  using Rows::set, Rows::vector, Rows::number, Rows::find;
  using Rows::work, Rows::a, Rows::shared, Rows::exchange, Rows::sum, Rows::mass, Rows::peak, Rows::thread, Rows::warp,
      Rows::lane, Rows::begin, Rows::used, Rows::step, Rows::end;

  float total[kOfTeam][kMine][4];  // of the chunks before
  Total totals[kOfTeam][2];

  using Rows::Rows;

  // ---- chunks ----
  __device__ bool in_cluster() const { return !kCodes && work.cluster() > 1; }
  __device__ void close_chunk(int chunk) {
    if (work.apart) {
      store_chunk(chunk);
    } else if (in_cluster()) {
      if (chunk == chunk_of(Rows::range.begin)) wait_cluster();  // all blocks have started
      Rows::send_sums(chunk - begin);
    } else {
#pragma unroll
      for (int i = 0; i < 2 * kOfTeam; ++i) {
        const int n = i / 2, h = i % 2;
        const Fold by = totals[n][h].fold(a.rules, peak[n][h], mass[n][h]);
#pragma unroll
        for (int m = 0; m < kMine; ++m)
          total[n][m][h] = folded(total[n][m][h], sum[n][m][h], by),
          total[n][m][2 + h] = folded(total[n][m][2 + h], sum[n][m][2 + h], by);
      }
    }
    Rows::clear_chunk();
  }
  __device__ void store_chunk(int chunk) const {
#pragma unroll
    for (int i = 0; i < 2 * kOfTeam; ++i) {
      const int n = i / 2, h = i % 2;
      int of_row, of_head;
      if (!find(vector(n, h), of_row, of_head)) continue;
      const std::int64_t at = piece_at(a, of_row, of_head, chunk);
      if (warp == 0 && lane < 4) a.peaks[at] = {peak[n][h], mass[n][h]};
#pragma unroll
      for (int m = 0; m < kMine; ++m) {
        float* const to = a.sums + at * kHead + number(m);
        if constexpr (kCodes)
          *reinterpret_cast<float2*>(to) = {sum[n][m][h], sum[n][m][2 + h]};
        else
          to[0] = sum[n][m][h], to[kOther] = sum[n][m][2 + h];
      }
    }
  }
  __device__ void store() const {
#pragma unroll
    for (int i = 0; i < 2 * kOfTeam; ++i) {
      const int n = i / 2, h = i % 2;
      int of_row, of_head;
      if (!find(vector(n, h), of_row, of_head)) continue;
      const float inverse = totals[n][h].inverse();
#pragma unroll
      for (int m = 0; m < kMine; ++m)
        Rows::put(Rows::out_at(of_row, of_head) + number(m), total[n][m][h] * inverse, total[n][m][2 + h] * inverse);
    }
  }

  // ---- all of it ----
  __device__ void start() {
#pragma unroll
    for (int i = 0; i < 2 * kOfTeam; ++i) {
      const int n = i / 2, h = i % 2;
      int of_row, of_head;
      const bool mine = find(vector(n, h), of_row, of_head);
      if (warp == 0 && lane < 4)
        exchange[set(n)].sights[lane * 2 + h] = {mine && a.first ? max(a.first[of_row], 0) : 0,
                                                 mine ? a.visible[of_row] : 0};
    }
    wait_for_previous_kernels();
    if constexpr (kCodes) {
      Rows::load_queries();
    } else {
      const typename Rows::Piece piece = Rows::load_piece(thread);
      Rows::load_queries();
      Rows::store_pieces(piece);
    }
#pragma unroll
    for (int i = 0; i < 4 * kMine * kOfTeam; ++i) total[i / (4 * kMine)][i / 4 % kMine][i % 4] = 0;
    Rows::clear_chunk();
    Rows::sync_workers();
  }
  __device__ void done(int& stage, int& parity) {
    __syncwarp();
    if (lane == 0) arrive(&shared.empty[stage]);
    if (++stage == work.stages) stage = 0, parity ^= 1;
  }
  // Waits until a step's keys or values are in a stage.
  __device__ void await(int stage, int parity, [[maybe_unused]] int from, [[maybe_unused]] bool values) {
    wait_barrier(&shared.full[stage], parity);
    if constexpr (!kCodes)
      if (Rows::odd(from)) Rows::patch(stage, from, values);
  }
  // Between two synchronizations of a team each of its warps reads what all wrote before the first.
  __device__ void compute() {
    start();
    for (int at = step, stage = 0, parity = 0; at < end; ++at) {
      float s[kOfTeam][4];
      await(stage, parity, at * kStep, false);
      Rows::scores(stage, s);
      done(stage, parity);
      Rows::hide(at * kStep, s);
      Rows::offer_peaks(s);
      typename Rows::Values values;
      if constexpr (kCodes) await(stage, parity, at * kStep, true), values = Rows::load_codes(stage);
      if constexpr (kCodes) done(stage, parity);
      Rows::sync_team();
      Rows::weigh(values, s);
      if constexpr (!kCodes) await(stage, parity, at * kStep, true);
      Rows::sync_team();
      Rows::add_values(values, stage);
      if constexpr (!kCodes) done(stage, parity);
      if (at + 1 == end || begins_chunk((at + 1) * kStep)) close_chunk(chunk_of(at * kStep));
    }
    if (a.splits == 1) store();
  }
  __device__ void run() {
    if (in_cluster()) {
      Rows::share_units(0, used);
      if (thread == 0) Rows::expect();
      __syncwarp();
      arrive_cluster();  // this block has started: others may write to its shared memory
    }
    if constexpr (!kCodes) Rows::fill_rotations();
    __syncthreads();
    if (thread < kWorkers) {
      compute();
      if (!in_cluster()) return;
      wait_for_cluster(&shared.received, 0);
      Rows::fold_units();
    } else {
      Rows::fill();
      if (in_cluster()) wait_cluster();
    }
  }
};

#endif

template <int kHead, CacheCodes kKind, int kSets>
__global__ void __launch_bounds__(stream_threads(kSets), stream_blocks(kHead, kSets))
    attend_stream(const __grid_constant__ StreamWork work) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  extern __shared__ __align__(1024) std::byte memory[];
  StreamBlock<kHead, kKind, kSets> block(work, memory);
  let_next_kernel_start();
  if (block.open())
    block.run();
  else
    wait_for_previous_kernels();
#endif
}

}  // namespace foretoken
