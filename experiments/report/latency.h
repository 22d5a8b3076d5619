// What requests of one side of a result line waited for. This module must not know tables.
#pragma once
#include <set>
#include <vector>

#include <nlohmann/json.hpp>

#include "experiments/report/summary.h"

namespace foretoken {

// Of all requests and alternations, without the prompts that are left out; the gaps are of the whole side.
LatencyFigures latency_of(const nlohmann::json& repeats, const char* side, const std::set<int>& left_out);

// In milliseconds.
Quantiles quantiles_of(std::vector<double> seconds);

}  // namespace foretoken
