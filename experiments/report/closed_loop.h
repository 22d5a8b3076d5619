// Requests that wait in a queue for the places of a batch, and how its tokens per second vary with the prompts: other
// prompts are put into the queue, which is run again. This module must not know which figures need it.
#pragma once
#include <optional>
#include <vector>

#include "experiments/report/result.h"

namespace foretoken {

// One side of a run whose places share steps: the last requests have steps to themselves, whose shares of the time say
// nothing of their prompts, so terms of prompts are not independent and cannot be resampled.
struct ClosedLoop {
  // Turns of a conversation are one: they keep a place. Means over alternations.
  struct Request {
    int prompt = 0;  // its number
    double rounds = 0;
    double rows = 0;  // of its rounds: a root each, and what was drafted
    double tokens = 0, prompt_tokens = 0, seconds = 0;
  };
  std::vector<Request> requests;  // in the order in which they take places
  int places = 1;
  // Seconds of a step, of each row and of each token of a prompt: least squares, without negative ones, of how long
  // requests kept their places, over the steps, rows and prompts that were in the batch meanwhile.
  double step = 0, row = 0, prompt_token = 0;
};

// Of one side of the alternations of a run. None where the queue cannot be run again: alternations have other requests,
// one failed, or it takes other steps than were measured, by more than a fifth, as where sequences wait for pages.
std::optional<ClosedLoop> closed_loop_of(const std::vector<Alternation>& repeats, SideOf side, int places);

// Logarithms of tokens / seconds, less that of the totals of all resamples; [kResamples]. NaN: nothing was served.
struct ServedAgain {
  std::vector<double> whole;
  std::vector<double> steady;  // while all places were taken and the first requests had emitted
};

// In each resample every prompt is replaced by one that resampled_prompt() draws, with its rounds, rows and tokens. A
// request takes the place that is free first, and keeps it for its rounds.
ServedAgain served_again(const ClosedLoop& loop);

}  // namespace foretoken
