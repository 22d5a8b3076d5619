// The winner of an exponential race over a vocabulary: argmin of -log(u_x) / p(x), by all threads of a crew. This
// header knows crews, distributions and noise; it must not know lanes or verifiers.
#pragma once
#include "kernels/backend.h"
#include "kernels/cuda/distributions/crew.cuh"
#include "kernels/cuda/distributions/values.cuh"

namespace foretoken {

// The best token of a race so far: the least time, the lowest token among equals.
struct alignas(8) Candidate {
  static constexpr Token kNoToken = 0x7fffffff;
  double time = INFINITY;
  Token token = kNoToken;
  std::int32_t unused = 0;
  __device__ bool beats(const Candidate& other) const {
    return time < other.time || (time == other.time && token < other.token);
  }
  __device__ void consider(Token x, double p, double u) {
    // -log u >= 1 - u: a token whose bound exceeds the best time by more than any rounding needs no logarithm.
    if (!(p > 0) || (token != kNoToken && add(1.0, -u) > mul(mul(time, p), 1 + 1e-9))) return;
    const double mine = -log_exactly(u) / p;
    if (token == kNoToken || mine < time) time = mine, token = x;
  }
};

__device__ inline Token winner(Crew& crew, const Candidate& mine) {
  const Candidate best = crew.agree(mine, [](const Candidate& a, const Candidate& b) { return b.beats(a) ? b : a; });
  return best.token == Candidate::kNoToken ? 0 : best.token;
}

// Bytes: 4 * vocab; about 90 operations a token. Four tokens share the noise of a counter.
template <class V>
__device__ Token race_values(Crew& crew, const Draws& draws, const V& values, std::uint32_t position) {
  Candidate best;
  crew.for_quads([&](Token t, int n) {
    const auto p = along(values, t, 1, n);
    const Philox noise = draws.noise_block(position, std::uint32_t(t));
#pragma unroll
    for (int j = 0; j < 4; ++j)
      if (j < n) best.consider(t + j, p(j), Draws::uniform_from(noise.word[j]));
  });
  return winner(crew, best);
}

// Roundings of floats, a few times 2^-24, are less than 1e-6.
__device__ inline bool may_win(float late, float weight, float bound) {
  return weight > 0 && !(mul(late, 1 - 1e-6f) > mul(bound, weight));
}

// Called by whole warps. First lowers the block's bound by the upper bounds of these tokens; then computes the exact
// times of the tokens that can still win.
__device__ inline void consider_candidates(unsigned* limit, Candidate& best, const Values<Distribution>& values,
                                           Token t, const Philox& noise, const float (&weight)[4],
                                           const float (&late)[4]) {
  float least = INFINITY;
#pragma unroll
  for (int j = 0; j < 4; ++j)
    if (weight[j] > 0 && late[j] < 0.5f)
      least = fminf(least, __fdiv_rn(__fdiv_rn(late[j], 1 - late[j]), weight[j]) * (1 + 1e-6f));
  const unsigned bits = __reduce_min_sync(~0u, __float_as_uint(least));
  if (threadIdx.x % 32 == 0) atomicMin(limit, bits);
  __syncwarp();
  const float bound = __uint_as_float(*static_cast<volatile unsigned*>(limit));
#pragma unroll 1
  for (int j = 0; j < 4; ++j) {
    const float w = j == 0   ? weight[0]
                    : j == 1 ? weight[1]
                    : j == 2 ? weight[2]
                             : weight[3],
                l = j == 0   ? late[0]
                    : j == 1 ? late[1]
                    : j == 2 ? late[2]
                             : late[3];
    const std::uint32_t word = j == 0 ? noise.word[0] : j == 1 ? noise.word[1] : j == 2 ? noise.word[2] : noise.word[3];
    if (may_win(l, w, bound)) best.consider(t + j, values.mass.divide(double(w)), Draws::uniform_from(word));
  }
}

// race_values of a distribution, in about 50 operations a token, in floats: exact times are computed only for tokens
// that can win by these bounds. A time is -log(u) / p, and 1 - u <= -log(u) <= (1 - u) / u; a token can win if its
// lower bound is not above the least upper bound found so far in the block. Bounds are of time / mass. `limit` is in
// the shared memory of the block.
__device__ inline Token race_distribution(Crew& crew, unsigned* limit, const Draws& draws,
                                          const Distribution& distribution, std::uint32_t position) {
  const Values<Distribution> values(distribution);
  Candidate best;
  const bool quads = reinterpret_cast<std::uintptr_t>(distribution.logits) % 16 == 0;
  if (threadIdx.x == 0) *limit = 0x7f800000u;
  __syncthreads();
  crew.for_quads([&](Token t, int n) {
    const Philox noise = draws.noise_block(position, std::uint32_t(t));
    float weight[4], late[4];  // weights; 1 - u
    const float bound = __uint_as_float(*static_cast<volatile unsigned*>(limit));
    float4 logits = {};
    if (quads && n == 4) logits = *reinterpret_cast<const float4*>(distribution.logits + t);
    bool possible = false;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const float logit = quads && n == 4 ? (&logits.x)[j] : j < n ? distribution.logits[t + j] : 0.0f;
      weight[j] = j < n ? values.weights.of(logit) : 0.0f;
      late[j] = mul(add(float(~noise.word[j]), 0.5f), 0x1p-32f);
      possible = possible || may_win(late[j], weight[j], bound);
    }
    if (__any_sync(~0u, possible)) consider_candidates(limit, best, values, t, noise, weight, late);
  });
  return winner(crew, best);
}

}  // namespace foretoken
