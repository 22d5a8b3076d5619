// What the prompts of a run did, and their tokens per second, as what intervals are made of. This module must not know
// which figures follow from it.
#pragma once
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "experiments/report/queues.h"
#include "experiments/report/result.h"
#include "experiments/report/statistics.h"

namespace foretoken {

// What one prompt did in one alternation, on one side; several requests may have served it.
struct Served {
  double tokens = 0, seconds = 0, rounds = 0, drafted = 0, tested = 0, accepted = 0;
  // While all slots were taken. 0 seconds: they never were; NaN: not recorded.
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
  // How requests shared the slots of a batch; none of one slot, of an open loop, and where it cannot be told.
  struct Queues {
    ClosedLoop speculative, baseline;
  };
  std::optional<Queues> queues = {};
};

// Of the alternations of a run; `slots`: those that a closed loop shares, 1 of an open one. Sides that
// cannot be compared are an Error.
Experiment read_experiment(const std::vector<Alternation>& repeats, int slots = 1);

// A window of time: its tokens and seconds.
struct Window {
  double Served::*tokens, Served::*seconds;
};
constexpr Window kEndToEnd{&Served::tokens, &Served::seconds}, kSteady{&Served::steady_tokens, &Served::steady_seconds},
    kDecoding{&Served::decode_tokens, &Served::decode_seconds};

// Tokens and seconds of speculation, over the baseline's if that is requested. Each prompt has its shares of steps.
Measurements rates(const Experiment& e, const std::vector<int>& prompts, const Window& w, bool over_baseline);

// What all prompts' end-to-end and steady figures are averaged from. Where requests share slots they vary as the queue
// does when it is run again with other prompts.
struct WholeRates {
  Measurements speedup, tokens_per_second, steady_speedup;

  // `prompts`: all of them.
  WholeRates(const Experiment& e, const std::vector<int>& prompts);
};

}  // namespace foretoken
