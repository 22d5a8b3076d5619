// One run: speculation and its baseline (the same engine without it), measured in alternation, as one result line.
#pragma once
#include <functional>
#include <nlohmann/json.hpp>

#include "experiments/measure.h"
#include "experiments/sweep.h"
#include "experiments/workload.h"
#include "experiments/workbench.h"

namespace foretoken {

// One request of a complete run: sample number `sample` of a prompt.
Request request_of(const nlohmann::json& run, const Prompt& prompt, std::uint64_t sample, const std::shared_ptr<const Tokenizer>& tokenizer, const ModelInfo& target);

// The requests of a complete run: its prompts, repeated with other sample numbers until there are at least four times as
// many as run at once.
std::vector<Job> jobs_of(const nlohmann::json& run, Workbench& bench, const std::filesystem::path& beside);

// Measures one cell; `progress` gets the share that is done. Errors of the run become a line with "error"; Interrupted and
// whatever is not the run's fault are thrown on.
nlohmann::json run_cell(const Cell& cell, Workbench& bench, const std::filesystem::path& beside, const std::function<void(double)>& progress);

struct SweepOptions {
  std::vector<std::string> settings;  // POINTER=VALUE overrides of the base
  std::filesystem::path results;      // empty: results/NAME.jsonl
  std::string title = "run";
};
struct SweepOutcome {
  std::vector<nlohmann::json> lines;  // of all cells, in the order of the sweep, earlier results included
  int failed = 0;                     // runs with an error, or with texts that differ though they must not
  std::filesystem::path results;
};
// Runs all cells that the results file does not hold yet.
SweepOutcome run_sweep(const std::vector<Cell>& cells, Workbench& bench, const std::filesystem::path& beside, const SweepOptions& options);

}  // namespace foretoken
