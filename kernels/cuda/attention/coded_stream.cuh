// Attention of a few rows of each of many sequences over a quantized cache, bound by memory bandwidth: as stream.cuh,
// but the rows themselves are stored before (store_codes.cu), so everything is read from pages. A warp computes 8 query
// vectors of one kv head over whole steps; another warp fills a ring of keys, values and scales of steps. Codes become
// bf16 between shared memory and the products, whose first factors they are: S^T = K Q^T, in the order of
// cache_codes.cuh, and O^T = V^T P^T, where rows 8 + i of a product of sixteen numbers are the odd ones. The arithmetic
// is that of attention.cuh in the order of tiles.cuh: the same bits. This header must not know how it is launched.
#pragma once
#include "kernels/cuda/attention/coded_stream_rows.cuh"
#include "kernels/cuda/instructions/matrix_tiles.cuh"

namespace foretoken {

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

template <int kHead, CacheCodes kKind> struct CodedStreamBlock : CodedStreamRows<kHead> {
  using Rows = CodedStreamRows<kHead>;
  using Rows::head, Rows::row, Rows::vectors, Rows::all_low, Rows::all_high, Rows::step, Rows::end;
  using Rows::work, Rows::a, Rows::ring, Rows::shared, Rows::warp, Rows::lane, Rows::kPlane;
  static constexpr int kTiles = kHead / 16, kRowChunks = kHead / 16;

  // Lane l holds vectors 2 (l % 4) + h of the warp: of 16 keys those at l / 4 and l / 4 + 8, of 16 numbers 2 (l / 4)
  // and the next. low, high: depths to which a vector attends.
  std::uint32_t q[kTiles][2];
  int low[2], high[2];
  float sum[kTiles][4], mass[4], peak[2];                // of the chunk
  float total[kTiles][4], total_mass[2], total_peak[2];  // of the chunks before

  using Rows::Rows;

  // ---- a step ----
  __device__ void load_queries() {
    const int v = warp * kCodedVectors + lane / 4, r = min(v, vectors - 1) / a.group;
    const Bf16* const from =
        static_cast<const Bf16*>(a.q) + (row + r) * a.q_stride + (head * a.group + v % a.group) * kHead + lane % 4 * 4;
#pragma unroll
    for (int k = 0; k < kTiles; ++k) {
      uint2 four = {};
      if (v < vectors) four = *reinterpret_cast<const uint2*>(from + k * 16);
      q[k][0] = alternate_numbers(four.x, four.y, 0), q[k][1] = alternate_numbers(four.x, four.y, 1);
    }
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
  __device__ void scores(int stage, float (&s)[4][4]) const {
    const std::uint32_t keys = shared_address(ring) + unsigned(stage * 2 * kPlane);
    const float* const scales = shared.scales[stage][0] + lane / 4;
#pragma unroll
    for (int t = 0; t < 4; ++t) {
      s[t][0] = s[t][1] = s[t][2] = s[t][3] = 0;
#pragma unroll
      for (int k = 0; k < kTiles; k += 2) {
        const Quad codes = load_quad(keys + unsigned(swizzled<kRowChunks>(t * 16 + (lane & 15), k + (lane >> 4))));
        multiply_add(s[t], key_factor(codes.r[0], codes.r[1]), q[k][0], q[k][1]);
        multiply_add(s[t], key_factor(codes.r[2], codes.r[3]), q[k + 1][0], q[k + 1][1]);
      }
      const float upper = scales[t * 16], lower = scales[t * 16 + 8];
      s[t][0] = __fmul_rn(s[t][0], upper), s[t][1] = __fmul_rn(s[t][1], upper);
      s[t][2] = __fmul_rn(s[t][2], lower), s[t][3] = __fmul_rn(s[t][3], lower);
    }
  }
  __device__ void hide(int from, float (&s)[4][4]) const {
    if (from >= all_low && from + kStep <= all_high) return;
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      const int depth = from + i / 4 * 16 + i / 2 % 2 * 8 + lane / 4, h = i % 2;
      if (depth < low[h] || depth >= high[h]) s[i / 4][i % 4] = kUnseen;
    }
  }
  // Makes the sums relative to the greatest score so far; the weights of 16 keys each as second factors, and the same
  // times the scales of values.
  __device__ void weigh(int stage, const float (&s)[4][4], std::uint32_t (&weights)[4][2],
                        std::uint32_t (&scaled)[4][2]) {
    float base[2], keep[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float most = fmaxf(s[0][h], s[0][2 + h]);
#pragma unroll
      for (int t = 1; t < 4; ++t) most = fmaxf(most, fmaxf(s[t][h], s[t][2 + h]));
#pragma unroll
      for (int i = 4; i < 32; i *= 2) most = fmaxf(most, __shfl_xor_sync(~0u, most, i));
      const float now = fmaxf(peak[h], most);
      base[h] = now == kUnseen ? 0.0f : now * a.scale, keep[h] = rescale(peak[h], now, a.scale), peak[h] = now;
    }
    const float* const scales = shared.scales[stage][1] + lane / 4;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const float left = exp2_fast(__fmaf_rn(s[i / 2][i % 2 * 2], a.scale, -base[0])),
                  right = exp2_fast(__fmaf_rn(s[i / 2][i % 2 * 2 + 1], a.scale, -base[1])), by = scales[i * 8];
      weights[i / 2][i % 2] = transposed(pack_bf16(left, right));
      scaled[i / 2][i % 2] = transposed(pack_bf16(scaled_weight(left, by), scaled_weight(right, by)));
    }
#pragma unroll
    for (int m = 0; m < kTiles; ++m)
#pragma unroll
      for (int i = 0; i < 4; ++i) sum[m][i] *= keep[i % 2];
#pragma unroll
    for (int i = 0; i < 4; ++i) mass[i] *= keep[i % 2];
  }
  __device__ void add_values(int stage, const std::uint32_t (&weights)[4][2], const std::uint32_t (&scaled)[4][2]) {
    constexpr Quad kOne = {{kOnes, kOnes, kOnes, kOnes}};
    const std::uint32_t values = shared_address(ring) + unsigned((stage * 2 + 1) * kPlane);
#pragma unroll
    for (int t = 0; t < 4; ++t) multiply_add(mass, kOne, weights[t][0], weights[t][1]);
#pragma unroll
    for (int t = 0; t < 4; ++t)
#pragma unroll
      for (int m = 0; m < kTiles; m += 2) {
        const Quad codes =
            load_quad_transposed(values + unsigned(swizzled<kRowChunks>(t * 16 + (lane & 15), m + (lane >> 4))));
        multiply_add(sum[m], value_factor(codes.r[0], codes.r[1]), scaled[t][0], scaled[t][1]);
        multiply_add(sum[m + 1], value_factor(codes.r[2], codes.r[3]), scaled[t][0], scaled[t][1]);
      }
  }

  // ---- chunks ----
  __device__ void clear_chunk() {
#pragma unroll
    for (int m = 0; m < kTiles; ++m) sum[m][0] = sum[m][1] = sum[m][2] = sum[m][3] = 0;
    mass[0] = mass[1] = mass[2] = mass[3] = 0, peak[0] = peak[1] = kUnseen;
  }
  __device__ void close_chunk(int chunk) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      if (a.sums != nullptr) {
        store_chunk(chunk, h);
        continue;
      }
      const Fold by = fold(total_peak[h], peak[h], a.scale);
      total_mass[h] = folded(total_mass[h], mass[h], by);
#pragma unroll
      for (int m = 0; m < kTiles; ++m)
        total[m][h] = folded(total[m][h], sum[m][h], by), total[m][2 + h] = folded(total[m][2 + h], sum[m][2 + h], by);
    }
    clear_chunk();
  }
  // The row and query head of vector 2 (l % 4) + h of this warp; false: there is none.
  __device__ bool find(int h, int& of_row, int& of_head) const {
    const int v = warp * kCodedVectors + lane % 4 * 2 + h, r = v / a.group;
    of_row = row + r, of_head = head * a.group + v - r * a.group;
    return v < vectors;
  }
  __device__ void store_chunk(int chunk, int h) const {
    int of_row, of_head;
    if (!find(h, of_row, of_head)) return;
    const std::int64_t at = piece_at(a, of_row, of_head, chunk);
    if (lane < 4) a.peaks[at] = {peak[h], mass[h]};
    float* const to = a.sums + at * kHead + lane / 4 * 2;
#pragma unroll
    for (int m = 0; m < kTiles; ++m) *reinterpret_cast<float2*>(to + m * 16) = {sum[m][h], sum[m][2 + h]};
  }
  __device__ void store() const {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      int of_row, of_head;
      if (!find(h, of_row, of_head)) continue;
      const float inverse = inverse_mass(total_mass[h]);
      Bf16* const to = static_cast<Bf16*>(a.out) + (std::int64_t(of_row) * a.heads + of_head) * kHead + lane / 4 * 2;
#pragma unroll
      for (int m = 0; m < kTiles; ++m)
        *reinterpret_cast<std::uint32_t*>(to + m * 16) = pack_bf16(total[m][h] * inverse, total[m][2 + h] * inverse);
    }
  }

  // ---- all of it ----
  __device__ void compute() {
    wait_for_previous_kernels();
    load_queries();
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      int of_row, of_head;
      const bool mine = find(h, of_row, of_head);
      low[h] = mine && a.first ? max(a.first[of_row], 0) : 0, high[h] = mine ? a.visible[of_row] : 0;
      total_peak[h] = kUnseen, total_mass[h] = 0;
    }
#pragma unroll
    for (int m = 0; m < kTiles; ++m) total[m][0] = total[m][1] = total[m][2] = total[m][3] = 0;
    clear_chunk();
    for (int at = step, stage = 0, parity = 0; at < end; ++at) {
      float s[4][4];
      std::uint32_t weights[4][2], scaled[4][2];
      wait_barrier(&shared.full[stage], parity);
      scores(stage, s);
      hide(at * kStep, s);
      weigh(stage, s, weights, scaled);
      add_values(stage, weights, scaled);
      __syncwarp();
      if (lane == 0) arrive(&shared.empty[stage]);
      if (++stage == work.stages) stage = 0, parity ^= 1;
      if (at + 1 == end || begins_chunk((at + 1) * kStep)) close_chunk(chunk_of(at * kStep));
    }
    if (a.sums == nullptr) store();
  }
  __device__ void run() {
    __syncthreads();
    if (warp < work.warps)
      compute();
    else
      Rows::fill();
  }
};

#endif

template <int kHead, CacheCodes kKind> __global__ void __launch_bounds__(32 * kCodedWarps + 32)
    attend_coded_stream(const __grid_constant__ CodedStreamWork work) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  extern __shared__ __align__(1024) std::byte memory[];
  CodedStreamBlock<kHead, kKind> block(work, memory);
  let_next_kernel_start();
  if (block.open())
    block.run();
  else
    wait_for_previous_kernels();
#endif
}

}  // namespace foretoken
