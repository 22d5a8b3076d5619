// From the logits of a forward to the step's one readback: distributions, trials, verdicts, log-probabilities. This
// module must not know drafters, how sequences end or what a step reports.
#pragma once
#include <span>
#include <string>

#include "framework/components/verifier.h"
#include "framework/decode/node_distributions.h"
#include "framework/decode/token_readback.h"
#include "framework/engine/failures.h"
#include "framework/engine/scheduler.h"
#include "framework/model/model.h"

namespace foretoken {

// Host memory, complete after Backend::synchronize(). A judged sequence is one whose root was fed.
struct Readback {
  Tensor verdicts;      // u8 [judged sequences, sizeof(Verdict)]
  Tensor tokens;        // i32 [nodes of their trees], one tree after another
  Tensor ranks;         // i32 [nodes of their trees, Judging::Wanted::ranks]; absent where ranks = 0
  Tensor sums;          // f32 [nodes of their trees]: proposal_sums; absent where q was not added up
  Tensor chances;       // f32 [judged sequences]: first_chances; absent where they are not wanted
  Failures failures{};  // of the verifier, one for each judged sequence; empty where none failed
};

class Judging {
 public:
  explicit Judging(Backend& backend)
      : backend_(backend),
        distributions_(backend),
        trials_staging_(backend),
        readback_staging_(backend),
        drawn_(backend) {}

  struct Judge {
    Verifier& verifier;
    const std::string& name;  // for messages
  };
  // What components need besides verdicts.
  struct Wanted {
    bool raw = false;   // Soundness::raw of the verifier
    int ranks = 0;      // Needs::ranks of the drafter
    bool sums = false;  // Readback::sums of every step, not only of the first ones
    bool chances = false;
  };
  // Before the target's forward, so that its time hides what constraints compute: the host reads the tokens of the
  // constrained sequences' trees that a device drew, and waits for them. Nothing where there are none.
  void read_constrained(const Plan& plan, std::span<const DraftTree> trees);
  // `trees` has one tree for each scheduled sequence. `out`: logits f32 [nodes, vocab] of the judged sequences' trees,
  // one after another. Without logits an empty Readback is returned.
  Readback judge(const Plan& plan, std::span<const DraftTree> trees, const Output& out, const Judge& judge,
                 const Wanted& wanted);

 private:
  Failures verify(const Trials& trials, const Judge& judge, const Tensor& verdicts);
  Failures verify_alone(const Trials& trials, const Judge& judge, const Tensor& verdicts);
  Tensor add_up(const Trials& trials, bool always);
  Tensor ranked(const Distributions& raw, int ranks);
  Tensor chances(const Trials& trials, bool wanted);
  Readback read_back(const Readback& on_device);

  Backend& backend_;
  NodeDistributions distributions_;
  Staging trials_staging_, readback_staging_;
  TokenReadback drawn_;
  int added_up_ = 0;  // trees whose q was added up
};

}  // namespace foretoken
