// What the distributions q of proposals add up to, computed on the lanes of the verifier. Compiled by nvcc where there
// is a CUDA device.
#include "framework/components/verifier.h"

namespace foretoken {
namespace {

struct ProposalSums {
  const Trial* trials;
  const Token* tokens;  // of the root of the first trial
  float* sums;
  template <class Lane> FORETOKEN_HD void operator()(Lane& lane, int i) const {
    const Trial t = trials[i];
    float* const to = sums + (t.tokens - tokens);
    for (int n = 0; n < t.nodes; ++n) {
      const double sum = t.q_logits[n] ? lane.sum(t.q(n)) : 1.0;
      lane.each(1, [&](int) { to[n] = float(sum); });
    }
  }
};

}  // namespace

void proposal_sums(Backend& backend, const Trials& trials, Tensor sums) {
  launch(backend, trials.count(), trials.draws(), trials.vocab(),
         ProposalSums{trials.trials(), trials.tokens().data<Token>(), sums.data<float>()});
}

}  // namespace foretoken
