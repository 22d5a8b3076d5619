// A token drawn from a distribution that is given tile by tile, on the host: by inverting its CDF, or by an exponential
// race. This module must not know lanes, nor how a tile is evaluated.
#pragma once
#include "kernels/backend.h"
#include "kernels/distribution.h"
#include "kernels/philox.h"

namespace foretoken {

// A tile of a distribution: fills p[0 .. n) with the probabilities of the tokens t .. t + n and returns their tile_sum.
// This one evaluates the distribution token by token.
template <class L> auto scalar_tiles(const L& distribution) {
  return [distribution](Token t, int n, double* p) {
    for (int i = 0; i < n; ++i) p[i] = distribution(t + i);
    return tile_sum([&](int i) { return p[i]; }, 0, n);
  };
}

// The least token at which the CDF exceeds u.
template <class Tiles> Token invert_cdf(const Tiles& tiles, int vocab, double u) {
  double p[kTile], before = 0;
  Token last = 0;
  for (Token t = 0; t < vocab; t += kTile) {
    const int n = t + kTile < vocab ? kTile : vocab - t;
    const double tile = tiles(t, n, p);
    if (!(tile > 0)) continue;
    const bool here = before + tile > u;
    double cdf = before;
    for (int i = 0; i < n; ++i) {
      if (p[i] > 0) last = t + i;
      cdf += p[i];
      if (here && p[i] > 0 && cdf > u) return t + i;
    }
    if (here) return last;  // the CDF inside a tile may end an ulp below the tile's sum
    before += tile;
  }
  return last;
}

// The winner of an exponential race: argmin of -log(u_x) / distribution(x), with the noise of an absolute position. If
// some tokens are removed from a distribution, the others keep their order; the distribution need not be normalized.
template <class Tiles> Token win_race(const Tiles& tiles, int vocab, const Draws& draws, std::uint32_t position) {
  double p[kTile + 4], least = 0;
  Token best = -1;
  for (Token t = 0; t < vocab; t += kTile) {
    const int n = t + kTile < vocab ? kTile : vocab - t;
    if (!(tiles(t, n, p) > 0)) continue;
    p[n] = p[n + 1] = p[n + 2] = p[n + 3] = 0;
    for (int i = 0; i < n; i += 4) {  // four tokens share a counter
      if (p[i] + p[i + 1] + p[i + 2] + p[i + 3] == 0) continue;
      const Philox noise = draws.noise_block(position, std::uint32_t(t + i));
      for (int j = 0; j < 4; ++j) {
        const double u = Draws::uniform_from(noise.word[j]);
        // -log u >= 1 - u: a token whose bound exceeds the best time by more than any rounding needs no logarithm.
        if (!(p[i + j] > 0) || (best >= 0 && 1 - u > least * p[i + j] * (1 + 1e-9))) continue;
        const double time = -log_exactly(u) / p[i + j];
        if (best < 0 || time < least) best = t + i + j, least = time;
      }
    }
  }
  return best < 0 ? 0 : best;
}

}  // namespace foretoken
