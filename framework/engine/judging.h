// From the logits of a forward to what the host reads once a step: distributions, trials, verdicts, log-probabilities.
// It must not know who drafts, how sequences end or what a step reports.
#pragma once
#include <span>

#include "framework/components/verifier.h"
#include "framework/decode/node_distributions.h"
#include "framework/engine/scheduler.h"
#include "framework/model/model.h"

namespace foretoken {

// Host memory, whole after Backend::synchronize().
struct Readback {
  Tensor verdicts;  // u8 [judged sequences, sizeof(Verdict)]
  Tensor tokens;    // i32: of all nodes of their trees
};

class Judging {
 public:
  explicit Judging(Backend& backend)
      : backend_(backend), distributions_(backend), trials_staging_(backend), readback_staging_(backend) {}

  // `trees` has one tree for each scheduled sequence, `out` the logits of those with a root.
  Readback judge(const Plan& plan, std::span<const DraftTree> trees, const Output& out, Verifier& verifier);

 private:
  Backend& backend_;
  NodeDistributions distributions_;
  Staging trials_staging_, readback_staging_;
};

}  // namespace foretoken
