// From the logits of a forward to what the host reads once a step: distributions, trials, verdicts, log-probabilities.
// It must not know who drafts, how sequences end or what a step reports.
#pragma once
#include <span>
#include <string>

#include "framework/components/verifier.h"
#include "framework/decode/node_distributions.h"
#include "framework/engine/failures.h"
#include "framework/engine/scheduler.h"
#include "framework/model/model.h"

namespace foretoken {

// Host memory, whole after Backend::synchronize().
struct Readback {
  Tensor verdicts;      // u8 [judged sequences, sizeof(Verdict)]
  Tensor tokens;        // i32: of all nodes of their trees
  Tensor ranks;         // i32 [nodes of their trees, Judging::Wanted::ranks]; absent where none are wanted
  Failures failures{};  // of the verifier, one for each judged sequence; none at all where it failed for nobody
};

class Judging {
 public:
  explicit Judging(Backend& backend)
      : backend_(backend), distributions_(backend), trials_staging_(backend), readback_staging_(backend) {}

  struct Judge {
    Verifier& verifier;
    const std::string& name;  // for messages
  };
  // What is wanted besides verdicts.
  struct Wanted {
    bool raw = false;  // by the verifier: Soundness::raw
    int ranks = 0;     // by the drafter: Needs::ranks
  };
  // `trees` has one tree for each scheduled sequence, `out` the logits of those with a root.
  Readback judge(const Plan& plan, std::span<const DraftTree> trees, const Output& out, const Judge& judge,
                 const Wanted& wanted);

 private:
  Failures verify(const Trials& trials, const Judge& judge, const Tensor& verdicts);
  Failures verify_alone(const Trials& trials, const Judge& judge, const Tensor& verdicts);
  Readback read_back(const Tensor& verdicts, const Tensor& tokens, const Distributions& raw, int ranks);

  Backend& backend_;
  NodeDistributions distributions_;
  Staging trials_staging_, readback_staging_;
};

}  // namespace foretoken
