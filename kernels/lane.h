// A Lane: the execution context of one sequence. A verifier is a template over it, so that the same code runs as a loop
// on the host, as a cluster of thread blocks on a GPU, and, with a Chance instead of Philox, as an exact enumeration of
// every outcome of every draw. This module knows distributions and draws; it must not know trees or verifiers.
#pragma once
#include <array>
#include <cassert>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "kernels/backend.h"
#include "kernels/combined.h"
#include "kernels/distribution.h"
#include "kernels/philox.h"
#include "kernels/residual.h"
#include "kernels/tiles.h"

#if defined(__CUDACC__)
#include "kernels/cuda/distributions/cuda_lane.cuh"
#endif

namespace foretoken {

// Decides draws in place of Philox: the interface of the enumerator of the exact output distribution. Production code
// uses none.
class Chance {
 public:
  virtual ~Chance() = default;
  virtual bool accept(double probability, const Draws&, DrawName) = 0;
  virtual Token draw(int vocab, const std::function<double(Token)>& distribution, const Draws&, DrawName) = 0;
  virtual Token race(int vocab, const std::function<double(Token)>& distribution, const Draws&,
                     std::uint32_t position) = 0;
};

// The Lane of the host: a loop over tiles of the vocabulary. Operations of every Lane: draw, race, siblings, accept,
// sum, open, reject, each, every, near. Real values are double; every sum follows the summation tree of distribution.h.
class HostLane {
 public:
  HostLane(Backend& backend, int vocab, const Draws& draws)
      : HostLane(backend, vocab, draws, std::make_shared<RejectedGuesses>()) {}

  // A lane with draws of its own, for an inner rule; it shares the list of rejected guesses with this lane.
  HostLane within(std::uint32_t k) const { return {*backend_, vocab_, draws_.within(k), rejected_}; }

  // True in one thread of the sequence, which writes the results.
  bool leader() const { return true; }
  // Runs f(0) ... f(n - 1), possibly in parallel; what they write may be read after the launch.
  template <class F> void each(int n, const F& f) const {
    for (int i = 0; i < n; ++i) f(i);
  }
  // A copy of the values f(0) ... f(n - 1) in the memory that the lane reads fastest, for values that are read
  // repeatedly; null where the lane has no such memory or none is left. They may be read after settle().
  template <class T, class F> const T* near(int, const F&) { return nullptr; }
  void settle() const {}
  // Whether f(i) holds for all i < n.
  template <class F> bool every(int n, const F& f) const {
    for (int i = 0; i < n; ++i)
      if (!f(i)) return false;
    return true;
  }

  // True with the given probability (values above 1 count as 1).
  bool accept(double probability, DrawName name) {
    Chance* const chance = backend_->chance();
    return chance ? chance->accept(probability, draws_, name) : draws_.uniform(name) < probability;
  }

  // A token from `distribution` (any callable Token -> double with sum 1) by inverting its CDF.
  template <class L> Token draw(const L& distribution, DrawName name) {
    if (Chance* const chance = backend_->chance())
      return chance->draw(vocab_, [&](Token x) { return double(distribution(x)); }, draws_, name);
    return invert_cdf(tiles(distribution), vocab_, draws_.uniform(name));
  }
  // From a residual, by its unnormalized weights: the least token at which their running sum exceeds u * mass.
  template <class P, class Q> Token draw(const Residual<P, Q>& r, DrawName name) {
    if (Chance* const chance = backend_->chance())
      return chance->draw(vocab_, [&](Token x) { return double(r(x)); }, draws_, name);
    return invert_cdf(tiles_above(r), vocab_, draws_.uniform(name) * r.mass);
  }
  // A token with probability weights(x) over their sum; -1, and nothing is drawn, where the sum is 0.
  template <class L> Token draw_weighted(const L& weights, DrawName name) {
    const double mass = sum(weights);
    if (!(mass > 0)) return -1;
    if (Chance* const chance = backend_->chance())
      return chance->draw(vocab_, [&](Token x) { return double(weights(x)) / mass; }, draws_, name);
    return invert_cdf(tiles(weights), vocab_, draws_.uniform(name) * mass);
  }

  // The winner of an exponential race: argmin of E_x / distribution(x) with noise named by absolute position and token,
  // so that all races at one position use the same noise.
  template <class L> Token race(const L& distribution, std::uint32_t position) {
    if (Chance* const chance = backend_->chance())
      return chance->race(vocab_, [&](Token x) { return double(distribution(x)); }, draws_, position);
    return win_race(tiles(distribution), vocab_, draws_, position);
  }

  // n tokens from `distribution` in order, without replacement: f(j, token) receives the j-th, -1 where no mass was
  // left. Each inverts the CDF of the remaining distribution, under the name {role, node + j, index + j}.
  template <class F> void siblings(const Distribution& distribution, int n, DrawName name, const F& f) {
    for_siblings(distribution, n, f, [&](const auto& rest, int j) {
      return draw(rest, {name.role, name.node + std::uint32_t(j), name.index + std::uint32_t(j)});
    });
  }
  // The same by one race: the j-th token has the j-th least time.
  template <class F> void race_siblings(const Distribution& distribution, int n, std::uint32_t position, const F& f) {
    for_siblings(distribution, n, f, [&](const auto& rest, int) {
      if (Chance* const chance = backend_->chance())
        return chance->race(vocab_, [&](Token x) { return rest(x); }, draws_, position);
      return win_race(tiles_above(rest), vocab_, draws_, position);
    });
  }

  // The sum of f over the vocabulary.
  template <class F> double sum(F f) { return vocabulary_sum(f, vocab_); }
  template <class F, class P, class Q> double sum(const Combined<F, P, Q>& c) {
    double v[kTile], mass = 0;
    for (Token t = 0; t < vocab_; t += kTile) mass += evaluate(c, t, width(t), v);
    return mass;
  }
  // N <= kMostSums such sums in one pass: f(x) is a std::array<double, N>.
  template <int N, class F> std::array<double, N> sums(F f) {
    static_assert(N <= kMostSums);
    return vocabulary_sums<N>(f, vocab_);
  }
  template <int N, class F, class P, class Q> std::array<double, N> sums(const Combined<F, P, Q>& c) {
    static_assert(N <= kMostSums);
    double p[kTile], q[kTile];
    std::array<double, N> all{};
    for (Token t = 0; t < vocab_; t += kTile) {
      const int n = width(t);
      evaluate(c.p, t, n, p), evaluate(c.q, t, n, q);
      const auto tile = tile_sums<N>([&](int i) { return c.f(p[i], q[i]); }, 0, n);
      for (std::size_t k = 0; k < std::size_t(N); ++k) all[k] += tile[k];
    }
    return all;
  }

  // The residual of p before any rejection; q is the distribution from which children are drawn.
  template <class P, class Q> Residual<P, Q> open(const P& p, const Q& q) { return {p, q}; }
  // A child drawn from q was rejected.
  template <class P, class Q> void reject_draw(Residual<P, Q>& r) {
    r.c += r.mass;
    weigh(r);
  }
  // A guess without a draw (one-hot distribution) was rejected.
  template <class P, class Q> void reject_guess(Residual<P, Q>& r, Token guess) {
    remember(r, guess);
    weigh(r);
  }
  // A child drawn without replacement was rejected: it was drawn from q without its earlier siblings, and `left` is the
  // mass of q without them (1 for the first child). r is 0 at those siblings, so it becomes (r - q / left)+ over its
  // sum.
  template <class P, class Q> void reject_once(Residual<P, Q>& r, Token child, double left) {
    if (left > 0) r.c += r.mass / left;  // else the child has all remaining mass, but for rounding
    reject_guess(r, child);
  }
  // More guesses were rejected than a lane can store (kMostGuesses); results since then are invalid.
  bool overflown() const { return rejected_->overflown; }

 private:
  // The rejected guesses of one round, to which residuals point.
  struct RejectedGuesses {
    std::vector<RejectedGuess> guesses{};
    bool overflown = false;
  };
  HostLane(Backend& backend, int vocab, const Draws& draws, std::shared_ptr<RejectedGuesses> rejected)
      : backend_(&backend), vocab_(vocab), draws_(draws), rejected_(std::move(rejected)) {}

  template <class P, class Q> void remember(Residual<P, Q>& r, Token guess) {
    auto& guesses = rejected_->guesses;
    guesses.reserve(kMostGuesses);  // residuals point to them, so they must not be reallocated
    if (guesses.size() == std::size_t(kMostGuesses)) {
      rejected_->overflown = true;
      return;
    }
    guesses.push_back({guess, r.rejected});
    r.guesses = guesses.data(), r.rejected = std::int32_t(guesses.size()) - 1;
  }
  // The sum of r.above, the unnormalized residual.
  template <class P, class Q> double mass_above(const Residual<P, Q>& r) const {
    double p[kTile], mass = 0;
    for (Token t = 0; t < vocab_; t += kTile) {
      const int n = width(t);
      above(r, t, n, p);
      mass += sum_of(p, n);
    }
    return mass;
  }
  template <class P, class Q> void weigh(Residual<P, Q>& r) {
    r.mass = mass_above(r);
    // No mass left means that the rejection had probability 0 but for rounding: start again from p.
    if (!(r.mass > 0)) r.c = 0, r.rejected = -1, r.mass = r.scale = 1;
  }
  template <class F, class Pick>
  void for_siblings(const Distribution& distribution, int n, const F& f, const Pick& pick) {
    Residual<Distribution, OneHot> rest(distribution, {-1});
    for (int j = 0; j < n; ++j) {
      const Token x = rest.mass > 0 ? pick(rest, j) : -1;
      f(j, x);
      if (x < 0 || j + 1 == n) continue;
      remember(rest, x);
      rest.mass = mass_above(rest);
    }
  }

  int width(Token t) const { return t + kTile < vocab_ ? kTile : vocab_ - t; }
  template <class L> auto tiles(const L& distribution) const {
    return [this, &distribution](Token t, int n, double* p) { return evaluate(distribution, t, n, p); };
  }
  template <class P, class Q> auto tiles_above(const Residual<P, Q>& r) const {
    return [this, &r](Token t, int n, double* p) {
      above(r, t, n, p);
      return sum_of(p, n);
    };
  }
  static double sum_of(const double* p, int n) {
    return tile_sum([&](int i) { return p[i]; }, 0, n);
  }

  // p[i] = distribution(t + i) for i < n; returns their tile_sum.
  template <class L> double evaluate(const L& distribution, Token t, int n, double* p) const {
    for (int i = 0; i < n; ++i) p[i] = distribution(t + i);
    return sum_of(p, n);
  }
  double evaluate(const Distribution& distribution, Token t, int n, double* p) const {
    return backend_->distribution_tile(distribution, t, n, p);
  }
  template <class P, class Q> double evaluate(const Residual<P, Q>& r, Token t, int n, double* p) const {
    above(r, t, n, p);
    for (int i = 0; i < n; ++i) p[i] /= r.mass;
    return sum_of(p, n);
  }
  template <class F, class P, class Q> double evaluate(const Combined<F, P, Q>& c, Token t, int n, double* v) const {
    double q[kTile];
    evaluate(c.p, t, n, v), evaluate(c.q, t, n, q);
    for (int i = 0; i < n; ++i) v[i] = c.f(v[i], q[i]);
    return sum_of(v, n);
  }
  // p[i] = r.above(t + i).
  template <class P, class Q> void above(const Residual<P, Q>& r, Token t, int n, double* p) const {
    evaluate(r.p, t, n, p);
    if (r.c != 0) {
      double q[kTile];
      evaluate(r.q, t, n, q);
      for (int i = 0; i < n; ++i) {
        const double d = r.scale * p[i] - r.c * q[i];
        p[i] = d > 0 ? d : 0;
      }
    }
    for (std::int32_t i = r.rejected; i >= 0; i = r.guesses[i].before)
      if (const Token guess = r.guesses[i].token; guess >= t && guess < t + n) p[guess - t] = 0;
  }

  Backend* backend_;
  int vocab_;
  Draws draws_;
  std::shared_ptr<RejectedGuesses> rejected_;
};

// Runs f(lane, i) for every i < count, each on its own lane with draws[i]. `f` is plain data with a host and device
// call operator; f, `draws` and everything they point to are in the backend's memory.
template <class F> void launch(Backend& backend, int count, const Draws* draws, int vocab, const F& f) {
#if defined(__CUDACC__)
  if (backend.device().kind == Device::Kind::cuda) return launch_on_device(backend, count, draws, vocab, f);
#endif
  assert(backend.device().kind == Device::Kind::cpu);
  backend.for_each(count, [&](int i) {
    HostLane lane(backend, vocab, draws[i]);
    f(lane, i);
  });
}

}  // namespace foretoken
