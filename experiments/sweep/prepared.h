// What all alternations of a run share. This module must not know how they are measured.
#pragma once
#include <filesystem>
#include <vector>

#include <nlohmann/json.hpp>

#include "experiments/sweep/jobs.h"
#include "experiments/sweep/sweep.h"
#include "experiments/sweep/workbench.h"

namespace foretoken {

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
