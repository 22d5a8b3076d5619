// What the distributions q of proposals add up to, and what they expect, computed on the lanes of the verifier.
// Compiled by nvcc where there is a CUDA device.
#include "framework/components/first_chances.h"
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

struct FirstChances {
  const Trial* trials;
  float* chances;
  template <class Lane> FORETOKEN_HD void operator()(Lane& lane, int i) const {
    const Trial t = trials[i];
    const int child = t.nodes > 1 ? t.child(0, 0) : -1;
    double chance = -1;
    if (child >= 0 && t.q_logits[0]) {
      const Distribution q = t.q(0);
      Distribution raw = q;  // its mass is left 1: weights
      raw.row.one_hot = 0, raw.row.mass = 1, raw.row.inverse_temperature = 1, raw.row.threshold = -3.4e38f;
      const Token x = t.tokens[child];
      const double whole = double(raw.weight(x)) / lane.sum(raw);
      chance = q(x) < whole ? q(x) : whole;
    }
    lane.each(1, [&](int) { chances[i] = float(chance); });
  }
};

}  // namespace

void first_chances(Backend& backend, const Trials& trials, Tensor chances) {
  launch(backend, trials.count(), trials.draws(), trials.vocab(), FirstChances{trials.trials(), chances.data<float>()});
}

void proposal_sums(Backend& backend, const Trials& trials, Tensor sums) {
  launch(backend, trials.count(), trials.draws(), trials.vocab(),
         ProposalSums{trials.trials(), trials.tokens().data<Token>(), sums.data<float>()});
}

}  // namespace foretoken
