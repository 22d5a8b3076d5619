// Which runs of two sets of results are the same run. Knows runs as JSON documents, not what is said of them.
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
  std::vector<std::string> younger;       // ignored because one side has them nowhere
  std::string apart;                      // where no run matches: fields that differ everywhere
  std::vector<nlohmann::json> documents;  // all runs, without what is ignored
};

// Two runs are the same where their documents agree but for /measure and what the options ignore. A field that no run
// has, and fields without which two runs of one side would be the same, are no fields to ignore: an Error.
MatchedRuns match_runs(const std::vector<nlohmann::json>& lines_a, const std::vector<nlohmann::json>& lines_b,
                       const CompareOptions& options);

}  // namespace foretoken
