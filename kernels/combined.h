// Numbers that two distributions give every token, f(p(x), q(x)), for sums and draws over a vocabulary: a lane then
// evaluates whole tiles of p and q the fastest way that it has. Host and device. This module must not know what a rule
// makes of the numbers.
#pragma once
#include "kernels/distribution.h"
#include "kernels/host_device.h"

namespace foretoken {

// F: (double, double) -> double, or -> std::array<double, N> for several sums at once; plain data, no side effects.
template <class F, class P, class Q> struct Combined {
  P p;
  Q q;
  F f;
  FORETOKEN_HD auto operator()(Token x) const { return f(double(p(x)), double(q(x))); }
};
template <class F, class P, class Q> FORETOKEN_HD Combined<F, P, Q> combined(const P& p, const Q& q, const F& f) {
  return {p, q, f};
}

// How many sums a lane adds up in one pass.
constexpr int kMostSums = 4;

}  // namespace foretoken
