// Serves one workload with one engine and records one side of a result line. In a closed loop a request arrives when
// another ends, so latencies include no queueing; in an open loop it arrives at a time of its own, from which its
// latencies count, and time in which nothing runs is idle. The turns of a conversation follow one another; those
// for which the model's context has no room are left out, and named. Two windows are measured: end to end, and steady,
// while all places are taken, from when the first requests have all emitted. What the drafter has to say
// (Drafter::notice) stands under "notice"; the caller tells the user, who is not to hear of every warm-up.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "experiments/report/result.h"
#include "experiments/sweep/arrivals.h"
#include "framework/engine/engine.h"

namespace foretoken {

struct Job {
  Request request;
  int prompt = 0;        // number of the prompt
  std::string category;  // empty: none
  int first = -1;        // the job of which this one is another sample; -1: none
  int turn = 0;          // of a conversation, from 0
  int after = -1;        // the job whose output this one goes on from: the prompt of the request is only what follows
                         // that output; -1: none
};

struct Measured {
  SideRecord record;
  std::vector<std::vector<Token>> texts;  // generated tokens, in the order of the jobs
  std::vector<std::string> failures;      // why a job has no output: it failed, or its turn was left out; empty: it has
};

// `loop`: how many requests run at once, and when they arrive. `after_step` is called with the share of jobs that are
// done; it may throw to stop.
// `watch` is called with the report of every step.
Measured measure(
    Engine& engine, const std::vector<Job>& jobs, const Loop& loop, const std::function<void(double)>& after_step,
    const std::function<void(const StepReport&)>& watch = [](const StepReport&) {});

}  // namespace foretoken
