#include "experiments/conformance/target_distribution.h"

#include <algorithm>
#include <limits>

namespace foretoken::conformance {

std::vector<double> target_distribution(const TableModel& target, std::span<const Token> context, int prompt,
                                        const Sampling& s) {
  const std::span<const float> raw = target.logits(context);
  std::vector<float> logits(raw.begin(), raw.end());
  const auto output = context.subspan(std::size_t(prompt));
  for (Token x = 0; x < int(logits.size()); ++x) {
    float& logit = logits[std::size_t(x)];
    for (const TokenBias& b : s.logit_bias)
      if (b.token == x) logit += b.bias <= -100 ? -std::numeric_limits<float>::infinity() : b.bias;
    if (std::ranges::find(context, x) != context.end())
      logit = logit > 0 ? logit / s.repetition_penalty : logit * s.repetition_penalty;
    const auto times = std::ranges::count(output, x);
    logit -= s.frequency_penalty * float(times);
    if (times > 0) logit -= s.presence_penalty;
  }
  const Distribution distribution{logits.data(), normalize(logits.data(), int(logits.size()), s.warp()),
                                  int(logits.size())};
  std::vector<double> p;
  for (Token x = 0; x < distribution.vocab; ++x) p.push_back(distribution(x));
  return p;
}

}  // namespace foretoken::conformance
