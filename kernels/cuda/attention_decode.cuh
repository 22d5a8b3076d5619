// Rotation, storing and attention of a few rows of each sequence in one kernel, for little work at once: decode of few sequences.
// Every block takes one chunk of the context of one kv head (or few, one after another); the blocks of a sequence and kv head are
// a cluster, which hands its chunks' sums round and folds them, a piece of the result each. All keys and values of a chunk are
// asked for before the first is used, and both steps of a chunk are scored at once by four warps each. The keys and values of
// the rows themselves never come from memory: every block turns those that it needs.
// The arithmetic is that of attention.cuh in the order of attention_tiles.cuh: the same bits. This room must not know who launches it.
#pragma once
#include <cooperative_groups.h>

#include "kernels/cuda/attention_decode_rows.cuh"

namespace foretoken {

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

template <int kHead> struct DecodeBlock : DecodeRows<kHead> {
  using Rows = DecodeRows<kHead>;
  using Rows::a, Rows::shared, Rows::sequence, Rows::head, Rows::rank, Rows::row, Rows::rows, Rows::vectors, Rows::begin, Rows::end, Rows::first, Rows::last;
  using Rows::receiver, Rows::piece, Rows::page_number, Rows::table, Rows::peaks, Rows::sums, Rows::thread, Rows::warp, Rows::lane, Rows::kChunks;
  static constexpr int kColumns = kHead / 64;  // 8-wide columns of the values that a warp sums

  Quad q_held[kHead / 16];

  using Rows::Rows;

  // ---- keys and values ----
  __device__ void find_sources(int chunk) {
    if (thread >= kChunk) return;
    const int depth = chunk * kChunk + thread;
    bool seen = false, own = false;
    for (int r = 0; r < rows; ++r) seen = seen || (depth >= shared.low[r] && depth < shared.high[r]), own = own || depth == shared.slot[r];
    const int at = a.page_shift >= 0 ? depth & ((1 << a.page_shift) - 1) : depth % a.page_rows;
    const std::int64_t from = page_number * a.page_bytes + (std::int64_t(head) * a.page_rows + at) * a.head_size * 2;
    shared.source[thread] = own ? kOwn - from : seen ? from : kNowhere;
  }
  // Towards the second-level cache, which every later writer goes through: allowed before earlier kernels are done.
  __device__ void read_ahead() const {
    for (int i = thread; i < 2 * kChunk * kHead / 64; i += kDecodeThreads) {
      const int key = i / 2 / (kHead / 64), line = i / 2 % (kHead / 64);
      const std::int64_t from = shared.source[key];
      if (from >= 0 && line * 64 < a.head_size) asm volatile("prefetch.global.L2 [%0];" ::"l"(a.pool + (i % 2 ? a.values : a.keys) + from + line * 128));
    }
  }
  __device__ void ask() {
    constexpr int kLines = kDecodeThreads / kChunks;  // keys at once
    const std::uint32_t keys = shared_address(shared.keys), values = shared_address(shared.values);
    const int c = thread % kChunks, line = thread / kChunks;
    const bool inside = c * 8 < a.head_size;
#pragma unroll
    for (int i = 0; i < kChunk / kLines; ++i) {
      const int key = line + i * kLines, to = swizzled<kChunks>(key, c);
      const std::int64_t from = shared.source[key];
      if (from <= kOwn) continue;
      const bool read = from >= 0 && inside;
      const std::byte* const at = a.pool + (read ? from + c * 16 : 0);
      copy_behind(keys + to, at + a.keys, read);
      copy_behind(values + to, at + a.values, read);
    }
    end_copies();
  }

  // ---- a chunk ----
  // Warp w weighs keys 16 w ... 16 w + 15 of the chunk.
  __device__ void scores(int chunk, float (&s)[2][4]) {
    const std::uint32_t keys = shared_address(shared.keys);
#pragma unroll
    for (int i = 0; i < 8; ++i) s[i / 4][i % 4] = 0;
#pragma unroll
    for (int k = 0; k < kHead / 16; ++k) {
      const Quad b = load_quad(keys + swizzled<kChunks>(warp * 16 + (lane & 7) + (lane >> 4) * 8, k * 2 + (lane >> 3 & 1)));
      multiply_add(s[0], q_held[k], b.r[0], b.r[1]);
      multiply_add(s[1], q_held[k], b.r[2], b.r[3]);
    }
    const int depth = chunk * kChunk + warp * 16 + lane % 4 * 2;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int v = h * 8 + lane / 4, r = v / a.group, low = v < vectors ? shared.low[r] : 0, high = v < vectors ? shared.high[r] : 0;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int d = depth + i / 2 * 8 + i % 2;
        if (d < low || d >= high) s[i / 2][h * 2 + i % 2] = kUnseen;
      }
      float most = fmaxf(fmaxf(s[0][h * 2], s[0][h * 2 + 1]), fmaxf(s[1][h * 2], s[1][h * 2 + 1]));
      most = fmaxf(most, __shfl_xor_sync(~0u, most, 1));
      most = fmaxf(most, __shfl_xor_sync(~0u, most, 2));
      if (lane % 4 == 0) shared.peaks[warp / 4][warp % 4][v] = most;
    }
  }

  // Scores become weights; says each vector's greatest score and by what the first step's sums must be multiplied.
  __device__ void weigh(const float (&s)[2][4], float (&peak)[2], float (&keep)[2]) {
    const int step = warp / 4;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int v = h * 8 + lane / 4;
      float most[kDecodeSteps];
#pragma unroll
      for (int i = 0; i < kDecodeSteps; ++i)
        most[i] = fmaxf(fmaxf(shared.peaks[i][0][v], shared.peaks[i][1][v]), fmaxf(shared.peaks[i][2][v], shared.peaks[i][3][v]));
      peak[h] = fmaxf(most[0], most[1]), keep[h] = rescale(most[0], peak[h], a.scale);
      const float now = step == 0 ? most[0] : peak[h], base = now == kUnseen ? 0.0f : now * a.scale;
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const float low = exp2_fast(__fmaf_rn(s[j][h * 2], a.scale, -base)), high = exp2_fast(__fmaf_rn(s[j][h * 2 + 1], a.scale, -base));
        *reinterpret_cast<std::uint32_t*>(reinterpret_cast<std::byte*>(shared.weights[step]) + swizzled<8>(v, warp % 4 * 2 + j) + lane % 4 * 4) = pack_bf16(low, high);
      }
    }
  }

  // Warp w sums the 8 kColumns numbers of the head from 8 kColumns w on.
  __device__ void add_values(float (&sum)[kColumns][4], float (&mass)[4], const float (&keep)[2]) const {
    const std::uint32_t values = shared_address(shared.values);
#pragma unroll
    for (int step = 0; step < kDecodeSteps; ++step) {
      const std::uint32_t weights = shared_address(shared.weights[step]);
#pragma unroll
      for (int k = 0; k < kStep / 32; ++k) {
        Quad w[2];
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          w[i] = load_quad(weights + swizzled<8>(lane & 15, k * 4 + i * 2 + (lane >> 4)));
          multiply_add(mass, w[i], kOnes, kOnes);
        }
#pragma unroll
        for (int n = 0; n < kColumns; ++n) {
          const Quad b = load_quad_transposed(values + swizzled<kChunks>(step * kStep + k * 32 + lane, warp * kColumns + n));
          multiply_add(sum[n], w[0], b.r[0], b.r[1]);
          multiply_add(sum[n], w[1], b.r[2], b.r[3]);
        }
      }
      if (step > 0) break;
#pragma unroll
      for (int i = 0; i < 4; ++i) mass[i] *= keep[i / 2];
#pragma unroll
      for (int n = 0; n < kColumns; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) sum[n][i] *= keep[i / 2];
    }
  }

  // ---- the cluster ----
  // Each block gets its piece of this chunk's sums, and all peaks and masses.
  __device__ void hand_round(int chunk, const float (&sum)[kColumns][4], const float (&mass)[4], const float (&peak)[2]) const {
    const cooperative_groups::cluster_group cluster = cooperative_groups::this_cluster();
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int v = h * 8 + lane / 4;
      if (v >= vectors) continue;
      if (lane % 4 == 0)
        for (int r = receiver + warp; r <= (end - 1) / a.part; r += kDecodeThreads / 32)
          *cluster.map_shared_rank(&peaks[(chunk - begin) * kDecodeRows + v], r) = {peak[h], mass[h * 2]};
#pragma unroll
      for (int n = 0; n < kColumns; ++n) {
        const int column = (warp * kColumns + n) * 8 + lane % 4 * 2;
        if (column >= a.head_size) continue;
        const int pair = (v * a.head_size + column) / 2, to = pair / piece;
        *cluster.map_shared_rank(&sums[(chunk - begin) * piece + pair - to * piece], receiver + to) = {sum[n][h * 2], sum[n][h * 2 + 1]};
      }
    }
  }

  __device__ void fold_piece() const {
    for (int i = thread; i < piece; i += kDecodeThreads) {
      const int number = ((rank - receiver) * piece + i) * 2, v = number / a.head_size, column = number % a.head_size;
      if (v >= vectors) return;
      float peak = kUnseen, mass = 0;
      float2 total = {};
#pragma unroll 4
      for (int c = 0; c < end - begin; ++c) {
        const float2 of = peaks[c * kDecodeRows + v], sum = sums[c * piece + i];
        const Fold by = fold(peak, of.x, a.scale);
        mass = folded(mass, of.y, by);
        total = {folded(total.x, sum.x, by), folded(total.y, sum.y, by)};
      }
      const float inverse = inverse_mass(mass);
      const std::int64_t to = (std::int64_t(row + v / a.group) * a.heads + head * a.group + v % a.group) * a.head_size + column;
      *reinterpret_cast<std::uint32_t*>(static_cast<Bf16*>(a.out) + to) = pack_bf16(total.x * inverse, total.y * inverse);
    }
  }

  __device__ void run() {
    const cooperative_groups::cluster_group cluster = cooperative_groups::this_cluster();
    if (first >= last) return;  // a cluster's barrier waits for those who are left, and they for earlier kernels
    asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");  // this block is there: others may write to it
    __syncthreads();
    Rows::turn_table();
    find_sources(first);
    __syncthreads();
    if (Rows::work.settled) ask();
    else read_ahead();
    typename Rows::Pair queries[Rows::kQueryPairs], own[Rows::kRowPairs];
    wait_for_earlier();
    Rows::ask_queries(queries), Rows::ask_rows(own, thread);
    for (int chunk = first; chunk < last; ++chunk) {
      if (chunk != first || !Rows::work.settled) ask();
      if (chunk == first) Rows::place_queries(queries);
      Rows::place_rows(chunk, own);
      wait_copies<0>();
      __syncthreads();
      if (chunk == first)
        for (int k = 0; k < kHead / 16; ++k) q_held[k] = load_quad(shared_address(shared.q) + swizzled<kChunks>(lane & 15, k * 2 + (lane >> 4)));
      float s[2][4], sum[kColumns][4] = {}, mass[4] = {}, peak[2], keep[2];
      scores(chunk, s);
      __syncthreads();
      weigh(s, peak, keep);
      __syncthreads();
      if (chunk + 1 < last) page_number = Rows::page_at(chunk + 1), find_sources(chunk + 1);
      add_values(sum, mass, keep);
      if (chunk == first) asm volatile("barrier.cluster.wait.aligned;" ::: "memory");
      hand_round(chunk, sum, mass, peak);
      if (chunk + 1 < last) __syncthreads();
    }
    cluster.sync();
    fold_piece();
  }
};

#endif

template <int kHead> __global__ void __launch_bounds__(kDecodeThreads, 2) attend_decode(const __grid_constant__ DecodeWork work) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  extern __shared__ __align__(128) std::byte memory[];
  DecodeBlock<kHead> block(work, *reinterpret_cast<DecodeShared<kHead>*>(memory));
  let_later_start();
  if (block.open()) block.run();
  else wait_for_earlier();
#endif
}

}  // namespace foretoken
