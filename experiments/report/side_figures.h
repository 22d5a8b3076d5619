// One side of a result line in totals, and what its requests waited for. This module must not know tables.
#pragma once
#include <set>
#include <vector>

#include "experiments/report/summary.h"

namespace foretoken {

// Of the alternations of one side. `left_out`: prompts that are in no figure; gaps between rounds are of the whole
// side.
SideFigures summarize_side(const std::vector<Alternation>& repeats, SideOf side, const std::set<int>& left_out);

// The most of any alternation, since those of a side are alike.
LeftOutTurns left_out_turns_of(const std::vector<Alternation>& repeats);

// In milliseconds.
Quantiles quantiles_of(std::vector<double> seconds);

}  // namespace foretoken
