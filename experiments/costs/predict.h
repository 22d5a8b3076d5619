// `foretoken predict`: the speedup of runs before they are measured, or beside what was measured. This module must not
// know how steps are measured or fitted.
#pragma once
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "experiments/costs/costs_file.h"
#include "experiments/costs/predicted_run.h"
#include "experiments/report/summary.h"
#include "experiments/session/workbench.h"

namespace foretoken {

// A run, and what is predicted of it; of one that was measured, its figures.
struct PredictedCell {
  nlohmann::json run, axes;
  Prediction prediction = {};
  std::string refusal = {};  // why nothing is predicted
  std::optional<Summary> measured = {};
};

// An Error where nothing can be predicted of a complete run: costs, or a file of the policy, of another target or
// drafter; costs of no draft; an open loop; a policy that learns, or ends drafts by their confidence; steps with too
// few rows for its largest drafts. Policies that follow past rounds are simulated.
// Returns the largest budget of the policy.
Budget expect_predictable(const nlohmann::json& run, const CostsFile& costs, const Registries& registries,
                          const std::filesystem::path& beside);

// What a complete run serves. An Error where that holds later turns, whose prompts are outputs.
std::vector<PredictedRequest> predicted_requests(const nlohmann::json& run, Workbench& bench,
                                                 const std::filesystem::path& beside);

// Of these requests, in the batch and by the policy of the run. `acceptance`: null where it is not known.
Prediction prediction_of(const nlohmann::json& run, std::span<const PredictedRequest> requests, const CostModel& costs,
                         const KnownAcceptance* acceptance, Workbench& bench, const std::filesystem::path& beside);

// Of a complete run in a closed loop whose policy does not learn; another, and costs of another target or drafter, are
// refused in the cell.
PredictedCell predict(const nlohmann::json& run, const nlohmann::json& axes, const CostsFile& costs,
                      const AcceptanceSource& acceptance, Workbench& bench, const std::filesystem::path& beside);

// Of all cells with a predicted and a measured figure: |predicted / measured - 1|.
struct PredictionErrors {
  std::size_t cells = 0;
  CostError speedup, tau, tokens_per_second, plain_tokens_per_second;
};
PredictionErrors errors_of(const std::vector<PredictedCell>& cells);

struct PredictOptions {
  std::string file;        // a document of runs, or, to compare, a file of results
  std::string costs;       // of costs
  std::string acceptance;  // as AcceptanceSource::read() takes it
  bool compare = false;
  std::vector<std::string> set = {}, plugins = {}, where = {};
  std::string format = "terminal";  // terminal, markdown, csv, json
  int width = 118;
};

// The table, and with `compare` the errors below it.
std::string prediction_report(const std::vector<PredictedCell>& cells, const CostsFile& costs,
                              const PredictOptions& options);
// Returns an exit code: 1 where nothing could be predicted.
int run_predict(const PredictOptions& options);

}  // namespace foretoken
