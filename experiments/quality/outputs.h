// Greedy outputs of a model and of its reference, side by side. This module must not know how they were generated.
#pragma once
#include <span>
#include <vector>

#include "experiments/report/statistics.h"
#include "kernels/distribution.h"  // Token

namespace foretoken {

using Outputs = std::vector<std::vector<Token>>;  // of the prompts, in their order

struct OutputFigures {
  int prompts = 0;
  Interval equal;         // share of prompts with the reference's whole output
  Interval prefix;        // mean number of tokens before the first difference; the whole output where there is none
  Interval prefix_share;  // the same as a share of the reference's tokens, a ratio of totals
};

// Both have an output for each prompt. The units of the intervals are prompts; bounds are unknown where all are equal.
OutputFigures figures_of(const Outputs& model, const Outputs& reference);

}  // namespace foretoken
