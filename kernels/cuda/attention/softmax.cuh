// How scores become weights, and how the sums of chunks become a result: online softmax (Milakov and Gimelshein 2018,
// arXiv 1805.02867), written once for all attention kernels. A kernel brings its lanes' products, says which keys a
// vector does not attend to (kUnseen), and exchanges greatest scores between lanes and warps as it likes. This header
// must not know where keys come from or which lane has what.
//
// A rule that a model adds belongs here: what a score becomes (a soft cap) in ScoreRules::apply(), what else a softmax
// sums (a sink) in Total. Kernels have both as an instantiation of its own, kRules, so that others pay nothing. Which
// depths a row attends to (a window) is in Sight, of attention.cuh.
#pragma once
#include "kernels/cuda/device.cuh"

namespace foretoken {

constexpr float kUnseen = -__builtin_huge_valf();  // the score of a key that is not attended to

__device__ inline float exp2_fast(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// Of one layer.
struct ScoreRules {
  float scale = 0;  // of scores, times log2(e)
  // Where scores have a cap: they are the tanh of `inner` times the products, and `scale` has the cap. 0: they have
  // none.
  float inner = 0;
  const float* sinks = nullptr;  // [query heads], natural; null: there are none

  // Whether a kernel needs its instantiation kRules.
  bool any() const { return inner > 0 || sinks != nullptr; }

  // Products of queries and keys become scores, which `scale` multiplies in the exponent: without a cap as they are.
  template <bool kRules, int kCount> __device__ void apply([[maybe_unused]] float (&s)[kCount]) const {
    if constexpr (kRules)
      if (inner > 0)
#pragma unroll
        for (int i = 0; i < kCount; ++i) s[i] = tanhf(s[i] * inner);
  }

  // The factor that makes a sum relative to the greatest score `before` relative to `peak` >= before; the weight of a
  // score `before`.
  __device__ float rescale(float before, float peak) const {
    return before == peak ? 1.0f : exp2_fast((before - peak) * scale);
  }
};

// The weights of one vector's scores, not rounded yet: by(score). `keep`: the factor of the sums before.
struct Weigher {
  float scale, base, keep;
  __device__ float operator()(float score) const { return exp2_fast(__fmaf_rn(score, scale, -base)); }
};
// `peak`: the vector's greatest score so far, then with `most`, the greatest of those that are to be weighed.
__device__ inline Weigher weigher_of(const ScoreRules& rules, float& peak, float most) {
  const float before = peak;
  peak = fmaxf(before, most);
  return {rules.scale, peak == kUnseen ? 0.0f : peak * rules.scale, rules.rescale(before, peak)};
}

// The fold of chunks, in order: result = result * keep + chunk * take, and the same for the masses.
struct Fold {
  float keep, take;
};
__device__ inline float folded(float result, float chunk, Fold by) {
  return __fmaf_rn(result, by.keep, __fmul_rn(chunk, by.take));
}
__device__ inline float inverse_mass(float mass) { return mass > 0 ? __fdiv_rn(1.0f, mass) : 0.0f; }

// Of one vector: the greatest score of the chunks that have been folded, and their mass.
struct Total {
  float peak = kUnseen, mass = 0;

  // By what the sums are to be folded with those of a chunk; then its mass.
  __device__ Fold begin(const ScoreRules& rules, float chunk_peak) {
    const float before = peak;
    peak = fmaxf(before, chunk_peak);
    return {rules.rescale(before, peak), rules.rescale(chunk_peak, peak)};
  }
  __device__ Fold fold(const ScoreRules& rules, float chunk_peak, float chunk_mass) {
    const Fold by = begin(rules, chunk_peak);
    mass = folded(mass, chunk_mass, by);
    return by;
  }
  // Joins the sink of a query head, behind all chunks: a chunk of one score without a value. Returns what the sums are
  // multiplied by.
  __device__ float join_sink(const ScoreRules& rules, int head) {
    if (rules.sinks == nullptr) return 1;
    return fold(rules, rules.sinks[head] * 1.44269504f / rules.scale, 1).keep;
  }
  __device__ float inverse() const { return inverse_mass(mass); }  // what a sum is multiplied by
};

}  // namespace foretoken
