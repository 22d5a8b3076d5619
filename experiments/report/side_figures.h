// One side of a result line, in totals. This module must not know tables.
#pragma once
#include <set>

#include <nlohmann/json.hpp>

#include "experiments/report/summary.h"

namespace foretoken {

// Of the alternations of one side, "baseline" or "speculative". `left_out`: prompts that are in no figure.
SideFigures summarize_side(const nlohmann::json& repeats, const char* name, const std::set<int>& left_out);

// The most of any alternation, since those of a side are alike.
LeftOutTurns left_out_turns_of(const nlohmann::json& repeats);

}  // namespace foretoken
