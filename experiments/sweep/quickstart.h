// `foretoken quickstart`: the sweep of configs/quickstart.json over the demo models, with its tables. The workload is
// the same on every machine, so that two tables can be compared; a fast machine measures more alternations. This module
// must not know how a run is measured.
#pragma once
#include <string>
#include <vector>

namespace foretoken {

struct QuickstartOptions {
  std::string results = "results/quickstart.jsonl";
  std::string device = "auto", format = "terminal";
  double seconds = 170;  // for the whole command; three alternations of each run are measured even if they take longer
  std::vector<std::string> settings;  // "/POINTER=VALUE": changes of the document
  int width = 118;
};

int quickstart(const QuickstartOptions& options);

}  // namespace foretoken
