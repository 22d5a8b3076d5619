// A file of costs as commands read and write it: the steps of a CostModel, and where they come from. This module must
// not know how steps are measured.
#pragma once
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "drafters/policies/cost_model.h"
#include "kernels/backend.h"

namespace foretoken {

// CostModel::document(), with the machine, the version, the commit and the date, target, drafter, verifier and sampling
// of the run, what of its engine times depend on, and the error by cross-validation.
nlohmann::json costs_document(const CostModel& costs, const nlohmann::json& run, const Backend& backend);

// An Error where `out` exists and is no file of costs, or its folder does not exist. Empty: nothing is written.
void expect_costs_place(const std::string& out);
void write_costs(const std::string& out, const nlohmann::json& document);

struct CostsFile {
  std::string file;
  nlohmann::json document;
  CostModel costs;

  static CostsFile read(const std::string& file);
  // "NVIDIA H200", "a CPU, 2 threads", or the file's "source"; for tables.
  std::string machine() const;
  // What the file says of verifier, sampling and engine and the run has otherwise, but for seeds and samples, which
  // step times do not depend on: [{"key": "/engine/threads", "costs": 1, "run": 2}].
  nlohmann::json differences(const nlohmann::json& run) const;
  // These of all runs, each once, as sentences that begin with a space: " '/engine/threads' is 1 in the costs, and 2
  // here."
  std::string differences_text(const std::vector<nlohmann::json>& runs) const;
};

}  // namespace foretoken
