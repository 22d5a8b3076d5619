#include "experiments/quality/row_scores.h"

#include <algorithm>
#include <cmath>

#include "experiments/report/statistics.h"

namespace foretoken {
namespace {

// A sum of many terms, in blocks: alone, 128k of them lose 1e-12 of it, which is much of a small divergence.
class BlockSum {
 public:
  void add(double x) {
    block_ += x;
    if (++terms_ % 256 == 0) sum_ += block_, block_ = 0;
  }
  double value() const { return sum_ + block_; }

 private:
  double sum_ = 0, block_ = 0;
  int terms_ = 0;
};

// log p(x) = logits[x] - shift - log_sum
struct Normalizer {
  double shift = 0, log_sum = 0;
  std::size_t top = 0;  // the most probable token

  explicit Normalizer(std::span<const float> logits) {
    const auto greatest = std::ranges::max_element(logits);
    top = std::size_t(greatest - logits.begin()), shift = double(*greatest);
    BlockSum sum;
    for (const float l : logits) sum.add(std::exp(double(l) - shift));  // NaN where a logit is NaN or infinite
    log_sum = std::log(sum.value());
  }
  double log_probability(float logit) const { return double(logit) - shift - log_sum; }
};

// exp of minus infinity is 0 and finite, so a sum of exponentials does not show such a logit.
bool finite(std::span<const float> logits) {
  return std::ranges::all_of(logits, [](float l) { return std::isfinite(l); });
}

}  // namespace

TokenScore score_of(std::span<const float> logits, Token token) {
  if (!finite(logits)) return {.loss = kUnknown};
  return {.loss = -Normalizer(logits).log_probability(logits[std::size_t(token)])};
}

TokenScore score_of(std::span<const float> logits, std::span<const float> reference, Token token) {
  if (!finite(logits) || !finite(reference)) return {kUnknown, kUnknown, kUnknown, kUnknown, false};
  const Normalizer model(logits), other(reference);
  TokenScore s{-model.log_probability(logits[std::size_t(token)]),
               -other.log_probability(reference[std::size_t(token)]), 0, 0, model.top == other.top};
  BlockSum divergence, overlap;
  for (std::size_t x = 0; x < logits.size(); ++x) {
    const double log_p = model.log_probability(logits[x]), log_r = other.log_probability(reference[x]),
                 p = std::exp(log_p), r = std::exp(log_r);
    divergence.add(r * (log_r - log_p)), overlap.add(std::min(p, r));
  }
  s.divergence = std::max(divergence.value(), 0.0);  // less than 0 by rounding only
  s.overlap = overlap.value();
  return s;
}

}  // namespace foretoken
