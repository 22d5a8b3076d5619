// What a distribution becomes when guesses from it were refused: the algebra of recursive rejection, lazily evaluated,
// host and device. This room must not know trees, verifiers or who evaluates it.
#pragma once
#include "kernels/distribution.h"
#include "kernels/host_device.h"

namespace foretoken {

// What is left of p after children drawn from q were refused: r(x) = (p(x) - c q(x))+ / mass, and 0 for refused
// guesses. Closed under refusal: subtracting q from r gives (p - (c + mass) q)+ over its own sum. Lazy: no scratch row.
template <class P, class Q> struct Residual {
  static constexpr int kMaxRefused = 64;
  P p;
  Q q;
  double c = 0, mass = 1;
  int refused = 0;
  Token gone[kMaxRefused];  // the first `refused` of them mean something

  FORETOKEN_HD Residual(const P& p, const Q& q) : p(p), q(q) {}

  FORETOKEN_HD double above(Token x) const {  // r(x) * mass
    for (int i = 0; i < refused; ++i)
      if (gone[i] == x) return 0;
    const double d = c == 0 ? p(x) : add(double(p(x)), -mul(c, double(q(x))));
    return d > 0 ? d : 0;
  }
  FORETOKEN_HD double operator()(Token x) const { return above(x) / mass; }
};

}  // namespace foretoken
