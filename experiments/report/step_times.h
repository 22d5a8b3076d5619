// The time of a step as a linear function of its rows and levels, fitted to what result lines measured. This module
// must not know which drafter or verifier ran.
#pragma once
#include <vector>

#include "experiments/report/result.h"

namespace foretoken {

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

}  // namespace foretoken
