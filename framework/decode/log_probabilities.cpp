// Log-probabilities of what was emitted, on the lanes of the verifier. Compiled by nvcc where there is a CUDA device.
#include "framework/decode/verifier.h"

namespace foretoken {
namespace {

struct LogProbabilities {
  const Trial* trials;
  Verdict* verdicts;
  const std::uint8_t* warped;
  template <class Lane> FORETOKEN_HD void operator()(Lane& lane, int i) const {
    Verdict& v = verdicts[i];
    if (v.next < 0) return;
    lane.each(v.length + 1, [&](int k) {
      const Law p = trials[i].p(k > 0 ? v.path[k - 1] : 0);
      v.logprobs[k] = float(warped[i] ? log_exactly(p(v.tokens[k])) : p.raw_log_probability(v.tokens[k]));
    });
  }
};

}  // namespace

void log_probabilities(Backend& backend, const Trials& trials, Tensor verdicts, const Tensor& warped) {
  launch(backend, trials.count(), trials.draws(), trials.vocab(), LogProbabilities{trials.trials(), verdicts.data<Verdict>(), warped.data<std::uint8_t>()});
}

}  // namespace foretoken
