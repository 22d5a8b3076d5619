// What result lines say of draft trees: how often children were accepted and what steps took; and the trees that are
// best by it.
#pragma once
#include <vector>

#include "experiments/report/result.h"

namespace foretoken {

struct ChildCount {
  double offered = 0;   // rounds in which a child stood at this place below an accepted node
  double accepted = 0;  // rounds in which it was the accepted one
  double share() const { return accepted / offered; }
};

class ChildAcceptance {
 public:
  // A place with fewer rounds at its level takes the share of this place at all levels.
  static constexpr double kEnough = 100;

  // Adds one side; false where it lacks these counts.
  bool add(const SideRecord& measured);
  // [level][place]; level 0: below the root.
  const std::vector<std::vector<ChildCount>>& counts() const { return counts_; }
  ChildCount at_all_levels(int place) const;
  // Whether there are too few rounds at this level alone.
  bool pooled(int level, int place) const;
  // [level][place]: the probability that this child of an accepted node is the accepted one. As many levels as were
  // tested, and at each the places before the first of which too little is known at all levels.
  std::vector<std::vector<double>> probabilities() const;

 private:
  std::vector<std::vector<ChildCount>> counts_;
};

struct StepTimes {
  double fixed = 0, row = 0;      // seconds of the target's forward and of everything else but drafting
  double level = 0, drafted = 0;  // seconds of drafting for each level, and for each node below a root
  double steps = 0;               // that were measured
  double sequences = 0;           // of a step, on average
  double most_rows = 0;           // of the steps that were measured
  double deviation = 0;           // of the fit from the measured times, as a share of them, on average over steps
  bool known() const { return sequences > 0; }

  // Of a step in which every sequence has a tree of so many nodes and levels.
  double seconds(double nodes, double levels) const {
    return fixed + row * sequences * nodes + level * levels + drafted * sequences * (nodes - 1);
  }
};

// Appends the steps of one side. Times that cannot be are an Error.
void add_steps(const SideRecord& measured, std::vector<StepsOfRows>& all);
// Least squares without negative terms, steps weighted equally. Unknown where nothing was measured.
StepTimes fitted(const std::vector<StepsOfRows>& measured);

class BestTrees {
 public:
  // [level][place]: the probability that this child of an accepted node is the accepted one; level 0: below the root.
  // Places beyond the end have none, so no tree is wider or deeper than these lists.
  using Probabilities = std::vector<std::vector<double>>;
  // Trees of at most `most_nodes` nodes, the root included.
  BestTrees(Probabilities probabilities, int most_nodes);

  int levels() const { return int(probabilities_.size()); }
  // Tokens emitted per round by the best tree of at most so many nodes and levels: 1, and the probability of each node
  // below the root that it is accepted.
  double tau(int nodes, int levels) const { return value(0, levels)[std::size_t(nodes - 1)]; }
  // Its nodes below the root, as paths of places: the form that `shape` of draft_tree takes. Parents precede.
  std::vector<std::vector<int>> shape(int nodes, int levels) const;

 private:
  // [nodes - 1]: expected accepted nodes of the best subtree below an accepted node at `level`, itself included, with
  // at most `levels` more levels.
  const std::vector<double>& value(int level, int levels) const;
  // [place][nodes]: the same of the children from that place on, without their parent.
  std::vector<std::vector<double>> children(int level, int levels) const;
  void grow(const std::vector<int>& path, int nodes, int levels, std::vector<std::vector<int>>& paths) const;

  Probabilities probabilities_;
  int most_nodes_;
  std::vector<std::vector<std::vector<double>>> values_;  // [levels][level]
};

}  // namespace foretoken
