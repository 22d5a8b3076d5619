// How much to draft: nodes and levels per sequence, from the past alone. It never sees drawn tokens of the coming
// round, since a length that depends on them changes the output distribution.
#pragma once
#include <optional>
#include <span>
#include <vector>

#include "framework/components/step_report.h"
#include "framework/decode/draft_tree.h"
#include "framework/decode/sequence.h"

namespace foretoken {

// What a policy may look at.
struct PastOnly {
  SequenceId id = 0;
  int length = 0;          // tokens so far
  int batch = 0;           // sequences in this step
  int rounds = 0;          // rounds so far
  int drafted = 0;         // nodes below the root that were drafted in the last round
  int accepted = 0;        // of these
  double acceptance = -1;  // accepted / tested over the sequence's rounds; -1 before the first
  Budget room;             // the most that this step has for it
};

class LengthPolicy {
 public:
  using Traits = Budget;  // no budget exceeds it in any field
  virtual ~LengthPolicy() = default;
  // To be overridden only where Entry::traits is empty.
  virtual Budget most() const;
  Traits traits() const { return declared_ ? *declared_ : most(); }
  // One budget per sequence, in order. Each is cut to most(), to its room, to kMaxNodes and to kMaxPath.
  // Where it throws it is asked again, as Drafter::draft is.
  virtual std::vector<Budget> budgets(std::span<const PastOnly> past) = 0;
  // What a step did, after it: its sequences, what was drafted and accepted, and how long each phase took. What it
  // throws is an Error of the step.
  virtual void observe(const StepReport& report) { (void)report; }
  // The sequence has ended. The last report that names it came before. A sequence for which it throws fails.
  virtual void forget(const Sequence& sequence) { (void)sequence; }

 protected:
  template <class T> friend class Registry;
  std::optional<Budget> declared_;  // by Entry::traits
};

}  // namespace foretoken
