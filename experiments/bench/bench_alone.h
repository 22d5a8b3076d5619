// Scenarios of `foretoken bench --steps` that time one part of a step alone: attention of a layer, or compaction. This
// module must not know how either is timed.
#pragma once
#include <string>

#include <nlohmann/json.hpp>

#include "experiments/bench/bench_scenarios.h"
#include "experiments/session/workbench.h"
#include "framework/model/config.h"

namespace foretoken {

// A line of results, without machine and date, and what the table says of it.
struct AloneResult {
  double ms = 0;
  nlohmann::json line;
  std::string text;
};

// `model`: the config of the scenario's target. `bytes_a_second`: what the machine copies.
AloneResult measure_attention(const Scenario& scenario, Workbench& bench, const ModelConfig& model,
                              double bytes_a_second);
AloneResult measure_compaction(const Scenario& scenario, Workbench& bench, double bytes_a_second);

}  // namespace foretoken
