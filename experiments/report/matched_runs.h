// Matches the runs of two sets of results. This module must not know results, only the runs' JSON documents.
#pragma once
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "experiments/report/report.h"
#include "experiments/report/summary.h"

namespace foretoken {

struct RunPair {
  const Summary *a, *b;
};

struct MatchedRuns {
  std::vector<Summary> a, b;
  std::vector<RunPair> pairs;
  std::vector<const Summary*> only_a, only_b;
  std::string apart;                      // if no run matches: fields that differ in all runs
  std::vector<nlohmann::json> documents;  // all runs, without what is ignored
};

// Two runs match if their documents agree except for /measure and the ignored fields. An ignored field that no run has,
// or ignored fields without which two runs of one side would be equal, are an Error.
MatchedRuns match_runs(const std::vector<Result>& lines_a, const std::vector<Result>& lines_b,
                       const CompareOptions& options);

}  // namespace foretoken
