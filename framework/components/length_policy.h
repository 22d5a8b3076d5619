// A length policy: how many nodes and levels to draft for each sequence, from past rounds only. It gets no drawn tokens
// of the coming round, since a length that depends on them changes the output distribution. This module must not know
// drafters or verifiers.
#pragma once
#include <span>
#include <string_view>
#include <vector>

#include "framework/components/step_report.h"
#include "framework/decode/draft_tree.h"
#include "framework/decode/sequence.h"

namespace foretoken {

// The input of a policy: one sequence's state before a round.
struct PastOnly {
  SequenceId id = 0;
  int length = 0;                  // tokens of prompt and output so far
  int batch = 0;                   // sequences in this step
  int rounds = 0;                  // rounds that were verified so far
  int drafted = 0;                 // nodes below the root that were drafted in the last round
  int accepted = 0;                // accepted nodes of these
  double acceptance = -1;          // accepted / tested levels over all rounds of the sequence; -1 while none was tested
  Budget room;                     // the largest budget that rows and pages of this step allow
  std::string_view category = {};  // Sequence::category; valid during LengthPolicy::budgets
};

// The traits of a policy (Entry::traits).
struct PolicyTraits {
  // By which a budget alone says it all.
  PolicyTraits(const Budget& largest = {}, bool learning = false) : most(largest), learns(learning) {}
  Budget most;  // no budget of the policy exceeds it in nodes or depth, or sets confidence where it does not
  // Budgets may depend on more than what PastOnly and observe() told of the sequence itself: on another sequence's
  // SequenceReport or end, or on what a StepReport says of the step as a whole, which is its times (phases), rows, cut
  // trees (cut), waits, recorded and unrecorded forwards, preempted, waiting and running sequences, and pages in use.
  // So does any other clock; of these use Backend::clock alone. Then the conformance kit's memory law, whose second
  // policy saw one sequence alone, does not apply, and a sweep measures it cold and warm. All other laws do. All of
  // PastOnly is given to both policies, so a policy may read PastOnly::batch and room without this.
  bool learns;
};

class LengthPolicy {
 public:
  using Traits = PolicyTraits;
  virtual ~LengthPolicy() = default;
  // One budget per sequence, in order; another number of budgets is an Error. Each is cut to PastOnly::room, to
  // kMaxNodes and to kMaxPath; for one above PolicyTraits::most the sequence fails. If it throws, it is called again as
  // Drafter::draft is.
  virtual std::vector<Budget> budgets(std::span<const PastOnly> past) = 0;
  // After every step: its sequences, what was drafted and accepted, and the time of each phase. An exception is an
  // Error of the step.
  virtual void observe(const StepReport& report) { (void)report; }
  // The sequence has ended (Sequence::finish says how); the last report that names it has been observed. A policy is
  // not told of preemptions: a sequence that is preempted goes on later with what is known of it. If it throws, the
  // sequence fails.
  virtual void forget(const Sequence& sequence) { (void)sequence; }
  // One sentence for the user, as Drafter::notice: that it could not measure what it chooses by, say. Empty: nothing.
  virtual std::string notice() const { return {}; }
};

}  // namespace foretoken
