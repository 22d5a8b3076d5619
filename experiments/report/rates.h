// Tokens per second of prompts, alone and over the baseline's, as what intervals are made of.
#pragma once
#include <vector>

#include "experiments/report/experiment.h"
#include "experiments/report/statistics.h"

namespace foretoken {

// A window of time: its tokens and seconds.
struct Window {
  double Served::*tokens, Served::*seconds;
};
constexpr Window kEndToEnd{&Served::tokens, &Served::seconds}, kSteady{&Served::steady_tokens, &Served::steady_seconds},
    kDecoding{&Served::decode_tokens, &Served::decode_seconds};

// Tokens and seconds of speculation, over the baseline's if that is requested. Each prompt has its shares of steps.
Measurements rates(const Experiment& e, const std::vector<int>& prompts, const Window& w, bool over_baseline);

// What all prompts' end-to-end and steady figures are averaged from. Where requests share places they vary as the queue
// does when it is run again with other prompts.
struct WholeRates {
  Measurements speedup, tokens_per_second, steady_speedup;

  // `prompts`: all of them.
  WholeRates(const Experiment& e, const std::vector<int>& prompts);
};

}  // namespace foretoken
