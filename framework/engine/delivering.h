// After a step's readback: appends the tokens of the verdicts to their sequences, calls on_tokens, and fills the step's
// report. This module must not know devices, nor drafters and verifiers beyond what they returned.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "framework/components/drafter.h"
#include "framework/components/step_report.h"
#include "framework/engine/judging.h"

namespace foretoken {

// The input: one step's trees and verdicts, in the order of the plan's sequences.
struct Delivery {
  const Plan& plan;
  std::span<const DraftTree> trees;
  const Readback& read;
  const ModelInfo& target;
  const std::string &drafter, &verifier;  // for messages
};

// Returns the outcomes of the verified trees. A sequence whose drawn tokens, q or verdict are invalid (expect_tokens,
// expect_normalized, expect_verdict) fails.
std::vector<Outcome> deliver(const Delivery& d, Queues& queues, StepReport& report);

}  // namespace foretoken
