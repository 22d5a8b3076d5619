// With which probability a verifier would have accepted how much of a round of a trace. Formulas are those that a
// verifier states (Soundness::acceptance); experiments/traces.md has them. This module must not know verifiers by name,
// nor times.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "experiments/trace/tree_cut.h"
#include "framework/components/verifier.h"

namespace foretoken {

// What a replayed figure stands on.
enum class Basis {
  exact,         // what a run of the same requests does: its rounds are these
  given_output,  // probabilities given the output that the target wrote: no bias, other draws than a run's
  expectation    // probabilities given the recorded trees, taken as independent of the output that follows
};
const char* name_of(Basis basis);

// The rounds of one request of a dense trace: round t begins after t generated tokens and emits the next.
using TracedOutput = std::span<const TracedRound* const>;

class RoundReach {
 public:
  // `verifier`: its name, for messages and for recorded acceptance. Drafts that it does not take, or that it would have
  // had drawn otherwise, are an Error; so is a lossy one of a dense trace, whose output would be another.
  RoundReach(const Trace& trace, std::string verifier, const Soundness& soundness);

  // The basis of reach() for a cut; an Error where nothing in the trace answers it.
  Basis basis(const TreeCut& cut) const;
  // reach[i - 1]: the probability that at least i tokens are accepted of round t of a dense trace.
  std::vector<double> reach(TracedOutput output, std::size_t t, const CutTree& tree, Basis basis) const;
  // The same given the tree alone.
  std::vector<double> reach_given_tree(const TracedRound& round, const CutTree& tree) const;
  // The nodes of the tree that such a round accepts where it accepts so many. Where not even their tokens are known,
  // the first path of as many levels.
  std::vector<int> path(TracedOutput output, std::size_t t, const CutTree& tree, int accepted) const;

 private:
  // The part of the tree that the verifier looks at.
  CutTree judged(const TracedRound& round, const CutTree& tree) const;
  bool has_formula(const CutTree& tree) const;
  bool finds_matches(const TracedRound& round, const CutTree& tree) const;

  const Trace& trace_;
  std::string verifier_;
  Soundness soundness_;
};

}  // namespace foretoken
