// What all alternations of a run share. This module must not know alternations.
#pragma once
#include <filesystem>
#include <vector>

#include "experiments/report/result.h"
#include "experiments/sweep/jobs.h"
#include "experiments/sweep/sweep.h"
#include "experiments/sweep/workbench.h"

namespace foretoken {

// What an engine says of itself.
struct EngineFacts {
  std::string promise;
  Target target;
  bool compared = false;  // outputs, with the baseline's
  bool learns = false;
};

struct Prepared {
  std::vector<Job> jobs, before;  // `before`: served before speculation is measured with `jobs`
  EngineFacts engine;
};

// Made once in a process. A failure of the run is an Error.
Prepared prepare(const Run& run, Workbench& bench, const std::filesystem::path& beside);

}  // namespace foretoken
