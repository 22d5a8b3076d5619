// What was decided reaches its sequences: verdicts become tokens, tokens go to whoever waits for them, and the step's
// report says what happened. It must not know devices, drafters or verifiers beyond what they returned.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "framework/components/drafter.h"
#include "framework/components/step_report.h"
#include "framework/engine/judging.h"

namespace foretoken {

// One step's decisions: of the sequences of `plan`, in order.
struct Delivery {
  const Plan& plan;
  std::span<const DraftTree> trees;
  const Readback& read;
  const ModelInfo& target;
  const std::string& verifier;  // for messages
};

// Returns what became of the trees that were judged. A sequence fails whose verdict no verifier may give.
std::vector<Outcome> deliver(const Delivery& d, Queues& queues, StepReport& report);

}  // namespace foretoken
