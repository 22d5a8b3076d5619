// Records the acceptance trace that a run asks for: its requests are served once more by an engine whose verifier
// records, beside its measurement, so no figure of the result line sees it.
#pragma once
#include <filesystem>
#include <vector>

#include "experiments/session/workbench.h"
#include "experiments/sweep/measure.h"

namespace foretoken {

// `file`: the trace. `result`: of a run with the key "trace", begun: its run, key, commit, machine, sources and others
// become the header of the trace. A request that fails is left out of the trace, with a notice on
// standard error. What cannot be recorded is an Error, and the trace then has no end.
void record_trace(const std::filesystem::path& file, const Result& result, const std::vector<Job>& jobs,
                  Workbench& bench, const std::filesystem::path& beside);

}  // namespace foretoken
