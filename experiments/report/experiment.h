// What the prompts of a run did, their tokens per second, as what intervals are made of, and how these vary where
// requests wait for the slots of a batch. This module must not know which figures follow from it.
#pragma once
#include <algorithm>
#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "experiments/report/result.h"
#include "experiments/report/statistics.h"
#include "experiments/session/arrival_rate.h"

namespace foretoken {

class Slots {
 public:
  explicit Slots(std::size_t count) : free_(count, 0.0) {}

  // Of a request that arrives then: when a slot is free for it.
  double start(double arrival) const { return std::max(arrival, free_.front()); }
  // It keeps that slot until then.
  void keep(double end) {
    last_ = std::max(last_, end);
    std::size_t at = 0;
    for (std::size_t child = 1; child < free_.size(); child = 2 * at + 1) {
      if (child + 1 < free_.size() && free_[child + 1] < free_[child]) ++child;
      if (end <= free_[child]) break;
      free_[at] = free_[child], at = child;
    }
    free_[at] = end;
  }
  double last() const { return last_; }

 private:
  std::vector<double> free_;  // when they are; a heap with the earliest at its top, [slots]
  double last_ = 0;
};

// One side of a run whose slots share steps: the last requests have steps to themselves, whose shares of the time say
// nothing of their prompts, so terms of prompts are not independent and cannot be resampled.
struct ClosedLoop {
  // Turns of a conversation are one: they keep a slot. Means over alternations.
  struct Request {
    int prompt = 0;  // its number
    double rounds = 0;
    double rows = 0;  // of its rounds: a root each, and what was drafted
    double tokens = 0, prompt_tokens = 0, seconds = 0;
  };
  std::vector<Request> requests;  // in the order in which they take slots
  int slots = 1;
  // Seconds of a step, of each row and of each token of a prompt: least squares, without negative ones, of how long
  // requests kept their slots, over the steps, rows and prompts that were in the batch meanwhile.
  double step = 0, row = 0, prompt_token = 0;
};

// Of one side of the alternations of a run. None where the queue cannot be run again: alternations have other requests,
// one failed, or it takes other steps than were measured, by more than a fifth, as where sequences wait for pages.
std::optional<ClosedLoop> closed_loop_of(const std::vector<Alternation>& repeats, SideOf side, int slots);

// Logarithms of tokens / seconds, less that of the totals of all resamples; [kResamples]. NaN: nothing was served.
struct ServedAgain {
  std::vector<double> whole;
  std::vector<double> steady;  // while all slots were taken and the first requests had emitted
};

// In each resample every prompt is replaced by one that resampled_prompt() draws, with its rounds, rows and tokens. A
// request takes the slot that is free first, and keeps it for its rounds.
ServedAgain served_again(const ClosedLoop& loop);

// One side of one alternation.
struct ServedQueue {
  struct Request {
    double arrival, end;  // seconds after the first arrival
  };
  std::vector<Request> requests;   // in the order of their arrivals
  double tokens = 0, seconds = 0;  // of all requests; until the last one ended
};

// Tokens / seconds of all alternations, whose requests arrive at a rate (a Poisson process) and share the slots of a
// batch. It estimates what many alternations would give, with other arrivals and other speeds of the
// machine. Bounds are unknown with fewer than two alternations, or where one of them has no tokens.
//
// The law of arrivals is known, so each alternation is served again with 2000 other arrivals, in which a request keeps
// its slot for as long as it did (Lindley 1952; Kiefer and Wolfowitz 1955 for several slots); measuring.md says why.
//
// With arrivals alone, the bounds are the value times the outer quantiles of d = total seconds / expected total seconds
// of these resamples, since value = true value / d: a pivotal interval, and one of a known law, so with the quantiles
// of a normal distribution, not of Student's. The machine's standard error is that of the logarithms of tokens /
// expected seconds over alternations, with one degree of freedom less than alternations; arrivals are averaged out of
// them. The half-widths of both add up as interval_of() says.
Interval throughput_interval(std::span<const ServedQueue> alternations, const ArrivalRate& rate, int slots);

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
