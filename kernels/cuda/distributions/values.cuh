// Probabilities of single tokens for the threads of a crew, with the bits of kernels/distribution.h and
// kernels/residual.h and fewer instructions: divisions by the same number become five multiplications and additions.
// This header knows distributions; it must not know draws.
#pragma once
#include <type_traits>

#include "kernels/combined.h"
#include "kernels/cuda/distributions/crew.cuh"
#include "kernels/residual.h"

namespace foretoken {

// exp_weight, its scale 2^n from the bits of t.
__device__ inline float device_weight(float x) {
  const ExpParts e = exp_parts(x);
  const float scale = __int_as_float((__float_as_int(e.t) << 23) + 0x3f800000), w = mul(e.mantissa, scale);
  return x < -87.0f ? 0.0f : w;
}

// a / b, correctly rounded, for many a and one b: a Newton step from the rounded reciprocal, then Markstein's
// correction (Markstein 1990), which gives the correctly rounded quotient where nothing over- or underflows (weights
// and masses are far from that).
struct Divisor {
  double b, reciprocal;
  __device__ explicit Divisor(double b) : b(b), reciprocal(1.0 / b) {}
  __device__ double divide(double a) const {
    double q = mul(a, reciprocal);
    q = __fma_rn(__fma_rn(-q, b, a), reciprocal, q);
    return __fma_rn(__fma_rn(-q, b, a), reciprocal, q);
  }
};

// Distribution::weight of a distribution that is not one-hot; kCut: the distribution may have a threshold.
template <bool kCut = true> struct Weights {
  const float* logits;
  float peak, inverse_temperature, threshold;
  __device__ Weights(const float* logits, const DistributionRow& row)
      : logits(logits), peak(row.peak), inverse_temperature(row.inverse_temperature), threshold(row.threshold) {}
  __device__ float of(float logit) const {
    const float w = device_weight(mul(add(logit, -peak), inverse_temperature));
    return !kCut || logit >= threshold ? w : 0.0f;
  }
  __device__ float operator()(Token x) const { return of(logits[x]); }
};

// Any callable, unchanged.
template <class L> struct Values {
  const L& distribution;
  __device__ explicit Values(const L& distribution) : distribution(distribution) {}
  __device__ double operator()(Token x) const { return distribution(x); }
};

template <> struct Values<Distribution> {
  Weights<> weights;
  Divisor mass;
  Token certain;  // the token of a one-hot distribution, else -1
  __device__ explicit Values(const Distribution& distribution)
      : weights(distribution.logits, distribution.row),
        mass(distribution.row.mass),
        certain(distribution.row.one_hot ? distribution.row.greedy : -1) {}
  __device__ double operator()(Token x) const {
    const double p = mass.divide(double(weights(x))), one = x == certain ? 1.0 : 0.0;
    return certain >= 0 ? one : p;
  }
};

// Residual::above.
template <class P, class Q> struct Above {
  Values<P> p;
  Values<Q> q;
  double c, scale;
  const RejectedGuess* guesses;
  std::int32_t rejected;
  __device__ explicit Above(const Residual<P, Q>& r)
      : p(r.p), q(r.q), c(r.c), scale(r.c == 0 ? 1 : r.scale), guesses(r.guesses), rejected(r.rejected) {}
  __device__ double left(Token x) const {  // without the rejected guesses
    const double d = add(mul(scale, p(x)), -mul(c, q(x)));
    return d > 0 ? d : 0;
  }
};
// Which of n <= 32 tokens were rejected: bit i for begin + i * stride.
__device__ inline std::uint32_t rejected_among(const RejectedGuess* guesses, std::int32_t rejected, Token begin,
                                               int stride, int n) {
  std::uint32_t bits = 0;
  while (rejected >= 0) {
    const RejectedGuess guess = guesses[rejected];
    rejected = guess.before;
    const int d = guess.token - begin;
    if (d >= 0 && d % stride == 0 && d / stride < n) bits |= 1u << d / stride;
  }
  return bits;
}
template <class P, class Q> struct AboveAlong {
  const Above<P, Q>& f;
  Token begin;
  int stride;
  std::uint32_t gone;
  __device__ double operator()(int i) const {
    const double left = f.left(begin + i * stride);
    return gone >> i & 1u ? 0.0 : left;
  }
};
template <class P, class Q> __device__ AboveAlong<P, Q> along(const Above<P, Q>& f, Token begin, int stride, int n) {
  return {f, begin, stride, rejected_among(f.guesses, f.rejected, begin, stride, n)};
}

// The same where only guesses were rejected (c == 0), so that q is not needed.
template <class P> struct Unguessed {
  Values<P> p;
  const RejectedGuess* guesses;
  std::int32_t rejected;
  template <class Q> __device__ explicit Unguessed(const Residual<P, Q>& r)
      : p(r.p), guesses(r.guesses), rejected(r.rejected) {}
};
template <class P> struct UnguessedAlong {
  const Values<P>& p;
  Token begin;
  int stride;
  std::uint32_t gone;
  __device__ double operator()(int i) const {
    const double left = p(begin + i * stride);
    return gone >> i & 1u ? 0.0 : left;
  }
};
template <class P> __device__ UnguessedAlong<P> along(const Unguessed<P>& f, Token begin, int stride, int n) {
  return {f.p, begin, stride, rejected_among(f.guesses, f.rejected, begin, stride, n)};
}

// A residual as a distribution: above over its mass.
template <class P, class Q> struct Values<Residual<P, Q>> {
  Above<P, Q> above;
  Divisor mass;
  __device__ explicit Values(const Residual<P, Q>& r) : above(r), mass(r.mass) {}
};
template <class P, class Q> struct RestAlong {
  AboveAlong<P, Q> above;
  const Divisor& mass;
  __device__ double operator()(int i) const { return mass.divide(above(i)); }
};
template <class P, class Q>
__device__ RestAlong<P, Q> along(const Values<Residual<P, Q>>& f, Token begin, int stride, int n) {
  return {along(f.above, begin, stride, n), f.mass};
}

// f(p(x), q(x)).
template <class F, class P, class Q> struct Values<Combined<F, P, Q>> {
  Values<P> p;
  Values<Q> q;
  const F& f;
  __device__ explicit Values(const Combined<F, P, Q>& c) : p(c.p), q(c.q), f(c.f) {}
};
template <class F, class G, class H> struct CombinedAlong {
  G p;
  H q;
  const F& f;
  __device__ auto operator()(int i) const { return f(double(p(i)), double(q(i))); }
};
template <class F, class P, class Q>
__device__ auto along(const Values<Combined<F, P, Q>>& v, Token begin, int stride, int n) {
  const auto p = along(v.p, begin, stride, n);
  const auto q = along(v.q, begin, stride, n);
  return CombinedAlong<F, std::remove_const_t<decltype(p)>, std::remove_const_t<decltype(q)>>{p, q, v.f};
}

}  // namespace foretoken
