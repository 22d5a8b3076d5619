#include "experiments/report/summary.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <set>
#include <utility>

#include "experiments/report/experiment.h"
#include "experiments/report/statistics.h"
#include "experiments/session/arrival_rate.h"
#include "framework/text/json_file.h"
#include "kernels/error.h"

namespace foretoken {
using nlohmann::json;
namespace {

constexpr double kFullLength = 0.9;  // of the draft length; sequences end in the middle of a draft

constexpr double kNoMost = std::numeric_limits<double>::infinity();

// Figures of some prompts

// One term per prompt: `top` over `bottom`, summed over repeats.
std::vector<Term> shares(const Experiment& e, const std::vector<int>& prompts, double Served::* top,
                         double Served::* bottom) {
  std::vector<Term> terms;
  for (const int prompt : prompts) {
    Term term;
    for (const Served& served : e.speculative.at(prompt)) {
      term.top += served.*top;
      term.bottom += served.*bottom;
    }
    terms.push_back(term);
  }
  return terms;
}

Measurements speedups(const Experiment& e, const std::vector<int>& prompts) {
  return rates(e, prompts, kEndToEnd, true);
}

// The mean over prompts of their rates of speculation, over that of the baseline.
double question_speedup(const Experiment& e) {
  double fast = 0, plain = 0;
  for (const auto& [prompt, served] : e.speculative) {
    const auto rate = [](const std::vector<Served>& repeats) {
      double tokens = 0, seconds = 0;
      for (const Served& s : repeats) tokens += s.tokens, seconds += s.seconds;
      return divide(tokens, seconds);
    };
    fast += rate(served), plain += rate(e.baseline.at(prompt));
  }
  return divide(fast, plain);
}

Interval alpha_of(const Experiment& e, const std::vector<int>& p) {
  return prompt_interval(shares(e, p, &Served::accepted, &Served::tested), 1);
}
Interval tau_of(const Experiment& e, const std::vector<int>& p) {
  return prompt_interval(shares(e, p, &Served::tokens, &Served::rounds), kNoMost);
}

// One term per prompt, as a table of one alternation.
Measurements as_measurements(const std::vector<Term>& terms) {
  Measurements measured(int(terms.size()), 1);
  measured.terms = terms;
  return measured;
}

Samples samples_of(const Experiment& e, const std::vector<int>& prompts, WholeRates whole) {
  return {prompts, std::move(whole.speedup), std::move(whole.tokens_per_second),
          as_measurements(shares(e, prompts, &Served::tokens, &Served::rounds)),
          as_measurements(shares(e, prompts, &Served::accepted, &Served::tested))};
}

constexpr int kFewestPrompts = 10;  // of a category with intervals

CategoryFigures category_figures(const Experiment& e, const std::string& name, const std::vector<int>& p, bool timed) {
  CategoryFigures found{name, int(p.size()), alpha_of(e, p), tau_of(e, p), paired_interval(speedups(e, p))};
  if (!timed) found.speedup = Interval::of(found.speedup.value);
  if (found.prompts < kFewestPrompts)
    for (Interval* figure : {&found.alpha, &found.tau, &found.speedup}) *figure = Interval::of(figure->value);
  return found;
}

void summarize_prompts(const Experiment& e, Summary& summary) {
  std::vector<int> all;
  std::vector<std::string> names;
  std::map<std::string, std::vector<int>> members;
  for (const auto& [prompt, served] : e.speculative) {
    all.push_back(prompt);
    const auto found = e.category.find(prompt);
    const std::string name = found == e.category.end() ? "" : found->second;
    if (!name.empty() && !members.contains(name)) names.push_back(name);
    if (!name.empty()) members[name].push_back(prompt);
    summary.by_prompt.push_back({prompt, name, ratio_of_totals(shares(e, {prompt}, &Served::accepted, &Served::tested)),
                                 ratio_of_totals(shares(e, {prompt}, &Served::tokens, &Served::rounds)),
                                 ratio_of_totals(speedups(e, {prompt}).terms)});
  }
  summary.prompts = int(all.size());
  summary.alpha = alpha_of(e, all);
  summary.accept_rate = prompt_interval(shares(e, all, &Served::accepted, &Served::drafted), 1);
  summary.tau = tau_of(e, all);
  WholeRates whole(e, all);
  summary.steady_speedup = paired_interval(whole.steady_speedup);
  summary.samples = samples_of(e, all, std::move(whole));
  summary.speedup = paired_interval(summary.samples.speedup);
  summary.tokens_per_second = paired_interval(summary.samples.tokens_per_second);
  const bool gpu = summary.result.device() == "cuda", timed = e.repeats > 1 || gpu;
  summary.prompts_alone = e.repeats == 1 && gpu;
  summary.decode_speedup = paired_interval(rates(e, all, kDecoding, true));
  summary.question_speedup = question_speedup(e);
  if (!timed)
    for (Interval* figure :
         {&summary.speedup, &summary.tokens_per_second, &summary.steady_speedup, &summary.decode_speedup})
      *figure = Interval::of(figure->value);
  for (const std::string& name : names) summary.categories.push_back(category_figures(e, name, members[name], timed));
}

// The element-wise sum over repeats; arrays may differ in length.
std::vector<double> sum_of(const std::vector<Alternation>& repeats, std::vector<long> SideRecord::* counts) {
  std::vector<double> sums;
  for (const Alternation& repeat : repeats) {
    const std::vector<long>& found = repeat.speculative.*counts;
    if (found.size() > sums.size()) sums.resize(found.size());
    for (std::size_t i = 0; i < found.size(); ++i) sums[i] += double(found[i]);
  }
  return sums;
}

// Accepted of tested at a position: prompts vary.
Interval rate_at(const Experiment& e, std::size_t position) {
  std::vector<Term> prompts;
  for (const auto& [prompt, served] : e.speculative) {
    Term& term = prompts.emplace_back();
    for (const Served& s : served) {
      term.top += position < s.accepted_at.size() ? s.accepted_at[position] : 0;
      term.bottom += position < s.tested_at.size() ? s.tested_at[position] : 0;
    }
  }
  return prompt_interval(prompts, 1);
}

std::vector<PositionFigures> positions_of(const std::vector<Alternation>& repeats, double rounds, const Experiment& e) {
  std::vector<double> drafted = sum_of(repeats, &SideRecord::drafted_at),
                      tested = sum_of(repeats, &SideRecord::tested_at),
                      accepted = sum_of(repeats, &SideRecord::accepted_at);
  while (!drafted.empty() && drafted.back() == 0) drafted.pop_back();
  tested.resize(drafted.size());
  accepted.resize(drafted.size());
  std::vector<PositionFigures> positions;
  for (std::size_t i = 0; i < drafted.size(); ++i)
    positions.push_back({int(i) + 1, drafted[i], tested[i], accepted[i], divide(accepted[i], tested[i]),
                         divide(accepted[i], rounds), rate_at(e, i)});
  return positions;
}

// All that is read of a line that holds no error. The other figures follow from it, and computing them finds nothing
// wrong.
Experiment read_result(const Result& result, Summary& summary) {
  const std::vector<Alternation>& repeats = result.repeats;
  summary.repeats = int(repeats.size());
  summary.failed_requests = int(result.failures.size());
  const int slots = rate_key_of(result.run).empty() ? result.run.value("/engine/batch"_json_pointer, 1) : 1;
  Experiment experiment = read_experiment(repeats, slots);
  summary.in_shares = slots > 1 && !experiment.queues;
  summary.left_out = int(experiment.failed.size());
  summary.left_out_turns = left_out_turns_of(repeats);
  summary.speculative = summarize_side(repeats, &Alternation::speculative, experiment.failed);
  summary.baseline = summarize_side(repeats, &Alternation::baseline, experiment.failed);
  summary.load = load_of(result, experiment.failed);
  summary.histogram = sum_of(repeats, &SideRecord::histogram);
  summary.positions = positions_of(repeats, summary.speculative.rounds, experiment);
  if (summary.left_out > 0) {
    summary.histogram.clear();
    summary.positions.clear();
  }
  summary.theory.draft_length = fixed_length(result.run);
  if (summary.left_out > 0)
    summary.acceptance_length = kUnknown;
  else if (!summary.positions.empty())
    summary.acceptance_length = 1 + divide(summary.speculative.accepted, summary.positions[0].drafted);
  summary.alternations_differ = result.alternations && !result.alternations->differing.empty();
  for (const SideSpeeds& side : result.two_speeds)
    if (!summary.two_speeds || side.ratio > summary.two_speeds->ratio) summary.two_speeds = {side.ratio, side.slower};
  const Agreement agreement = result.agreement.value_or(Agreement{});
  summary.compared = agreement.compared;
  summary.compared_texts = int(agreement.compared_texts);
  summary.differing_texts = int(agreement.differing_texts);
  return experiment;
}

void leave_out_times(SideFigures& side) {
  side.tokens_per_second = side.decode_tokens_per_second = side.ttft_ms = side.ms_per_token = side.overhead = kUnknown;
  const Quantiles unknown{kUnknown, kUnknown, kUnknown};
  side.latency = {unknown, unknown, unknown, unknown};
  side.phases = kUnknownPhases;
}

// Of a run whose times may be those of a busy machine: what depends on them is not known.
void leave_out_speeds(Summary& summary) {
  for (Interval* figure :
       {&summary.speedup, &summary.tokens_per_second, &summary.steady_speedup, &summary.decode_speedup})
    *figure = Interval::unknown();
  summary.question_speedup = summary.steady_share = kUnknown;
  TheoryFigures& theory = summary.theory;
  theory.plain_ms = theory.draft_ms = theory.verify_ms = theory.cost = theory.speedup = kUnknown;
  for (CategoryFigures& category : summary.categories) category.speedup = Interval::unknown();
  for (PromptFigures& prompt : summary.by_prompt) prompt.speedup = kUnknown;
  summary.samples.speedup = summary.samples.tokens_per_second = Measurements(0, 0);
  summary.prompts_alone = summary.in_shares = false;
  summary.two_speeds.reset();
  summary.load.reset();
  leave_out_times(summary.speculative);
  leave_out_times(summary.baseline);
}

// Why no figures can be made; empty where they can.
std::string problem_of(const std::function<void()>& read) {
  try {
    read();
  } catch (const json::exception& e) {
    return "not a complete result line: " + reason_of(e);
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

}  // namespace

double fixed_length(const json& run) {
  const json policy = run.value("policy", json::object());
  return policy.value("name", "") == "fixed" && policy.contains("length") ? policy["length"].get<double>() : 0;
}

TheoryFigures theory_of(const Summary& summary) {
  const SideFigures& side = summary.speculative;
  const bool positions_known = summary.left_out == 0 || side.drafted == 0;
  TheoryFigures theory = summary.theory;
  if (theory.draft_length == 0) theory.draft_length = positions_known ? double(summary.positions.size()) : kUnknown;
  theory.mean_drafted = divide(side.drafted, side.rounds);
  const double alpha = summary.alpha.value, full = theory.draft_length;
  double levels = 0, tau = 1;
  for (const PositionFigures& at : summary.positions)
    levels += at.drafted, tau += at.drafted / side.rounds * std::pow(alpha, at.position);
  theory.branched = positions_known && side.drafted > levels;
  theory.full_length =
      positions_known && !theory.branched && side.drafted > 0 && theory.mean_drafted >= kFullLength * full;
  const double g = theory.full_length ? full : theory.mean_drafted;
  if (theory.full_length) tau = alpha == 1 ? g + 1 : (1 - std::pow(alpha, g + 1)) / (1 - alpha);
  theory.tau = theory.branched || !positions_known ? kUnknown : tau;
  theory.plain_ms = 1000 * divide(summary.baseline.phases.target_forward, summary.baseline.rounds);
  theory.draft_ms = 1000 * divide(side.phases.draft_forward, side.drafted);
  theory.verify_ms = 1000 * divide(side.phases.target_forward, side.rounds);
  theory.cost = divide(theory.draft_ms, theory.plain_ms);
  const double drafting = side.drafted == 0 ? 0 : g * theory.draft_ms;
  theory.speedup = theory.tau * divide(theory.plain_ms, drafting + theory.verify_ms);
  return theory;
}

bool accepts_busy(const json& run) { return run.value("/measure/busy"_json_pointer, "refuse") == "accept"; }

std::vector<const Result*> latest(const std::vector<Result>& results) {
  std::map<std::string, const Result*> last;
  for (const Result& result : results) last[result.key] = &result;
  std::vector<const Result*> found;
  for (const Result& result : results)
    if (last[result.key] == &result) found.push_back(&result);
  return found;
}

Summary summarize(const Result& result) {
  Summary summary;
  summary.result = result;
  summary.result.repeats.clear();
  summary.error = result.error.value_or("");
  summary.promise = result.promise.value_or("");
  if (summary.failed()) return summary;
  Experiment experiment;
  summary.error = problem_of([&] { experiment = read_result(result, summary); });
  if (summary.failed()) return summary;
  summarize_prompts(experiment, summary);
  const SideFigures& side = summary.speculative;
  summary.steady_share = divide(side.steady_seconds, side.seconds);
  summary.from_cache = summary.left_out > 0 ? kUnknown : divide(side.prefix_rows, side.prompt_tokens);
  summary.theory = theory_of(summary);
  if (summary.load) leave_out_capped(summary);
  summary.without_speeds = accepts_busy(summary.run());
  if (summary.without_speeds) leave_out_speeds(summary);
  return summary;
}

std::string damage_of(const Result& result) {
  if (result.failed()) return "";
  return problem_of([&] {
    Summary ignored;
    (void)read_result(result, ignored);
  });
}

std::vector<Summary> summarize(const std::vector<Result>& results) {
  std::vector<Summary> summaries;
  for (const Result* result : latest(results)) summaries.push_back(summarize(*result));
  return summaries;
}

std::vector<std::string> damages_of(const std::vector<Result>& results) {
  std::vector<std::string> found;
  for (const Result* result : latest(results))
    if (std::string damage = damage_of(*result); !damage.empty()) found.push_back(std::move(damage));
  return found;
}

}  // namespace foretoken
