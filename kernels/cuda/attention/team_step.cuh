// One step of a few rows of one sequence, for one kv head, by teams of four warps: the scores of up to four sets of 8
// query vectors, their weights, and the sums of values. Each warp of a team scores 16 keys of a step, then sums its
// part of the head's numbers, so that each number is read from shared memory once for a team; warps exchange greatest
// scores and weights. Keys and values are the first factors of products (S^T = K Q^T, O^T = V^T P^T), so that few
// vectors do not waste rows of a product. Codes become bf16 between shared memory and the products: keys in the order
// of cache_codes.cuh; of a product of sixteen numbers of values, rows 8 + i are the odd ones.
//
// Rows, from which the step is derived, is the block's input: StreamRows, whose teams have sets of their own, or
// DecodeRows, whose two teams have the two steps of a span. This header must not know where keys come from.
#pragma once
#include "kernels/cuda/attention/attention.cuh"
#include "kernels/cuda/attention/teams.cuh"
#include "kernels/cuda/instructions/matrix_tiles.cuh"

namespace foretoken {

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

template <class Rows> struct TeamStep : Rows {
  using Rows::a, Rows::shared, Rows::ring, Rows::exchange, Rows::peer, Rows::team, Rows::warp, Rows::lane,
      Rows::all_low, Rows::all_high, Rows::set;
  using Rows::kCodes, Rows::kHead, Rows::kPlane, Rows::kOfTeam, Rows::kSteps, Rows::kPeers;
  // Tiles of 16 numbers of the head; those that a warp sums, where there are fewer than warps, the same as another.
  static constexpr int kTiles = kHead / 16, kMine = kTiles > kPeers ? kTiles / kPeers : 1;
  static constexpr int kRowChunks = Rows::kBoxRow / 16;  // vectors of 16 bytes of a row of a box
  static constexpr int kKeyQuads = kCodes ? kTiles / 2 : kTiles, kValueQuads = kCodes ? 2 : 4;

  // Lane l holds vectors 2 (l % 4) + h of each set of its team: of 16 keys those at l / 4 ([h]) and l / 4 + 8 ([2 +
  // h]); of a tile two numbers of the head, see number().
  float sum[kOfTeam][kMine][4], mass[kOfTeam][4], peak[kOfTeam][2];  // of the chunk
  float keep[kOfTeam][2];                                            // of the sums before the second of two steps

  // What a warp reads of a step's values before their weights are known: of codes all, of bf16, which would take twice
  // as many registers, nothing.
  struct Values {
    Quad codes[kCodes ? kValueQuads : 1][kMine];  // of 32 keys each
    float scales[2];                              // of the keys of this lane's scores
  };

  using Rows::Rows;

  __device__ int vector(int n, int h) const { return set(n) * kSetVectors + lane % 4 * 2 + h; }
  __device__ int first_tile() const { return peer * kMine % kTiles; }
  __device__ int number(int m) const { return (first_tile() + m) * 16 + (kCodes ? lane / 4 * 2 : lane / 4); }
  // Of the sums and masses: what is relative to earlier greatest scores.
  __device__ void rescale(int n, float left, float right) {
#pragma unroll
    for (int i = 0; i < 4 * kMine; ++i) sum[n][i / 4][i % 4] *= i % 2 == 0 ? left : right;
#pragma unroll
    for (int i = 0; i < 4; ++i) mass[n][i] *= i % 2 == 0 ? left : right;
  }
  __device__ void clear_chunk() {
#pragma unroll
    for (int n = 0; n < kOfTeam; ++n) {
#pragma unroll
      for (int i = 0; i < 4 * kMine; ++i) sum[n][i / 4][i % 4] = 0;
      mass[n][0] = mass[n][1] = mass[n][2] = mass[n][3] = 0, peak[n][0] = peak[n][1] = kUnseen;
    }
  }

  // Of four 8 x 8 tiles of codes: the first factors of two products, of words 0 and 1 and of words 2 and 3.
  __device__ static Quad key_factor(std::uint32_t upper, std::uint32_t lower) {
    return {{alternate_codes<Rows::kKind>(upper, 0), alternate_codes<Rows::kKind>(lower, 0),
             alternate_codes<Rows::kKind>(upper, 1), alternate_codes<Rows::kKind>(lower, 1)}};
  }
  __device__ static Quad value_factor(std::uint32_t left, std::uint32_t right) {
    return {{alternate_codes<Rows::kKind>(left, 0), alternate_codes<Rows::kKind>(left, 1),
             alternate_codes<Rows::kKind>(right, 0), alternate_codes<Rows::kKind>(right, 1)}};
  }
  // Of the warp's 16 keys.
  __device__ void scores(int stage, float (&s)[kOfTeam][4]) const {
    // Chunk 2 k + lane / 16 of a row: a stage begins at a multiple of 128.
    const std::uint32_t keys =
        shared_address(ring) + unsigned(stage * kPlane + swizzled<kRowChunks>(warp * 16 + (lane & 15), lane >> 4));
    Quad of[kKeyQuads];
#pragma unroll
    for (int k = 0; k < kKeyQuads; ++k)
      of[k] = load_quad((keys ^ unsigned(k % 4 * 32)) + unsigned(k / 4 * kStep * 128));
#pragma unroll
    for (int n = 0; n < kOfTeam; ++n) s[n][0] = s[n][1] = s[n][2] = s[n][3] = 0;
#pragma unroll
    for (int k = 0; k < kTiles / 2; ++k) {
      Quad left, right;
      if constexpr (kCodes)
        left = key_factor(of[k].r[0], of[k].r[1]), right = key_factor(of[k].r[2], of[k].r[3]);
      else
        left = of[k * 2], right = of[k * 2 + 1];
#pragma unroll
      for (int n = 0; n < kOfTeam; ++n) {
        const uint4 by = Rows::query(n, k);
        multiply_add(s[n], left, by.x, by.y);
        multiply_add(s[n], right, by.z, by.w);
      }
    }
    if constexpr (kCodes) {
      const float* const scales = shared.scales[stage] + warp * 16 + lane / 4;
      const float upper = scales[0], lower = scales[8];
#pragma unroll
      for (int i = 0; i < 4 * kOfTeam; ++i) s[i / 4][i % 4] = __fmul_rn(s[i / 4][i % 4], i % 4 < 2 ? upper : lower);
    }
    a.rules.template apply<false>(reinterpret_cast<float(&)[4 * kOfTeam]>(s));
  }
  __device__ void hide(int from, float (&s)[kOfTeam][4]) const {
    if (from >= all_low && from + kStep <= all_high) return;
#pragma unroll
    for (int n = 0; n < kOfTeam; ++n) {
      const int4 sight = *reinterpret_cast<const int4*>(exchange[set(n)].sights + lane % 4 * 2);  // of both vectors
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int depth = from + warp * 16 + i / 2 * 8 + lane / 4;
        if (depth < (i % 2 == 0 ? sight.x : sight.z) || depth >= (i % 2 == 0 ? sight.y : sight.w)) s[n][i] = kUnseen;
      }
    }
  }
  // Publishes the greatest scores of the warp's keys.
  __device__ void offer_peaks(const float (&s)[kOfTeam][4]) const {
#pragma unroll
    for (int n = 0; n < kOfTeam; ++n) {
      float left = fmaxf(s[n][0], s[n][2]), right = fmaxf(s[n][1], s[n][3]);
#pragma unroll
      for (int i = 4; i < 32; i *= 2)
        left = fmaxf(left, __shfl_xor_sync(~0u, left, i)), right = fmaxf(right, __shfl_xor_sync(~0u, right, i));
      if (lane < 4) *reinterpret_cast<float2*>(exchange[set(n)].peaks[peer] + lane * 2) = {left, right};
    }
  }
  // Where the values of the warp's tile m begin in shared memory: of quad t of kValueQuads.
  __device__ std::uint32_t value_address(int stage, int t, int m) const {
    const int tile = first_tile(), key = kCodes ? lane : (lane & 7) + (lane >> 4) * 8,
              chunk = kCodes ? tile : tile % 4 * 2 + (lane >> 3 & 1), column = kCodes ? 0 : tile / 4;
    const std::uint32_t values =
        shared_address(ring) + unsigned(stage * kPlane + column * kStep * 128 + swizzled<kRowChunks>(key, chunk));
    return (values ^ unsigned(m * (kCodes ? 16 : 32))) + unsigned(t * (kStep / kValueQuads) * Rows::kBoxRow);
  }
  // All codes that the warp needs of a stage.
  __device__ Values load_codes(int stage) const {
    Values v;
#pragma unroll
    for (int i = 0; i < kValueQuads * kMine; ++i)
      v.codes[i / kMine][i % kMine] = load_quad_transposed(value_address(stage, i / kMine, i % kMine));
    const float* const scales = shared.scales[stage] + warp * 16 + lane / 4;
    v.scales[0] = scales[0], v.scales[1] = scales[8];
    return v;
  }
  // Makes the sums relative to the greatest score so far, and publishes the weights of the warp's keys.
  __device__ void weigh(const Values& v, const float (&s)[kOfTeam][4]) {
#pragma unroll
    for (int n = 0; n < kOfTeam; ++n) {
      auto& with = exchange[set(n)];
      Weigher mine[2] = {};
#pragma unroll
      for (int j = 0; j < kSteps; ++j) {
        float most[2] = {kUnseen, kUnseen};
#pragma unroll
        for (int w = 0; w < kTeamWarps; ++w) {
          const float2 of = *reinterpret_cast<const float2*>(with.peaks[j * kTeamWarps + w] + lane % 4 * 2);
          most[0] = fmaxf(most[0], of.x), most[1] = fmaxf(most[1], of.y);
        }
        const Weigher by[2] = {weigher_of(a.rules, peak[n][0], most[0]), weigher_of(a.rules, peak[n][1], most[1])};
        if (j == 0)
          rescale(n, by[0].keep, by[1].keep);
        else
          keep[n][0] = by[0].keep, keep[n][1] = by[1].keep;
        if (kSteps == 1 || j == team) mine[0] = by[0], mine[1] = by[1];
      }
      std::uint32_t weights[2], scaled[2];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const float left = mine[0](s[n][i * 2]), right = mine[1](s[n][i * 2 + 1]);
        weights[i] = transposed(pack_bf16(left, right));
        if constexpr (kCodes)
          scaled[i] = transposed(pack_bf16(scaled_weight(left, v.scales[i]), scaled_weight(right, v.scales[i])));
      }
      if constexpr (kCodes)
        with.weights[peer][lane] = {weights[0], weights[1], scaled[0], scaled[1]};
      else
        with.weights[peer][lane] = {weights[0], weights[1]};
    }
  }
  // `stage`: where the values of the (first) step are; those of a second are two stages later.
  __device__ void add_values(const Values& v, int stage) {
    constexpr Quad kOne = {{kOnes, kOnes, kOnes, kOnes}};
#pragma unroll
    for (int t = 0; t < kTeamWarps * kSteps; ++t) {
      uint2 by[kOfTeam];
#pragma unroll
      for (int n = 0; n < kOfTeam; ++n) {
        if (t == kTeamWarps) rescale(n, keep[n][0], keep[n][1]);
        const auto weights = exchange[set(n)].weights[t][lane];
        multiply_add(mass[n], kOne, weights.x, weights.y);
        if constexpr (kCodes)
          by[n] = {weights.z, weights.w};
        else
          by[n] = weights;
      }
#pragma unroll
      for (int m = 0; m < kMine; ++m) {
        Quad factor;
        if constexpr (kCodes)
          factor = value_factor(v.codes[t / 2][m].r[t % 2 * 2], v.codes[t / 2][m].r[t % 2 * 2 + 1]);
        else
          factor = load_quad_transposed(value_address(stage + t / kTeamWarps * 2, t % kTeamWarps, m));
#pragma unroll
        for (int n = 0; n < kOfTeam; ++n) multiply_add(sum[n][m], factor, by[n].x, by[n].y);
      }
    }
  }
};

#endif

}  // namespace foretoken
