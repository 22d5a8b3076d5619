// What the prompts of a run did, read from its result line. This module must not know which figures follow from it.
#pragma once
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "experiments/report/closed_loop.h"
#include "experiments/report/result.h"

namespace foretoken {

// What one prompt did in one alternation, on one side; several requests may have served it.
struct Served {
  double tokens = 0, seconds = 0, rounds = 0, drafted = 0, tested = 0, accepted = 0;
  // While all places were taken. 0 seconds: they never were; NaN: not recorded.
  double steady_tokens = 0, steady_seconds = 0;
  double decode_tokens = 0, decode_seconds = 0;  // after the first round
  std::vector<double> tested_at, accepted_at;    // by position
};

// Prompts of one side: [prompt index] -> one Served per repeat.
using Prompts = std::map<int, std::vector<Served>>;

struct Experiment {
  Prompts speculative, baseline;
  std::map<int, std::string> category;
  std::set<int> failed;  // prompts with a request that failed, on either side: they have no figures
  int repeats = 0;
  // How requests shared the places of a batch; none of one place, of an open loop, and where it cannot be told.
  struct Queues {
    ClosedLoop speculative, baseline;
  };
  std::optional<Queues> queues = {};
};

// Of the alternations of a run; `places`: those that a closed loop shares, 1 of an open one. Sides that
// cannot be compared are an Error.
Experiment read_experiment(const std::vector<Alternation>& repeats, int places = 1);

}  // namespace foretoken
