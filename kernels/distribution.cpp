#include "kernels/distribution.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <vector>

namespace foretoken {
namespace {

// The greatest logit, lowest index among equals; -1 where there is a NaN or no finite peak.
Token argmax(const float* logits, int vocab) {
  Token best = 0;
  bool nan = false;
  for (Token x = 0; x < vocab; ++x) {
    nan |= std::isnan(logits[x]);
    if (logits[x] > logits[best]) best = x;
  }
  return nan || !std::isfinite(logits[best]) ? -1 : best;
}

// The least logit that the three cuts keep, in order. `distribution` has peak and temperature set and keeps everything.
float threshold(Distribution distribution, const Warp& warp) {
  std::vector<float> kept(distribution.logits, distribution.logits + distribution.vocab);
  std::sort(kept.begin(), kept.end(), std::greater<>());
  if (warp.top_k > 0 && warp.top_k < int(kept.size())) {
    const float last = kept[std::size_t(warp.top_k - 1)];
    kept.erase(std::upper_bound(kept.begin(), kept.end(), last, std::greater<>()), kept.end());
  }
  distribution.row.threshold = kept.back();
  if (warp.top_p < 1) {
    const double limit =
        double(warp.top_p) * vocabulary_sum([&](Token x) { return distribution.weight(x); }, distribution.vocab);
    // The mass of tokens above a logit grows as the logit falls, so bisection finds the least logit that is kept.
    auto stays = [&](float v) {
      return vocabulary_sum([&](Token x) { return distribution.logits[x] > v ? distribution.weight(x) : 0.0f; },
                            distribution.vocab) < limit;
    };
    const auto end = std::partition_point(kept.begin() + 1, kept.end(), stays);
    kept.erase(end, kept.end());
  }
  if (warp.min_p > 0) {
    const auto end = std::partition_point(kept.begin() + 1, kept.end(), [&](float v) {
      return exp_weight(mul(add(v, -distribution.row.peak), distribution.row.inverse_temperature)) >= warp.min_p;
    });
    kept.erase(end, kept.end());
  }
  return kept.back();
}

}  // namespace

DistributionRow normalize(const float* logits, int vocab, const Warp& warp) {
  DistributionRow row;
  row.greedy = argmax(logits, vocab);
  if (row.greedy < 0) return row;
  row.peak = logits[row.greedy];
  row.threshold = -std::numeric_limits<float>::infinity();
  if (warp.raw_normalizer) {
    const double mass = vocabulary_sum([&](Token x) { return exp_weight(add(logits[x], -row.peak)); }, vocab);
    row.raw_log_normalizer = add(double(row.peak), log_exactly(mass));
  }
  if (warp.temperature == 0) {
    row.one_hot = 1;
    return row;
  }
  row.inverse_temperature = 1.0f / warp.temperature;
  const bool cuts = warp.top_k > 0 || warp.top_p < 1 || warp.min_p > 0;
  if (cuts) row.threshold = threshold({logits, row, vocab}, warp);
  const Distribution distribution{logits, row, vocab};
  row.mass = vocabulary_sum([&](Token x) { return distribution.weight(x); }, vocab);
  return row;
}

}  // namespace foretoken
