#include "kernels/cpu/draws.h"

#include <algorithm>

namespace foretoken {
namespace {

// Who has won a race so far.
struct Winner {
  Token token = -1;
  double time = 0;

  // E = -log(u) is at least 1 - u, so most logarithms need not be taken: who is later than `time` by more than any rounding
  // has lost already.
  void meet(Token x, double p, double u) {
    if (token >= 0 && 1 - u > time * p * (1 + 1e-9)) return;
    const double t = -log_exactly(u) / p;
    if (token < 0 || t < time) token = x, time = t;
  }
};

}  // namespace

Token invert_cdf(const Operations& operations, const Law& law, double u) {
  double p[kTile], before = 0;
  Token last = 0;
  for (int begin = 0; begin < law.vocab; begin += kTile) {
    const int n = std::min(kTile, law.vocab - begin);
    const double tile = operations.law_tile(law.logits, law.row, begin, n, p);
    if (!(tile > 0)) continue;
    const bool here = before + tile > u;
    double cdf = before;
    for (int i = 0; i < n; ++i) {
      if (p[i] > 0) last = begin + i;
      cdf += p[i];
      if (here && p[i] > 0 && cdf > u) return begin + i;
    }
    if (here) return last;  // the CDF inside a tile may end an ulp below the tile's sum
    before += tile;
  }
  return last;
}

Token win_race(const Operations& operations, const Law& law, const Draws& draws, std::uint32_t position) {
  double p[kTile + 4];
  Winner winner;
  for (int begin = 0; begin < law.vocab; begin += kTile) {
    const int n = std::min(kTile, law.vocab - begin);
    operations.law_tile(law.logits, law.row, begin, n, p);
    std::fill(p + n, p + (n + 3) / 4 * 4, 0.0);
    for (int i = 0; i < n; i += 4) {  // four tokens share a counter
      if (p[i] + p[i + 1] + p[i + 2] + p[i + 3] == 0) continue;
      const Philox noise = draws.noise_block(position, std::uint32_t(begin + i));
      for (int j = 0; j < 4; ++j)
        if (p[i + j] > 0) winner.meet(begin + i + j, p[i + j], Draws::uniform_from(noise.word[j]));
    }
  }
  return std::max(winner.token, 0);
}

}  // namespace foretoken
