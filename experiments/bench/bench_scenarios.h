// What `foretoken bench --steps FILE` measures: a file of scenarios, each a run's models and engine in one state (so
// many sequences, so long a context). This module must not know how steps are timed.
#pragma once
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "framework/components/registry.h"

namespace foretoken {

struct Scenario {
  std::string name;
  nlohmann::json run;      // complete
  int batch, context;      // sequences at once; tokens of each prompt
  int steps;               // measured
  int guesses;             // rows to verify that nobody drafted; 0: the run's drafter drafts
  bool prompt;             // measures the prompt instead of what follows it
  bool attention;          // measures attention of one layer alone, for guesses + 1 rows of each sequence
  double share;            // of the copy bandwidth that attention alone should reach; 0: none
  double bar_ms, peer_ms;  // milliseconds to stay below, and what others take; 0: none
};

// The scenarios of FILE, {"engine": {...}, "scenarios": [{"name": ..., "target": {...}, ...}, ...]}, as
// experiments/configs/steps.json: those whose name contains `only`, on `device` where that is not empty. A missing
// file, an unknown key (with the nearest known one), a value of another type or out of range, and no scenario at all
// are Errors.
std::vector<Scenario> read_scenarios(const std::string& file, const std::string& only, const std::string& device,
                                     const Registries& registries);

}  // namespace foretoken
