// What would fail in runs, found before the first is measured and without loading weights: their devices, models'
// configurations, components and what these need of one another, every prompt's length in the context and in the page
// pool. This module must not know how a run is measured.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "experiments/session/workbench.h"
#include "experiments/sweep/sweep.h"

namespace foretoken {

// Runs that cannot be measured for one reason, of which a run may have several. Numbers in reasons may differ from run
// to run: `reason` is that of the first.
struct Refusal {
  std::string reason;
  std::vector<Run> runs;
};

// In the order in which reasons are met; none where nothing speaks against any run. What depends on loaded weights (the
// memory that they leave, numbers that are not finite) is not known. Interrupted goes on.
std::vector<Refusal> rehearse(const std::vector<Run>& runs, Workbench& bench, const std::filesystem::path& beside);

// "12 of 40 runs cannot be measured: REASON (the first: LABEL)".
std::string sentence_of(const Refusal& refusal, std::size_t all);

}  // namespace foretoken
