// Residual distributions after rejected drafts, evaluated lazily, on host and device: multi-round rejection sampling
// (SpecInfer, Miao et al. 2024, arXiv 2305.09781), without replacement (Jeon et al. 2024, arXiv 2402.14160). This
// module must not know trees, verifiers or which device evaluates it.
#pragma once
#include <cstdint>

#include "kernels/distribution.h"
#include "kernels/host_device.h"

namespace foretoken {

// How many guesses one lane can reject in one round: a rule rejects each node of a tree at most once.
constexpr int kMostGuesses = 256;

// A rejected guess, and the index of the guess that the same residual rejected before it (-1: none). The lists of all
// residuals of a lane share the lane's memory, so that a residual is small and cheap to copy.
struct alignas(8) RejectedGuess {
  Token token;
  std::int32_t before;
};

// The residual of p after children drawn from q were rejected: r(x) = (p(x) - c q(x))+ / mass, and 0 for rejected
// guesses. Closed under rejection: subtracting q from r gives (p - (c + mass) q)+ over its own sum. It is evaluated
// token by token, so no scratch row is needed.
template <class P, class Q> struct Residual {
  P p;
  Q q;
  double c = 0, mass = 1;
  // Factor of p: r(x) = (scale p(x) - c q(x))+ / mass. Block verification sets it before the first rejection to the
  // joint acceptance weight of the path. It has no effect while c is 0.
  double scale = 1;
  const RejectedGuess* guesses = nullptr;  // the lane's list of rejected guesses
  std::int32_t rejected = -1;              // index of the guess that this residual rejected last; -1: none

  FORETOKEN_HD Residual(const P& p, const Q& q) : p(p), q(q) {}

  FORETOKEN_HD bool gone(Token x) const {
    for (std::int32_t i = rejected; i >= 0; i = guesses[i].before)
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
