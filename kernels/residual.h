// What a distribution becomes when guesses from it were refused: the algebra of recursive rejection, lazily evaluated,
// host and device. This module must not know trees, verifiers or who evaluates it.
#pragma once
#include <cstdint>

#include "kernels/distribution.h"
#include "kernels/host_device.h"

namespace foretoken {

// The guesses that one lane may refuse in one round: a rule refuses each node of a tree once.
constexpr int kMostGuesses = 256;

// A refused guess, and which guess the same residual refused before it (-1: none). The lists of all residuals of a lane
// share the lane's memory, so that a residual is small and a copy of it costs nothing.
struct alignas(8) RefusedGuess {
  Token token;
  std::int32_t before;
};

// What is left of p after children drawn from q were refused: r(x) = (p(x) - c q(x))+ / mass, and 0 for refused
// guesses. Closed under refusal: subtracting q from r gives (p - (c + mass) q)+ over its own sum. Lazy: no scratch row.
template <class P, class Q> struct Residual {
  P p;
  Q q;
  double c = 0, mass = 1;
  // Of p, where it is first subtracted from: r(x) = (scale p(x) - c q(x))+ / mass. A rule that weighs p by what was
  // accepted jointly sets it before the first refusal (block verification); it means nothing while c is 0.
  double scale = 1;
  const RefusedGuess* guesses = nullptr;  // of the lane
  std::int32_t refused = -1;              // which of them was the last one; -1: none

  FORETOKEN_HD Residual(const P& p, const Q& q) : p(p), q(q) {}

  FORETOKEN_HD bool gone(Token x) const {
    for (std::int32_t i = refused; i >= 0; i = guesses[i].before)
      if (guesses[i].token == x) return true;
    return false;
  }
  FORETOKEN_HD double above(Token x) const {  // r(x) * mass
    if (gone(x)) return 0;
    const double d = c == 0 ? p(x) : add(mul(scale, double(p(x))), -mul(c, double(q(x))));
    return d > 0 ? d : 0;
  }
  FORETOKEN_HD double operator()(Token x) const { return above(x) / mass; }
};

}  // namespace foretoken
