// Attention of a few rows of each of many sequences over a quantized cache, bound by memory bandwidth: as stream.cuh,
// but the rows themselves are stored before (store_codes.cu), so everything is read from pages. A warp fills a ring of
// keys, values and scales of steps. Four warps share each step of up to 32 query vectors of one kv head: each scores 16
// keys, then sums a quarter of the head's numbers, so that each code becomes bf16 once. They exchange peaks and
// weights. Codes become bf16 between shared memory and the products, whose first factors they are: S^T = K Q^T, in the
// order of cache_codes.cuh, and O^T = V^T P^T, where rows 8 + i of a product of sixteen numbers are the odd ones. The
// arithmetic is that of attention.cuh in the order of tiles.cuh: the same bits. This header must not know how it is
// launched.
#pragma once
#include "kernels/cuda/attention/coded_stream_rows.cuh"
#include "kernels/cuda/instructions/matrix_tiles.cuh"

namespace foretoken {

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

template <int kHead, CacheCodes kKind, int kSets> struct CodedStreamBlock : CodedStreamRows<kHead> {
  using Rows = CodedStreamRows<kHead>;
  using Rows::head, Rows::row, Rows::vectors, Rows::all_low, Rows::all_high, Rows::step, Rows::end;
  using Rows::work, Rows::a, Rows::ring, Rows::shared, Rows::exchange, Rows::queries, Rows::warp, Rows::lane,
      Rows::kPlane;
  static constexpr int kTiles = kHead / 16, kRowChunks = kHead / 16;  // of 16 numbers of a head
  static constexpr int kMine = kTiles / kCodedWarps;                  // tiles that a warp sums
  static constexpr bool kHold = kSets <= 2;                           // queries are kept in registers

  // Lane l holds vectors 2 (l % 4) + h of each set: of 16 keys those at l / 4 and l / 4 + 8, of 16 numbers 2 (l / 4)
  // and the next.
  uint4 q[kHold ? kSets : 1][kTiles / 2];                      // two tiles each
  float sum[kSets][kMine][4], mass[kSets][4], peak[kSets][2];  // of the chunk
  float total[kSets][kMine][4];                                // of the chunks before
  Total totals[kSets][2];

  // What a warp reads of a step's values before their weights are known.
  struct Values {
    Quad codes[2][kMine];  // of 32 keys each
    float scales[2];       // of the keys of this lane's scores
  };

  using Rows::Rows;

  // ---- a step ----
  __device__ void load_queries() {
    if constexpr (kHold) {
#pragma unroll
      for (int i = 0; i < kSets * kTiles / 2; ++i)
        q[i / (kTiles / 2)][i % (kTiles / 2)] = Rows::load_query(i / (kTiles / 2), i % (kTiles / 2));
    } else {
      static_assert(kSets == kCodedWarps);
#pragma unroll
      for (int k = 0; k < kTiles / 2; ++k) queries[(warp * (kTiles / 2) + k) * 32 + lane] = Rows::load_query(warp, k);
    }
  }
  __device__ uint4 query(int n, int k) const {
    if constexpr (kHold)
      return q[n][k];
    else
      return queries[(n * (kTiles / 2) + k) * 32 + lane];
  }
  // Of four 8 x 16 tiles of codes: the first factors of two products, of words 0 and 1 and of words 2 and 3.
  __device__ static Quad key_factor(std::uint32_t upper, std::uint32_t lower) {
    return {{alternate_codes<kKind>(upper, 0), alternate_codes<kKind>(lower, 0), alternate_codes<kKind>(upper, 1),
             alternate_codes<kKind>(lower, 1)}};
  }
  __device__ static Quad value_factor(std::uint32_t left, std::uint32_t right) {
    return {{alternate_codes<kKind>(left, 0), alternate_codes<kKind>(left, 1), alternate_codes<kKind>(right, 0),
             alternate_codes<kKind>(right, 1)}};
  }
  // Of the warp's 16 keys.
  __device__ void scores(int stage, float (&s)[kSets][4]) const {
    // Chunk k + lane / 16 of a row: k is even, and a stage begins at a multiple of 128.
    const std::uint32_t keys =
        shared_address(ring) + unsigned(stage * 2 * kPlane + swizzled<kRowChunks>(warp * 16 + (lane & 15), lane >> 4));
    Quad codes[kTiles / 2];
#pragma unroll
    for (int k = 0; k < kTiles; k += 2) codes[k / 2] = load_quad(keys ^ unsigned(k * 16));
#pragma unroll
    for (int n = 0; n < kSets; ++n) s[n][0] = s[n][1] = s[n][2] = s[n][3] = 0;
#pragma unroll
    for (int k = 0; k < kTiles / 2; ++k) {
      const Quad &of = codes[k], left = key_factor(of.r[0], of.r[1]), right = key_factor(of.r[2], of.r[3]);
#pragma unroll
      for (int n = 0; n < kSets; ++n) {
        const uint4 by = query(n, k);
        multiply_add(s[n], left, by.x, by.y);
        multiply_add(s[n], right, by.z, by.w);
      }
    }
    const float* const scales = shared.scales[stage][0] + warp * 16 + lane / 4;
    const float upper = scales[0], lower = scales[8];
#pragma unroll
    for (int n = 0; n < kSets; ++n) {
      s[n][0] = __fmul_rn(s[n][0], upper), s[n][1] = __fmul_rn(s[n][1], upper);
      s[n][2] = __fmul_rn(s[n][2], lower), s[n][3] = __fmul_rn(s[n][3], lower);
    }
  }
  __device__ void hide(int from, float (&s)[kSets][4]) const {
    if (from >= all_low && from + kStep <= all_high) return;
#pragma unroll
    for (int n = 0; n < kSets; ++n) {
      const int4 sight = *reinterpret_cast<const int4*>(exchange[n].sights + lane % 4 * 2);  // of both vectors
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int depth = from + warp * 16 + i / 2 * 8 + lane / 4;
        if (depth < (i % 2 == 0 ? sight.x : sight.z) || depth >= (i % 2 == 0 ? sight.y : sight.w)) s[n][i] = kUnseen;
      }
    }
  }
  // Of the warp's numbers of a head and all keys; then the warp has read all that it needs of the stage.
  __device__ Values load_values(int stage) const {
    Values v;
    const std::uint32_t values =
        shared_address(ring) + unsigned((stage * 2 + 1) * kPlane + swizzled<kRowChunks>(lane, warp * kMine));
#pragma unroll
    for (int k = 0; k < 2; ++k)
#pragma unroll
      for (int m = 0; m < kMine; ++m)
        v.codes[k][m] = load_quad_transposed((values ^ unsigned(m * 16)) + unsigned(k * 32 * kHead));
    const float* const scales = shared.scales[stage][1] + warp * 16 + lane / 4;
    v.scales[0] = scales[0], v.scales[1] = scales[8];
    return v;
  }
  // Publishes the greatest scores of the warp's keys.
  __device__ void offer_peaks(const float (&s)[kSets][4]) const {
#pragma unroll
    for (int n = 0; n < kSets; ++n) {
      float left = fmaxf(s[n][0], s[n][2]), right = fmaxf(s[n][1], s[n][3]);
#pragma unroll
      for (int i = 4; i < 32; i *= 2)
        left = fmaxf(left, __shfl_xor_sync(~0u, left, i)), right = fmaxf(right, __shfl_xor_sync(~0u, right, i));
      if (lane < 4) *reinterpret_cast<float2*>(exchange[n].peaks[warp] + lane * 2) = {left, right};
    }
  }
  // Makes the sums relative to the greatest score so far, and publishes the weights of the warp's keys.
  __device__ void weigh(const Values& v, const float (&s)[kSets][4]) {
#pragma unroll
    for (int n = 0; n < kSets; ++n) {
      float most[2] = {kUnseen, kUnseen};
#pragma unroll
      for (int w = 0; w < kCodedWarps; ++w) {
        const float2 of = *reinterpret_cast<const float2*>(exchange[n].peaks[w] + lane % 4 * 2);
        most[0] = fmaxf(most[0], of.x), most[1] = fmaxf(most[1], of.y);
      }
      const Weigher by[2] = {weigher_of(a.rules, peak[n][0], most[0]), weigher_of(a.rules, peak[n][1], most[1])};
      std::uint32_t weights[2], scaled[2];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const float left = by[0](s[n][i * 2]), right = by[1](s[n][i * 2 + 1]);
        weights[i] = transposed(pack_bf16(left, right));
        scaled[i] = transposed(pack_bf16(scaled_weight(left, v.scales[i]), scaled_weight(right, v.scales[i])));
      }
      exchange[n].weights[warp][lane] = {weights[0], weights[1], scaled[0], scaled[1]};
#pragma unroll
      for (int i = 0; i < 4 * kMine; ++i) sum[n][i / 4][i % 4] *= by[i % 2].keep;
#pragma unroll
      for (int i = 0; i < 4; ++i) mass[n][i] *= by[i % 2].keep;
    }
  }
  __device__ void add_values(const Values& v) {
    constexpr Quad kOne = {{kOnes, kOnes, kOnes, kOnes}};
#pragma unroll
    for (int t = 0; t < 4; ++t) {
      uint4 by[kSets];
#pragma unroll
      for (int n = 0; n < kSets; ++n) {
        by[n] = exchange[n].weights[t][lane];
        multiply_add(mass[n], kOne, by[n].x, by[n].y);
      }
#pragma unroll
      for (int m = 0; m < kMine; ++m) {
        const Quad &of = v.codes[t / 2][m], factor = value_factor(of.r[t % 2 * 2], of.r[t % 2 * 2 + 1]);
#pragma unroll
        for (int n = 0; n < kSets; ++n) multiply_add(sum[n][m], factor, by[n].z, by[n].w);
      }
    }
  }
  __device__ static void sync_warps() { asm volatile("bar.sync 1, %0;" ::"n"(32 * kCodedWarps) : "memory"); }

  // ---- chunks ----
  __device__ void clear_chunk() {
#pragma unroll
    for (int n = 0; n < kSets; ++n) {
#pragma unroll
      for (int i = 0; i < 4 * kMine; ++i) sum[n][i / 4][i % 4] = 0;
      mass[n][0] = mass[n][1] = mass[n][2] = mass[n][3] = 0, peak[n][0] = peak[n][1] = kUnseen;
    }
  }
  __device__ void close_chunk(int chunk) {
#pragma unroll
    for (int i = 0; i < 2 * kSets; ++i) {
      const int n = i / 2, h = i % 2;
      if (a.sums != nullptr) {
        store_chunk(chunk, n, h);
        continue;
      }
      const Fold by = totals[n][h].fold(a.rules, peak[n][h], mass[n][h]);
#pragma unroll
      for (int m = 0; m < kMine; ++m)
        total[n][m][h] = folded(total[n][m][h], sum[n][m][h], by),
        total[n][m][2 + h] = folded(total[n][m][2 + h], sum[n][m][2 + h], by);
    }
    clear_chunk();
  }
  __device__ int number() const { return warp * kMine * 16 + lane / 4 * 2; }  // the first that this lane sums
  __device__ void store_chunk(int chunk, int n, int h) const {
    int of_row, of_head;
    if (!Rows::find(n, h, of_row, of_head)) return;
    const std::int64_t at = piece_at(a, of_row, of_head, chunk);
    if (warp == 0 && lane < 4) a.peaks[at] = {peak[n][h], mass[n][h]};
    float* const to = a.sums + at * kHead + number();
#pragma unroll
    for (int m = 0; m < kMine; ++m) *reinterpret_cast<float2*>(to + m * 16) = {sum[n][m][h], sum[n][m][2 + h]};
  }
  __device__ void store() const {
#pragma unroll
    for (int i = 0; i < 2 * kSets; ++i) {
      const int n = i / 2, h = i % 2;
      int of_row, of_head;
      if (!Rows::find(n, h, of_row, of_head)) continue;
      const float inverse = totals[n][h].inverse();
      Bf16* const to = static_cast<Bf16*>(a.out) + (std::int64_t(of_row) * a.heads + of_head) * kHead + number();
#pragma unroll
      for (int m = 0; m < kMine; ++m)
        *reinterpret_cast<std::uint32_t*>(to + m * 16) =
            pack_bf16(total[n][m][h] * inverse, total[n][m][2 + h] * inverse);
    }
  }

  // ---- all of it ----
  __device__ void start() {
    wait_for_previous_kernels();
    load_queries();
#pragma unroll
    for (int i = 0; i < 2 * kSets; ++i) {
      const int n = i / 2, h = i % 2;
      int of_row, of_head;
      const bool mine = Rows::find(n, h, of_row, of_head);
      if (warp == 0 && lane < 4)
        exchange[n].sights[lane * 2 + h] = {mine && a.first ? max(a.first[of_row], 0) : 0,
                                            mine ? a.visible[of_row] : 0};
    }
#pragma unroll
    for (int i = 0; i < 4 * kMine * kSets; ++i) total[i / (4 * kMine)][i / 4 % kMine][i % 4] = 0;
    clear_chunk();
    sync_warps();
  }
  // Between two synchronizations of the warps each of them reads what all wrote before the first.
  __device__ void compute() {
    start();
    for (int at = step, stage = 0, parity = 0; at < end; ++at) {
      float s[kSets][4];
      wait_barrier(&shared.full[stage], parity);
      scores(stage, s);
      const Values values = load_values(stage);
      __syncwarp();
      if (lane == 0) arrive(&shared.empty[stage]);
      if (++stage == work.stages) stage = 0, parity ^= 1;
      a.rules.apply(reinterpret_cast<float(&)[kSets * 4]>(s));
      hide(at * kStep, s);
      offer_peaks(s);
      sync_warps();
      weigh(values, s);
      sync_warps();
      add_values(values);
      if (at + 1 == end || begins_chunk((at + 1) * kStep)) close_chunk(chunk_of(at * kStep));
    }
    if (a.sums == nullptr) store();
  }
  __device__ void run() {
    __syncthreads();
    if (warp < kCodedWarps)
      compute();
    else
      Rows::fill();
  }
};

#endif

template <int kHead, CacheCodes kKind, int kSets>
__global__ void __launch_bounds__(kCodedThreads, coded_stream_blocks(kHead, kSets))
    attend_coded_stream(const __grid_constant__ CodedStreamWork work) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  extern __shared__ __align__(1024) std::byte memory[];
  CodedStreamBlock<kHead, kKind, kSets> block(work, memory);
  let_next_kernel_start();
  if (block.open())
    block.run();
  else
    wait_for_previous_kernels();
#endif
}

}  // namespace foretoken
