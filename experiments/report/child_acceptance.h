// How often the children of draft trees were accepted, by level and by place among siblings, as result lines count
// them. This module must not know shapes of trees or step times.
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

}  // namespace foretoken
