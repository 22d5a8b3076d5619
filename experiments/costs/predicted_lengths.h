// `foretoken tune --costs`: the draft length for each size of the batch, predicted before anything is measured. This
// module must not know how costs and acceptance were found.
#pragma once
#include <string>
#include <vector>

#include "experiments/report/tune.h"

namespace foretoken {

struct PredictedLengthsOptions {
  std::string file;               // a document of runs that may differ as those of tune() may
  std::string costs;              // a file of costs
  std::string acceptance;         // as AcceptanceSource::read() takes it
  std::vector<int> batches = {};  // rising; empty: 1, 2, 4 and so on, up to the largest batch of the costs
  std::vector<int> lengths = {};  // rising, from 1; empty: all up to the longest draft of the costs
  std::vector<std::string> set = {}, plugins = {};
};

// Each length as a chain of the policy `fixed` at each batch, with the prompts of the first run, in turn, as often as a
// sweep would need. Costs without drafts or of another target or drafter, an open loop, and acceptance that is not
// known are an Error.
Tuned predicted_lengths(const PredictedLengthsOptions& from, const TuneOptions& options);

}  // namespace foretoken
