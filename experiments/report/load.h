// Figures of an open loop: requests arrive at a rate, whether or not the engine keeps up (a Poisson process, the same
// arrivals for both sides). Times count from the arrival. This module must not know tables.
#pragma once
#include <optional>
#include <set>

#include "experiments/report/result.h"
#include "experiments/report/statistics.h"

namespace foretoken {

struct Summary;

// Milliseconds that 50, 90 and 99 of 100 do not exceed; NaN where the line does not say.
struct Quantiles {
  double p50 = 0, p90 = 0, p99 = 0;
};

// One side, over all alternations. Intervals are over alternations: requests of one of them wait for each other, so
// they are not independent, and each alternation has arrivals of its own. One alternation has none. That of tokens per
// second is throughput_interval().
struct LoadFigures {
  double served = 0;  // requests that ended, without failed ones, / seconds until the last ended
  Interval tokens_per_second = Interval::unknown();  // over the same seconds, so the rate caps it
  double busy = 0;                                   // share of these seconds in which a request was running
  double capacity = 0;      // requests per second while all places were taken; NaN: they never were
  double waiting = 0;       // requests that had no place when the last one arrived, mean over alternations
  bool overloaded = false;  // the capacity is below the rate, and requests were waiting when the last one arrived
  Quantiles queue;          // milliseconds from the arrival to the first step
  // Share of all requests that met both limits (a failed one did not), and these per second; unknown without limits.
  // The share has bounds between .1 and .9, goodput from a share of .3 on: elsewhere few alternations cannot tell.
  Interval within = Interval::unknown(), goodput = Interval::unknown();
};

struct Load {
  double rate = 0;                                         // requests per second that arrive
  std::optional<double> ttft_limit = {}, tpot_limit = {};  // seconds
  LoadFigures speculative = {}, baseline = {};
  Interval latency_ratio = Interval::unknown();   // the baseline's mean time from arrival to end / that of speculation
  Interval decode_speedup = Interval::unknown();  // of the rates after each request's first round
  Measurements tokens_per_second{0, 0};           // of speculation, [1, alternations]

  bool limited() const { return ttft_limit || tpot_limit; }
};

// The /workload/rate of a run, requests per second; none: a closed loop.
std::optional<double> rate_of(const nlohmann::json& run);

// None where the run has no rate. `left_out`: prompts with a failed request, which are in no latency.
std::optional<Load> load_of(const Result& result, const std::set<int>& left_out);

// Takes from the summary of an open loop what the rate caps: speedups, which are ratios of tokens per second,
// Spec-Bench's and the predicted one too, and the share of the steady window. Its tokens per second and its decoding
// speedup are those of its load.
void leave_out_capped(Summary& summary);

nlohmann::json to_json(const std::optional<Load>& load);

}  // namespace foretoken
