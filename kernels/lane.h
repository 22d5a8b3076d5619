// A Lane: the workers of one sequence. A verifier is a template over it, so that the same twenty lines run as a loop on
// the host, as a cluster of thread blocks on a GPU, and, with a Chance in the place of Philox, as an exact proof that
// follows every outcome of every draw. This room knows laws and draws; it must not know trees or verifiers.
#pragma once
#include <functional>
#include <span>

#include "kernels/backend.h"
#include "kernels/law.h"
#include "kernels/philox.h"

namespace foretoken {

// Who decides draws when it is not Philox: the enumerator of the exact law. Production code passes none.
class Chance {
 public:
  virtual ~Chance() = default;
  virtual bool accept(double probability, const Draws&, DrawName) = 0;
  virtual Token draw(int vocab, const std::function<double(Token)>& law, const Draws&, DrawName) = 0;
  virtual Token race(int vocab, const std::function<double(Token)>& law, const Draws&, std::uint32_t position) = 0;
};

// What is left of p after children drawn from q were refused: r(x) = (p(x) - c q(x))+ / mass, and 0 for refused guesses.
// Closed under refusal: subtracting q from r gives (p - (c + mass) q)+ over its own sum. Lazy: no scratch row.
template <class P, class Q> struct Residual {
  static constexpr int kMaxRefused = 64;
  P p;
  Q q;
  double c = 0, mass = 1;
  int refused = 0;
  Token gone[kMaxRefused];

  FORETOKEN_HD double above(Token x) const {  // r(x) * mass
    for (int i = 0; i < refused; ++i)
      if (gone[i] == x) return 0;
    const double d = c == 0 ? p(x) : p(x) - c * q(x);
    return d > 0 ? d : 0;
  }
  FORETOKEN_HD double operator()(Token x) const { return above(x) / mass; }
};

// A plain loop. The verbs of every Lane: draw, race, accept, sum, residual. Answers are double.
class HostLane {
 public:
  HostLane(int vocab, const Draws& draws, Chance* chance = nullptr) : vocab_(vocab), draws_(draws), chance_(chance) {}

  HostLane within(std::uint32_t k) const { return {vocab_, draws_.within(k), chance_}; }

  // True with the given probability (values above 1 count as 1).
  bool accept(double probability, DrawName name) {
    return chance_ ? chance_->accept(probability, draws_, name) : draws_.uniform(name) < probability;
  }

  // A token from `law` (any callable Token -> double with sum 1) by inverting its CDF, in the fixed tree of law.h.
  template <class L> Token draw(const L& law, DrawName name) {
    if (chance_) return chance_->draw(vocab_, [&](Token x) { return double(law(x)); }, draws_, name);
    return invert_cdf(law, vocab_, draws_.uniform(name));
  }

  // The winner of an exponential race: argmin of E_x / law(x) with noise named by absolute position and token, so that
  // everybody who races at one position meets the same noise.
  template <class L> Token race(const L& law, std::uint32_t position) {
    if (chance_) return chance_->race(vocab_, [&](Token x) { return double(law(x)); }, draws_, position);
    return win_race(law, vocab_, draws_, position);
  }

  template <class F> double sum(F f) { return vocabulary_sum(f, vocab_); }

  // All of p, nothing refused yet; q is the law of the children to come.
  template <class P, class Q> Residual<P, Q> open(const P& p, const Q& q) { return {p, q, 0, 1, 0, {}}; }
  // A child drawn from q was refused.
  template <class P, class Q> void refuse_draw(Residual<P, Q>& r) {
    r.c += r.mass;
    weigh(r);
  }
  // A certain guess (one-hot law) was refused.
  template <class P, class Q> void refuse_guess(Residual<P, Q>& r, Token guess) {
    r.gone[r.refused++] = guess;
    weigh(r);
  }

  template <class L> static Token invert_cdf(const L& law, int vocab, double u) {
    double before = 0;
    Token last = 0;
    for (int t = 0; t < vocab; t += kTile) {
      const int end = t + kTile < vocab ? t + kTile : vocab;
      const double tile = tile_sum(law, t, end);
      if (tile > 0 && (before + tile > u)) {
        double cdf = before;
        for (Token x = t; x < end; ++x) {
          const double p = law(x);
          if (p > 0) last = x;
          cdf += p;
          if (p > 0 && cdf > u) return x;
        }
        return last;  // the CDF inside a tile may end an ulp below the tile's sum
      }
      if (tile > 0) last = last_positive(law, t, end);
      before += tile;
    }
    return last;
  }

  template <class L> static Token win_race(const L& law, int vocab, const Draws& draws, std::uint32_t position) {
    Token best = -1;
    double least = 0;
    for (Token first = 0; first < vocab; first += 4) {
      const Philox noise = draws.noise_block(position, std::uint32_t(first));
      for (Token x = first; x < vocab && x < first + 4; ++x) {
        const double p = law(x), u = Draws::uniform_from(noise.word[x - first]);
        // -log u >= 1 - u: most tokens lose before the logarithm is needed. The margin covers its rounding.
        if (!(p > 0) || (best >= 0 && (1 - u) * (1 - 1e-12) > least * p)) continue;
        const double time = -log_exactly(u) / p;
        if (best < 0 || time < least) best = x, least = time;
      }
    }
    return best < 0 ? 0 : best;
  }

 private:
  template <class P, class Q> void weigh(Residual<P, Q>& r) {
    r.mass = sum([&](Token x) { return r.above(x); });
    // Nothing left means that the refusal had probability 0 but for rounding: start again from p.
    if (!(r.mass > 0)) r.c = 0, r.refused = 0, r.mass = 1;
  }
  template <class L> static Token last_positive(const L& law, int begin, int end) {
    for (Token x = end - 1; x > begin; --x)
      if (law(x) > 0) return x;
    return begin;
  }

  int vocab_;
  Draws draws_;
  Chance* chance_;
};

// Runs `f(lane, i)` for every sequence i of a batch, each on its own lane.
template <class F> void launch(Backend& backend, std::span<const Draws> draws, int vocab, const F& f) {
  backend.for_each(int(draws.size()), [&](int i) {
    HostLane lane(vocab, draws[std::size_t(i)], backend.chance());
    f(lane, i);
  });
}

}  // namespace foretoken
