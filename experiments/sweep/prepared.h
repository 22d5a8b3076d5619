// What all alternations of a run share. This module must not know alternations.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "experiments/sweep/jobs.h"
#include "experiments/sweep/sweep.h"
#include "experiments/sweep/workbench.h"

namespace foretoken {

// The fields that determine a baseline, as text: all except drafter and policy, the state that they begin from, and
// their trace.
std::string baseline_of(nlohmann::json run);

struct Prepared {
  std::vector<Job> jobs;
  nlohmann::json engine;  // what it says of itself: {"promise", "target", "compared" (outputs, with the baseline's),
                          // "learns"}
};

// Made once in a process. Where the device records forwards, and unless /measure/warmup is false, both sides serve all
// requests once, so that alternations meet no new size; a baseline does so for all runs that have it. A failure of the
// run is an Error.
Prepared prepare(const Run& run, Workbench& bench, const std::filesystem::path& beside);

}  // namespace foretoken
