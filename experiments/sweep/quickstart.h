// `foretoken quickstart`: the sweep of configs/quickstart.json over the demo models, sized for this machine, with its
// tables. This module must not know how a run is measured.
#pragma once
#include <string>

namespace foretoken {

struct QuickstartOptions {
  std::string results = "results/quickstart.jsonl";
  std::string device = "auto", format = "terminal";
  double seconds = 170;  // for the whole command
  int width = 118;
};

// The workload of each run of the sweep.
struct Size {
  int prompts = 0, max_new_tokens = 0;
};

// The measured cost of requests on this machine.
struct Costs {
  int max_new_tokens = 0;         // of the measured requests
  double request_by_request = 0;  // seconds of one request of each run of the sweep, both sides, summed over the runs
};

constexpr int kAlternations = 3;  // at least

// The largest workload of which three alternations fit into `seconds`: at least 18 prompts (batch 4 wants 16 requests)
// of at least 16 tokens each, then more prompts in steps of six, one of each family, up to `most`.
Size size_for(const Costs& costs, double seconds, int most);

int quickstart(const QuickstartOptions& options);

}  // namespace foretoken
