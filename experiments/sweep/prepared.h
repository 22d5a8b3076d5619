// What all alternations of a run share. This module must not know alternations.
#pragma once
#include <filesystem>
#include <vector>

#include <nlohmann/json.hpp>

#include "experiments/sweep/jobs.h"
#include "experiments/sweep/sweep.h"
#include "experiments/sweep/workbench.h"

namespace foretoken {

struct Prepared {
  std::vector<Job> jobs, before;  // `before`: served before speculation is measured with `jobs`
  nlohmann::json engine;  // what it says of itself: {"promise", "target", "compared" (outputs, with the baseline's),
                          // "learns"}
};

// Made once in a process. A failure of the run is an Error.
Prepared prepare(const Run& run, Workbench& bench, const std::filesystem::path& beside);

}  // namespace foretoken
