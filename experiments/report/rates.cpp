#include "experiments/report/rates.h"

namespace foretoken {

Measurements rates(const Experiment& e, const std::vector<int>& prompts, const Window& w, bool over_baseline) {
  Measurements measured(int(prompts.size()), e.repeats);
  for (int i = 0; i < int(prompts.size()); ++i)
    for (int r = 0; r < e.repeats; ++r) {
      const Served &fast = e.speculative.at(prompts[i])[r], &plain = e.baseline.at(prompts[i])[r];
      measured.at(i, r) = {fast.*w.tokens, fast.*w.seconds, 1, 1};
      if (over_baseline) measured.at(i, r) = {fast.*w.tokens, fast.*w.seconds, plain.*w.tokens, plain.*w.seconds};
    }
  return measured;
}

WholeRates::WholeRates(const Experiment& e, const std::vector<int>& prompts)
    : speedup(rates(e, prompts, kEndToEnd, true)),
      tokens_per_second(rates(e, prompts, kEndToEnd, false)),
      steady_speedup(rates(e, prompts, kSteady, true)) {
  if (!e.queues) return;
  const ServedAgain fast = served_again(e.queues->speculative), plain = served_again(e.queues->baseline);
  tokens_per_second.again = fast.whole;
  for (std::size_t b = 0; b < fast.whole.size(); ++b)
    speedup.again.push_back(fast.whole[b] - plain.whole[b]),
        steady_speedup.again.push_back(fast.steady[b] - plain.steady[b]);
}

}  // namespace foretoken
