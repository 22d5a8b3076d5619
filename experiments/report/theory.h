// What the theory of chains predicts from a summary's other figures.
#pragma once
#include "experiments/report/summary.h"

namespace foretoken {

// The length of a fixed policy; 0 for other policies.
double fixed_length(const nlohmann::json& run);
// Takes all figures of `summary` but its theory, of which the draft length is that of a fixed policy, or 0.
TheoryFigures theory_of(const Summary& summary);

}  // namespace foretoken
