// Distributions over a vocabulary, for any kWidth, with the same bits as kernels/distribution.h: multiplications and
// additions are not fused (the build forbids contraction), and every sum uses the tree of vocabulary_sum. Bytes: 4 *
// vocab a row, read a few times from the nearest cache. Operations: about 25 a token for its weight; each cut adds
// about thirty passes of one comparison and one addition a token, since thresholds are found by halving the set of
// floats.
#pragma once
#include "kernels/cpu/operations.h"
#include "kernels/cpu/vectors.h"

namespace foretoken {
namespace {

// A row of weights, for repeated sums over the tokens that a threshold keeps.
struct Weighed {
  const float* logits;
  const float* weights;
  int vocab;
};

inline double folded(const Doubles& a) { return ((a[0] + a[4]) + (a[2] + a[6])) + ((a[1] + a[5]) + (a[3] + a[7])); }

// vocabulary_sum of keep(logit) ? weight : 0, for vectors of logits.
template <class Keep> double kept_mass(const Weighed& w, Keep keep) {
  double sum = 0;
  for (int begin = 0; begin < w.vocab; begin += kTile) {
    const int end = begin + kTile < w.vocab ? begin + kTile : w.vocab;
    Doubles a = {};
    int i = begin;
    for (; i + 8 <= end; i += 8) {
      const Floats8 weight = load<Floats8>(w.weights + i);
      a += __builtin_convertvector(keep(load<Floats8>(w.logits + i)) ? weight : Floats8{}, Doubles);
    }
    for (int j = 0; i + j < end; ++j) {
      const Floats8 one = Floats8{} + w.logits[i + j];
      if (keep(one)[0]) a[j] += double(w.weights[i + j]);
    }
    sum += folded(a);
  }
  return sum;
}

// Floats as integers of the same order, and back.
inline std::int32_t rank_of(float f) {
  std::int32_t i;
  std::memcpy(&i, &f, 4);
  return i < 0 ? std::int32_t(0x80000000u - std::uint32_t(i)) : i;
}
inline float of_rank(std::int32_t r) {
  const std::int32_t i = r < 0 ? std::int32_t(0x80000000u - std::uint32_t(r)) : r;
  float f;
  std::memcpy(&f, &i, 4);
  return f;
}

// The least float in [low, high] for which holds(f), which must be true from some float on; it is assumed true at
// `high`. Stops early where enough(a, b): then the answer is in [a, b), and a serves as well.
template <class Holds, class Enough> float least_that(float low, float high, Holds holds, Enough enough) {
  std::int64_t no = std::int64_t(rank_of(low)) - 1, yes = rank_of(high);
  while (yes - no > 1 && !enough(of_rank(std::int32_t(no + 1)), of_rank(std::int32_t(yes + 1)))) {
    const std::int64_t middle = no + (yes - no) / 2;
    (holds(of_rank(std::int32_t(middle))) ? yes : no) = middle;
  }
  return of_rank(std::int32_t(no + 1));
}

inline int count_from(const float* logits, int vocab, float least) {  // how many are >= least
  Ints counts = {};
  int i = 0, n = 0;
  for (; i + kWidth <= vocab; i += kWidth) counts -= load<Floats>(logits + i) >= least;
  for (int j = 0; j < kWidth; ++j) n += counts[j];
  for (; i < vocab; ++i) n += logits[i] >= least;
  return n;
}

inline float least_from(const float* logits, int vocab, float least) {  // the least logit that is >= least
  Floats found = spread(__builtin_inff());
  int i = 0;
  for (; i + kWidth <= vocab; i += kWidth) {
    const Floats v = load<Floats>(logits + i);
    found = v >= least ? (v < found ? v : found) : found;
  }
  float f = __builtin_inff();
  for (int j = 0; j < kWidth; ++j) f = found[j] < f ? found[j] : f;
  for (; i < vocab; ++i)
    if (logits[i] >= least && logits[i] < f) f = logits[i];
  return f;
}

// The least logit from `least` on whose weight is at least min_p.
inline float least_likely(const Weighed& w, float least, float min_p, float peak) {
  Floats found = spread(peak);
  int i = 0;
  for (; i + kWidth <= w.vocab; i += kWidth) {
    const Floats v = load<Floats>(w.logits + i);
    found = ((v >= least) & (load<Floats>(w.weights + i) >= min_p) & (v < found)) ? v : found;
  }
  float f = peak;
  for (int j = 0; j < kWidth; ++j) f = found[j] < f ? found[j] : f;
  for (; i < w.vocab; ++i)
    if (w.logits[i] >= least && w.weights[i] >= min_p && w.logits[i] < f) f = w.logits[i];
  return f;
}

// The least logit that top-k, top-p and min-p keep, as in normalize().
inline float cut(const Weighed& w, const Warp& warp, float peak, float lowest) {
  float least = lowest;
  if (warp.top_k > 0 && warp.top_k < w.vocab) {
    const auto too_few = [&](float f) { return count_from(w.logits, w.vocab, f) < warp.top_k; };
    const float next = least_that(lowest, peak, too_few, [](float, float) {
      return false;
    });  // the float after the k-th greatest logit, or the peak itself
    least = too_few(next) ? of_rank(rank_of(next) - 1) : next;
  }
  if (warp.top_p < 1) {
    const double limit = double(warp.top_p) * kept_mass(w, [&](const Floats8& v) { return v >= least; });
    const auto stays = [&](float f) {
      return kept_mass(w, [&](const Floats8& v) { return (v >= least) & (v > f); }) < limit;
    };
    const auto one_left = [&](float a, float b) {
      return count_from(w.logits, w.vocab, a) - count_from(w.logits, w.vocab, b) <= 1;
    };
    const float from = least_that(least, peak, stays, one_left);
    least = least_from(w.logits, w.vocab, from);
  }
  if (warp.min_p > 0) least = least_likely(w, least, warp.min_p, peak);
  return least;
}

struct Extremes {
  float peak, lowest;
  bool nan;
};

inline Extremes extremes(const float* logits, int vocab) {
  Floats high = spread(-__builtin_inff()), low = spread(__builtin_inff());
  Ints ordered = Ints{} - 1;
  int i = 0;
  for (; i + kWidth <= vocab; i += kWidth) {
    const Floats v = load<Floats>(logits + i);
    ordered &= v == v;
    high = v > high ? v : high;
    low = v < low ? v : low;
  }
  Extremes e{high[0], low[0], false};
  for (int j = 0; j < kWidth; ++j) {
    e.nan |= !ordered[j];
    e.peak = high[j] > e.peak ? high[j] : e.peak;
    e.lowest = low[j] < e.lowest ? low[j] : e.lowest;
  }
  for (; i < vocab; ++i) {
    e.nan |= logits[i] != logits[i];
    e.peak = logits[i] > e.peak ? logits[i] : e.peak;
    e.lowest = logits[i] < e.lowest ? logits[i] : e.lowest;
  }
  return e;
}

inline void weigh(const float* logits, int vocab, float peak, float inverse_temperature, float* weights) {
  int i = 0;
  for (; i + kWidth <= vocab; i += kWidth)
    save(weights + i, exp_weights((load<Floats>(logits + i) - peak) * inverse_temperature));
  const int n = vocab - i;
  if (n > 0) save_some(weights + i, exp_weights((load_some(logits + i, n) - peak) * inverse_temperature), n);
}

// raw_log_normalizer holds the mass: the caller takes its logarithm, once a row.
void distribution_of_row(const float* logits, int vocab, const Warp& warp, float* scratch, DistributionRow* row) {
  const Extremes e = extremes(logits, vocab);
  if (e.nan || __builtin_isinf(e.peak)) {
    row->greedy = -1;
    return;
  }
  Token greedy = 0;
  while (logits[greedy] != e.peak) ++greedy;
  row->greedy = greedy;
  row->peak = logits[greedy];
  row->threshold = -__builtin_inff();
  const Weighed w{logits, scratch, vocab};
  const auto everything = [](const Floats8& v) { return v == v; };
  if (warp.raw_normalizer) {
    weigh(logits, vocab, row->peak, 1.0f, scratch);
    row->raw_log_normalizer = kept_mass(w, everything);
  }
  if (warp.temperature == 0) {
    row->one_hot = 1;
    return;
  }
  row->inverse_temperature = 1.0f / warp.temperature;
  weigh(logits, vocab, row->peak, row->inverse_temperature, scratch);
  const bool cuts = warp.top_k > 0 || warp.top_p < 1 || warp.min_p > 0;
  if (cuts) row->threshold = cut(w, warp, row->peak, e.lowest);
  const float least = row->threshold;
  row->mass = kept_mass(w, [&](const Floats8& v) { return v >= least; });
}

double distribution_of_tile(const float* logits, const DistributionRow& row, int begin, int n, double* p) {
  float weights[kTile];
  weigh(logits + begin, n, row.peak, row.inverse_temperature, weights);
  Doubles a = {};
  int i = 0;
  for (; i + 8 <= n; i += 8) {
    const Floats8 kept = load<Floats8>(logits + begin + i) >= row.threshold ? load<Floats8>(weights + i) : Floats8{};
    const Doubles q = __builtin_convertvector(kept, Doubles) / row.mass;
    save(p + i, q);
    a += q;
  }
  for (int j = 0; i + j < n; ++j) {
    p[i + j] = logits[begin + i + j] >= row.threshold ? double(weights[i + j]) / row.mass : 0.0;
    a[j] += p[i + j];
  }
  return folded(a);
}

}  // namespace
}  // namespace foretoken
