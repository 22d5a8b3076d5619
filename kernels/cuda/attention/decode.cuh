// Rotation, storing and attention of a few rows of each sequence in one kernel, for decoding few sequences. Every block
// takes one span of 128 depths (or a few) of the context of one kv head; the blocks of a sequence, kv head and up to
// two tiles of its query vectors form a cluster. Each block sends its chunks' sums to the other blocks of the cluster,
// and each block folds the sums of some vectors. All copies of a span's keys and values are issued before the first is
// used, and the two steps of a span are scored at once by four warps each. The keys and values of the rows themselves
// are not read from global memory: every block rotates those that it needs. The kernel is bound by latency, mostly that
// of instructions that run once, so there is no division by run-time values, and sums are sent to the folding block
// without a barrier of the cluster. The arithmetic is that of attention.cuh in the order of tiles.cuh: the same bits.
// This header must not know how it is launched.
#pragma once
#include "kernels/cuda/attention/decode_rows.cuh"
#include "kernels/cuda/instructions/barriers.cuh"

namespace foretoken {

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

template <int kHead, int kTiles> struct DecodeBlock : DecodeRows<kHead, kTiles> {
  using Rows = DecodeRows<kHead, kTiles>;
  using Rows::a, Rows::shared, Rows::head, Rows::rank, Rows::row, Rows::rows, Rows::vector, Rows::vectors, Rows::chunk,
      Rows::chunks, Rows::first, Rows::last;
  using Rows::receiver, Rows::share, Rows::page_number, Rows::peaks, Rows::thread, Rows::warp, Rows::lane,
      Rows::kChunks, Rows::kHalf;
  static constexpr int kColumns = kHead / 64;        // 8-wide columns of the values that a warp sums
  static constexpr int kLanes = kDecodeThreads / 8;  // that hold sums of one vector
  using Lane = std::conditional_t<kColumns == 1, float2, float4>;

  Lane* sums;  // received

  // Of each tile, the values that a lane holds for vectors lane / 4 and lane / 4 + 8.
  struct Scores {
    float of[kTiles][2][4] = {};
  };
  struct Sums {
    float of[kTiles][kColumns][4], mass[kTiles][4], peak[kTiles][2], keep[kDecodeSteps][kTiles][2];
  };

  using Rows::Rows;

  // ---- a span ----
  // Warp w scores keys 16 w ... 16 w + 15 of the span.
  __device__ Scores scores(int span) const {
    const std::uint32_t keys = shared_address(shared.keys), queries = shared_address(shared.q);
    Scores s;
#pragma unroll
    for (int k = 0; k < kHead / 16; ++k) {
      const Quad b =
          load_quad(keys + swizzled<kChunks>(warp * 16 + (lane & 7) + (lane >> 4) * 8, k * 2 + (lane >> 3 & 1)));
#pragma unroll
      for (int t = 0; t < kTiles; ++t) {
        const Quad q = load_quad(queries + swizzled<kChunks>(t * kDecodeTile + (lane & 15), k * 2 + (lane >> 4)));
        multiply_add(s.of[t][0], q, b.r[0], b.r[1]);
        multiply_add(s.of[t][1], q, b.r[2], b.r[3]);
      }
    }
    a.rules.apply(reinterpret_cast<float(&)[kTiles * 8]>(s.of));
    const bool all = Rows::sees_all(span);
#pragma unroll
    for (int i = 0; i < 2 * kTiles; ++i) {
      const int v = i * 8 + lane / 4, h = i % 2;
      float(&of)[2][4] = s.of[i / 2];
      if (!all) hide(span, v, h, of);
      float most = fmaxf(fmaxf(of[0][h * 2], of[0][h * 2 + 1]), fmaxf(of[1][h * 2], of[1][h * 2 + 1]));
      most = fmaxf(most, __shfl_xor_sync(~0u, most, 1));
      most = fmaxf(most, __shfl_xor_sync(~0u, most, 2));
      if (lane % 4 == 0) shared.peaks[v][warp / 4][warp % 4] = most;
    }
    return s;
  }
  __device__ void hide(int span, int v, int h, float (&s)[2][4]) const {
    const int depth = span * kSpan + warp * 16 + lane % 4 * 2, r = Rows::row_of(v),
              low = v < vectors ? shared.low[r] : 0, high = v < vectors ? shared.high[r] : 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int d = depth + i / 2 * 8 + i % 2;
      if (d < low || d >= high) s[i / 2][h * 2 + i % 2] = kUnseen;
    }
  }

  // Converts scores to weights in shared memory; sets each vector's greatest score and the factors of the sums before
  // each step. `fresh`: a chunk begins.
  __device__ void weigh(const Scores& s, Sums& to, bool fresh) const {
    const int step = warp / 4;
#pragma unroll
    for (int i = 0; i < 2 * kTiles; ++i) {
      const int t = i / 2, h = i % 2, v = i * 8 + lane / 4;
      float peak = fresh ? kUnseen : to.peak[t][h];
      Weigher weight = {};
#pragma unroll
      for (int j = 0; j < kDecodeSteps; ++j) {
        const float4 four = *reinterpret_cast<const float4*>(shared.peaks[v][j]);
        const Weigher by = weigher_of(a.rules, peak, fmaxf(fmaxf(four.x, four.y), fmaxf(four.z, four.w)));
        to.keep[j][t][h] = by.keep;
        if (j == step) weight = by;
      }
      to.peak[t][h] = peak;
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const float low = weight(s.of[t][j][h * 2]), high = weight(s.of[t][j][h * 2 + 1]);
        *reinterpret_cast<std::uint32_t*>(reinterpret_cast<std::byte*>(shared.weights[step]) +
                                          swizzled<8>(v, warp % 4 * 2 + j) + lane % 4 * 4) = pack_bf16(low, high);
      }
    }
  }

  // Warp w sums the 8 kColumns numbers of the head from 8 kColumns w on.
  __device__ void add_values(Sums& to, bool fresh) const {
    const std::uint32_t values = shared_address(shared.values);
    if (fresh) clear(to);
#pragma unroll
    for (int step = 0; step < kDecodeSteps; ++step) {
      if (step > 0 || !fresh) keep(to, step);
      const std::uint32_t weights = shared_address(shared.weights[step]);
#pragma unroll
      for (int k = 0; k < kStep / 32; ++k) {
        Quad b[kColumns];
#pragma unroll
        for (int n = 0; n < kColumns; ++n)
          b[n] = load_quad_transposed(values + swizzled<kChunks>(step * kStep + k * 32 + lane, warp * kColumns + n));
#pragma unroll
        for (int i = 0; i < 2 * kTiles; ++i) {
          const Quad w =
              load_quad(weights + swizzled<8>(i / 2 * kDecodeTile + (lane & 15), k * 4 + i % 2 * 2 + (lane >> 4)));
          multiply_add(to.mass[i / 2], w, kOnes, kOnes);
#pragma unroll
          for (int n = 0; n < kColumns; ++n) multiply_add(to.of[i / 2][n], w, b[n].r[i % 2 * 2], b[n].r[i % 2 * 2 + 1]);
        }
      }
    }
  }
  __device__ static void clear(Sums& to) {
#pragma unroll
    for (int i = 0; i < 4 * kTiles; ++i) {
      to.mass[i / 4][i % 4] = 0;
#pragma unroll
      for (int n = 0; n < kColumns; ++n) to.of[i / 4][n][i % 4] = 0;
    }
  }
  __device__ static void keep(Sums& to, int step) {
#pragma unroll
    for (int i = 0; i < 4 * kTiles; ++i) {
      to.mass[i / 4][i % 4] *= to.keep[step][i / 4][i % 4 / 2];
#pragma unroll
      for (int n = 0; n < kColumns; ++n) to.of[i / 4][n][i % 4] *= to.keep[step][i / 4][i % 4 / 2];
    }
  }

  // ---- the cluster ----
  // Initializes the barrier for the data that this block receives: peaks, masses and sums of its vectors for every
  // chunk.
  __device__ void expect() {
    const int mine = min(share, vectors - (rank - receiver) * share);
    init_barrier(&shared.received, 1);
    fence_barriers();
    expect_copies(&shared.received, max(mine, 0) * chunks * (kHalf + 1) * int(sizeof(float2)));
  }
  // Writes to the same address in the shared memory of block `to`.
  template <class T> __device__ void send(int to, T* address, T numbers) const {
    if (a.splits == 1)
      *address = numbers;  // no cluster
    else
      send_to_block(in_block(shared_address(address), to), in_block(shared_address(&shared.received), to), numbers);
  }
  // Sends each vector's sums, peak and mass of this chunk to the block that folds it. There the sums of a lane are
  // adjacent: entry 4 w + i holds those of lane i of warp w, numbers 8 kColumns w + 8 n + 2 i and the next.
  __device__ void send_sums(int number, const Sums& of) const {
#pragma unroll
    for (int i = 0; i < 2 * kTiles; ++i) {
      const int t = i / 2, h = i % 2, v = i * 8 + lane / 4, to = Rows::over(v, share),
                at = (number - chunk) * share + v - to * share;
      if (v >= vectors) continue;
      if (warp == 0 && lane % 4 == 0) send(receiver + to, peaks + at, make_float2(of.peak[t][h], of.mass[t][h * 2]));
      Lane* const slots = sums + at * kLanes + warp * 4 + lane % 4;
      if constexpr (kColumns == 1)
        send(receiver + to, slots, make_float2(of.of[t][0][h * 2], of.of[t][0][h * 2 + 1]));
      else
        send(receiver + to, slots,
             make_float4(of.of[t][0][h * 2], of.of[t][0][h * 2 + 1], of.of[t][1][h * 2], of.of[t][1][h * 2 + 1]));
    }
  }

  __device__ void fold_share() const {
    const int before = (rank - receiver) * share;
#pragma unroll 1
    for (int i = thread; i / kLanes < share; i += kDecodeThreads) {
      const int v = before + i / kLanes, r = Rows::row_of(v), column = (i % kLanes / 4 * kColumns) * 8 + i % 4 * 2;
      if (v >= vectors) return;
      Total of_vector;
      float total[2 * kColumns] = {};
#pragma unroll 3
      for (int c = 0; c < chunks; ++c) {
        const float2 of = peaks[c * share + i / kLanes];
        const Lane sum = sums[c * share * kLanes + i];
        const Fold by = of_vector.fold(a.rules, of.x, of.y);
        total[0] = folded(total[0], sum.x, by), total[1] = folded(total[1], sum.y, by);
        if constexpr (kColumns == 2) total[2] = folded(total[2], sum.z, by), total[3] = folded(total[3], sum.w, by);
      }
      const float inverse = of_vector.inverse();
      Bf16* const to = static_cast<Bf16*>(a.out) +
                       (std::int64_t(row + r) * a.heads + head * a.group + vector + v - r * a.group) * a.head_size +
                       column;
#pragma unroll
      for (int n = 0; n < kColumns; ++n)
        if (column + n * 8 < a.head_size)
          *reinterpret_cast<std::uint32_t*>(to + n * 8) = pack_bf16(total[n * 2] * inverse, total[n * 2 + 1] * inverse);
    }
  }

  // What may precede the end of the previous kernels, then a wait for it: initializes the block's barrier, arrives at
  // the cluster's, and copies (settled pages) or prefetches the keys and values of the first span.
  __device__ __forceinline__ void start() {
    sums = reinterpret_cast<Lane*>(peaks + (chunks * share + 1) / 2 * 2);
    if (thread == 0) expect();
    __syncwarp();
    arrive_cluster();  // started: others may write to this block's shared memory
    if (!Rows::sees_all(first) || Rows::owns(first, first + 1)) __syncthreads();  // the rows' bounds in shared memory
    Rows::find_sources(first);
    __syncthreads();
    if (Rows::work.settled)
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
    Sums of;
    for (int span = first; span < last; ++span) {
      const bool fresh = span == first || begins_chunk(span * kSpan);
      if (span != first || !Rows::work.settled) Rows::request();
      if (span == first) Rows::store_query(query);
      Rows::store_rows(span, own);
      wait_copies<0>();
      __syncthreads();
      const Scores s = scores(span);
      __syncthreads();
      weigh(s, of, fresh);
      __syncthreads();
      if (span + 1 < last) page_number = Rows::page_at(span + 1), Rows::find_sources(span + 1);
      add_values(of, fresh);
      if (span == first) wait_cluster();
      if (span + 1 == last || begins_chunk((span + 1) * kSpan)) send_sums(chunk_of(span * kSpan), of);
      if (span + 1 < last) __syncthreads();
    }
    if (a.splits == 1)
      __syncthreads();
    else
      wait_for_cluster(&shared.received, 0);
    fold_share();
  }
};

#endif

template <int kHead, int kTiles> __global__ void __launch_bounds__(kDecodeThreads, 2)
    attend_decode(const __grid_constant__ DecodeCall work) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  extern __shared__ __align__(128) std::byte memory[];
  DecodeBlock<kHead, kTiles> block(work, *reinterpret_cast<DecodeShared<kHead, kTiles>*>(memory));
  let_next_kernel_start();
  if (block.open())
    block.run();
  else
    wait_for_previous_kernels();
#endif
}

}  // namespace foretoken
