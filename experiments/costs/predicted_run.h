// What a run will give, from what steps cost and how many drafted tokens are accepted: its requests are served by a
// simulated engine. This module must not know how costs and acceptance were found.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "drafters/policies/cost_model.h"
#include "experiments/costs/known_acceptance.h"
#include "experiments/report/statistics.h"
#include "framework/components/length_policy.h"

namespace foretoken {

struct PredictedRequest {
  int prompt_tokens = 1, new_tokens = 1;
};

// One side of a run.
struct PredictedSide {
  double seconds = 0, draft_seconds = 0, tokens = 0, rounds = 0, steps = 0;
  // Some step was larger than those that were measured, or smaller ones took more than a twentieth of the time. A few
  // are at the end of every run, where slots and outputs run out.
  bool beyond = false;
  bool varies = false;  // drafts of whole batches differed in depth, though there was room
  double tokens_per_second() const { return tokens / seconds; }
};

// A closed loop: a request takes a slot that is free, its prompt is read in the step of its first round, and each round
// emits what is accepted, by draws of its own, and one token. `policy`: budgets of each step; it is told of each round
// and end, and keeps what it made of them; null: plain decoding.
PredictedSide served(const CostModel& costs, std::span<const PredictedRequest> requests, int slots,
                     LengthPolicy* policy, const RoundRates& rates, std::uint32_t resample);

struct Prediction {
  Interval tau = Interval::unknown(), speedup = Interval::unknown(), tokens_per_second = Interval::unknown();
  double step_seconds = 0, plain_seconds = 0, draft_seconds = 0;  // means over steps; the last is a part of the first
  double plain_tokens_per_second = 0;
  // The least acceptance of every level with which speculation is as fast as plain decoding, in whole batches; NaN
  // where none is enough. Known of drafters that always draft, and of policies whose drafts are of one length.
  double break_even = kUnknown;
  bool beyond = false;
};

// A policy that has served nobody.
using FreshPolicy = std::function<std::unique_ptr<LengthPolicy>()>;

// Over 200 resamples of the prompts whose acceptance is known, of the draws of acceptance, and of the error of the
// costs: each side's times are off by a factor of its own, whose median deviation is that of the cross-validation.
// Where costs of so few steps have none, bounds of speedup and tokens per second are unknown.
// Without `acceptance` tau, speedup and tokens per second are unknown.
Prediction predicted(const CostModel& costs, std::span<const PredictedRequest> requests, int slots,
                     const FreshPolicy& policy, const KnownAcceptance* acceptance);

}  // namespace foretoken
