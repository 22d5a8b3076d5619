// Computes all figures of one result line. All definitions of figures are in this module. Averages are ratios of totals
// over requests and repeats; figures per prompt are listed and never averaged. This module must not know how a figure
// is shown, nor how a result was measured.
#pragma once
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "experiments/report/result.h"
#include "experiments/report/statistics.h"
#include "experiments/report/two_speeds.h"
#include "framework/components/step_report.h"

namespace foretoken {

struct Summary;

constexpr Phases kUnknownPhases{kUnknown, kUnknown, kUnknown, kUnknown, kUnknown, kUnknown, kUnknown};

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
  double capacity = 0;      // requests per second while all slots were taken; NaN: they never were
  double waiting = 0;       // requests that had no slot when the last one arrived, mean over alternations
  bool overloaded = false;  // the capacity is below the mean rate, and requests were waiting when the last one arrived
  Quantiles queue;          // milliseconds from the arrival to the first step
  // Share of all requests that met both limits (a failed one did not), and these per second; unknown without limits.
  // The share has bounds between .1 and .9, goodput from a share of .3 on: elsewhere few alternations cannot tell.
  Interval within = Interval::unknown(), goodput = Interval::unknown();
};

struct Load {
  double rate = 0;            // requests per second that arrive, of rates their mean
  double period = 0;          // seconds until /workload/rates come again; 0: one rate at all times
  double periods = kUnknown;  // until the last arrival, mean over alternations; unknown of one rate
  std::optional<double> ttft_limit = {}, tpot_limit = {};  // seconds
  LoadFigures speculative = {}, baseline = {};
  Interval latency_ratio = Interval::unknown();   // the baseline's mean time from arrival to end / that of speculation
  Interval decode_speedup = Interval::unknown();  // of the rates after each request's first round
  Measurements tokens_per_second{0, 0};           // of speculation, [1, alternations]

  bool limited() const { return ttft_limit || tpot_limit; }
  bool varies() const { return period > 0; }
};

// Whether its times may be those of a busy machine (/measure/busy).
bool accepts_busy(const nlohmann::json& run);

// None of a closed loop. `left_out`: prompts with a failed request, which are in no latency.
std::optional<Load> load_of(const Result& result, const std::set<int>& left_out);

// Takes from the summary of an open loop what the rate caps: speedups, which are ratios of tokens per second,
// Spec-Bench's and the predicted one too, and the share of the steady window. Its tokens per second and its decoding
// speedup are those of its load.
void leave_out_capped(Summary& summary);

nlohmann::json to_json(const std::optional<Load>& load);

// One position of the draft, from 1. `rate`: accepted / tested. `reached`: rounds that accepted this far / all rounds.
struct PositionFigures {
  int position = 0;
  double drafted = 0, tested = 0, accepted = 0;
  double rate = 0, reached = 0;
  Interval rate_interval = Interval::unknown();  // prompts vary; unknown without the counts of requests
};

// Of fewer than ten prompts the intervals have no bounds: so few resample to hardly more than themselves.
struct CategoryFigures {
  std::string name;
  int prompts = 0;
  Interval alpha, tau, speedup;
};

// What figures were averaged from, so that two runs can be compared prompt by prompt.
struct Samples {
  std::vector<int> prompts;                             // their numbers
  Measurements speedup{0, 0}, tokens_per_second{0, 0};  // [prompts, alternations]
  Measurements tau{0, 0}, alpha{0, 0};                  // [prompts, 1]: summed over alternations
};

// One prompt over all repeats.
struct PromptFigures {
  int prompt = 0;
  std::string category;  // empty: none
  double alpha = 0, tau = 0, speedup = 0;
};

// Bytes of one side, the most of all repeats; NaN where the line does not say.
struct MemoryFigures {
  double target_weights = 0, draft_weights = 0;
  double cache = 0;       // the pool of pages
  double cache_used = 0;  // the most of it that was in use
  double scratch = 0;     // the most that a step held besides
  double total() const { return target_weights + draft_weights + cache + scratch; }
};

// What requests waited for, as serving benchmarks print it. In a closed loop a request arrives when a slot is free.
struct LatencyFigures {
  Quantiles ttft;   // from the arrival to the first token
  Quantiles tpot;   // a request's time after its first round / the tokens after it
  Quantiles gap;    // between a request's rounds: what a reader of the stream waits ("inter-token latency" of vLLM)
  Quantiles whole;  // from the arrival to the end
};

// One side of a run (speculation, or its baseline), over all repeats. Where requests failed, their prompts are in no
// total; steps, prefix rows, preemptions, cut trees, and recorded and unrecorded forwards are those of the whole side,
// and phases are NaN.
struct SideFigures {
  std::map<std::string, double> no_draft;  // rounds without a draft, by reason (NoDraft)
  double tokens = 0, seconds = 0, rounds = 0, steps = 0, drafted = 0, tested = 0, accepted = 0;
  double prompt_tokens = 0, prefix_rows = 0, preempted = 0;
  double steady_seconds = 0;   // while all slots of the batch were taken; NaN: not recorded
  double log_probability = 0;  // of a token, mean; NaN where the run did not ask for it
  LatencyFigures latency;
  double cut = 0;                       // trees with fewer nodes than the policy requested, for lack of rows or pages
  double recorded = 0;                  // forwards that a device recorded for replay; NaN: not known
  double unrecorded = 0;                // forwards without a recording, which the warm-up had not met; NaN: not known
  double tokens_per_second = 0;         // end to end
  double decode_tokens_per_second = 0;  // of one request, after its first round
  double ttft_ms = 0;                   // to the first token, median over requests
  double ms_per_token = 0;              // time / tokens after the first round, totals over requests
  Phases phases;                        // seconds
  double overhead = 0;                  // (total - forwards) / total
  MemoryFigures memory;
};

// How a measured tau and speedup compare with the theory of chains (Leviathan 2023, arXiv 2211.17192), in which
// positions are accepted independently with probability alpha. It does not cover branching trees: tau and speedup are
// NaN.
struct TheoryFigures {
  bool branched = false;     // more nodes were drafted than levels
  double draft_length = 0;   // g: the fixed policy's length, else the longest draft seen
  double mean_drafted = 0;   // drafted / rounds
  bool full_length = false;  // rounds draft g tokens, except at the ends of sequences: mean_drafted >= .9 g
  double tau = 0;            // full length: (1 - alpha^(g+1)) / (1 - alpha); else 1 + sum_i P(drafted >= i) alpha^i
  // Milliseconds of one sequence's share of a forward, measured: a round of plain decoding, a drafted token, a round of
  // verification.
  double plain_ms = 0, draft_ms = 0, verify_ms = 0;
  double cost = 0;     // c: draft_ms / plain_ms
  double speedup = 0;  // tau plain_ms / (g draft_ms + verify_ms), with the mean drafted length for g if drafts are not
                       // of full length
};

// Turns of conversations that one alternation of each side left out, since the prompt had reached the context, in
// tokens. Lossy outputs have other lengths than the baseline's, so the sides may differ.
struct LeftOutTurns {
  int speculative = 0, baseline = 0, context = 0;
  bool any() const { return speculative > 0 || baseline > 0; }
};

struct Summary {
  Result result;          // without its alternations
  std::string error;      // why there are no figures
  std::string promise;    // exact, lossy, ...
  bool compared = false;  // texts were compared with the baseline's
  int compared_texts = 0, differing_texts = 0;
  int failed_requests = 0;  // of both sides and all repeats
  int left_out = 0;         // their prompts, which are in no figure of either side
  LeftOutTurns left_out_turns;

  int repeats = 0, prompts = 0;
  Interval alpha;        // accepted / tested, up to the first rejection
  Interval accept_rate;  // accepted / drafted
  Interval tau;          // tokens emitted / target forwards
  // End-to-end tokens/s over the baseline's, and themselves. One alternation does not say how the machine varies: there
  // are no bounds then, but on a GPU, whose times vary little, those of the prompts, and prompts_alone.
  Interval speedup, tokens_per_second;
  bool prompts_alone = false;
  bool without_speeds = false;  // its times may be those of a busy machine (/measure/busy)
  bool in_shares = false;       // the queue of several slots cannot be run again: their intervals are too wide
  Samples samples;
  // The same while all slots of the batch were taken, without filling and draining it; unknown where they never were.
  Interval steady_speedup;
  double steady_share = 0;       // of the time of speculation; 0: they never were, NaN: not recorded
  Interval decode_speedup;       // of the rates after each request's first round
  double acceptance_length = 1;  // 1 + accepted / rounds with a draft, as vLLM has it; 1 where nothing was drafted
  double question_speedup = 0;   // mean over prompts of their tokens / seconds, over the baseline's: Spec-Bench
  double from_cache = 0;         // prompt tokens that were found in the cache / all of speculation
  bool alternations_differ = false;
  std::optional<TwoSpeeds> two_speeds;  // of the side whose speeds are further apart
  SideFigures speculative, baseline;
  TheoryFigures theory;
  std::optional<Load> load;                // of an open loop: then no speedup is known but that of decoding
  std::vector<double> histogram;           // rounds that accepted 0, 1, 2, ...; empty where prompts are left out
  std::vector<PositionFigures> positions;  // likewise
  std::vector<CategoryFigures> categories;
  std::vector<PromptFigures> by_prompt;

  bool failed() const { return !error.empty(); }
  const nlohmann::json& run() const { return result.run; }
};

// A failed run, or one of whose measurements no figures can be made, is returned with `error` set, so that one line
// does not hide the others.
Summary summarize(const Result& result);

// All lines; of several with one key the last counts.
std::vector<Summary> summarize(const std::vector<Result>& results);

// Of several lines with one key the last.
std::vector<const Result*> latest(const std::vector<Result>& results);

// Why a line has no figures though it holds no error. Empty where it has them.
std::string damage_of(const Result& result);
// Of all lines that count and have no figures.
std::vector<std::string> damages_of(const std::vector<Result>& results);

// The figures under their CSV names; unknown ones are null.
nlohmann::json to_json(const Summary& summary);
nlohmann::json to_json(const Interval& interval);
nlohmann::json to_json(const MemoryFigures& memory);
nlohmann::json to_json(const Quantiles& quantiles);
// null where it is not finite, since JSON has no NaN.
nlohmann::json finite(double x);

// The length of a fixed policy; 0 for other policies.
double fixed_length(const nlohmann::json& run);
// Takes all figures of `summary` but its theory, of which the draft length is that of a fixed policy, or 0.
TheoryFigures theory_of(const Summary& summary);

// Of the alternations of one side. `left_out`: prompts that are in no figure; gaps between rounds are of the whole
// side.
SideFigures summarize_side(const std::vector<Alternation>& repeats, SideOf side, const std::set<int>& left_out);

// The most of any alternation, since those of a side are alike.
LeftOutTurns left_out_turns_of(const std::vector<Alternation>& repeats);

// In milliseconds.
Quantiles quantiles_of(std::vector<double> seconds);

}  // namespace foretoken
