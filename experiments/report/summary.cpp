#include "experiments/report/summary.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <set>
#include <utility>

#include "experiments/report/divide.h"
#include "experiments/report/experiment.h"
#include "experiments/report/rates.h"
#include "experiments/report/side_figures.h"
#include "experiments/report/theory.h"
#include "framework/text/json_file.h"
#include "kernels/error.h"

namespace foretoken {
namespace {

using nlohmann::json;

constexpr int kSchema = 1;
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

Interval without_bounds(const Interval& interval) { return {interval.value, kUnknown, kUnknown}; }

constexpr int kFewestPrompts = 10;  // of a category with intervals

CategoryFigures category_figures(const Experiment& e, const std::string& name, const std::vector<int>& p, bool timed) {
  CategoryFigures found{name, int(p.size()), alpha_of(e, p), tau_of(e, p), paired_interval(speedups(e, p))};
  if (!timed) found.speedup = without_bounds(found.speedup);
  if (found.prompts < kFewestPrompts)
    for (Interval* figure : {&found.alpha, &found.tau, &found.speedup}) *figure = without_bounds(*figure);
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
  const bool gpu = summary.line.value("/machine/device"_json_pointer, "") == "cuda", timed = e.repeats > 1 || gpu;
  summary.prompts_alone = e.repeats == 1 && gpu;
  summary.decode_speedup = paired_interval(rates(e, all, kDecoding, true));
  summary.question_speedup = question_speedup(e);
  if (!timed)
    for (Interval* figure :
         {&summary.speedup, &summary.tokens_per_second, &summary.steady_speedup, &summary.decode_speedup})
      *figure = without_bounds(*figure);
  for (const std::string& name : names) summary.categories.push_back(category_figures(e, name, members[name], timed));
}

// The element-wise sum over repeats; arrays may differ in length.
std::vector<double> sum_of(const json& repeats, const char* name) {
  std::vector<double> sums;
  for (const json& repeat : repeats) {
    const auto found = repeat.at("speculative").at(name).get<std::vector<double>>();
    if (found.size() > sums.size()) sums.resize(found.size());
    for (std::size_t i = 0; i < found.size(); ++i) sums[i] += found[i];
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

std::vector<PositionFigures> positions_of(const json& repeats, double rounds, const Experiment& e) {
  std::vector<double> drafted = sum_of(repeats, "drafted_at"), tested = sum_of(repeats, "tested_at"),
                      accepted = sum_of(repeats, "accepted_at");
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
Experiment read_line(const json& line, Summary& summary) {
  if (line.value("schema", 0) != kSchema)
    throw Error("the line has schema " + std::to_string(line.value("schema", 0)) + ", this program reads schema " +
                std::to_string(kSchema) + ": show it with the version that wrote it");
  const json& repeats = line.at("repeats");
  if (!repeats.is_array() || repeats.empty())
    throw Error("'repeats' is " + shown(repeats) + ", not a list of alternations");
  summary.repeats = int(repeats.size());
  summary.failed_requests = int(line.value("failures", json::array()).size());
  const int places = rate_of(line.at("run")) ? 1 : line.value("/run/engine/batch"_json_pointer, 1);
  Experiment experiment = read_experiment(repeats, places);
  summary.in_shares = places > 1 && !experiment.queues;
  summary.left_out = int(experiment.failed.size());
  summary.left_out_turns = left_out_turns_of(repeats);
  summary.speculative = summarize_side(repeats, "speculative", experiment.failed);
  summary.baseline = summarize_side(repeats, "baseline", experiment.failed);
  summary.load = load_of(line.at("run"), repeats, experiment.failed);
  summary.histogram = sum_of(repeats, "histogram");
  summary.positions = positions_of(repeats, summary.speculative.rounds, experiment);
  if (summary.left_out > 0) summary.histogram.clear(), summary.positions.clear();
  summary.theory.draft_length = fixed_length(line.at("run"));
  if (summary.left_out > 0)
    summary.acceptance_length = kUnknown;
  else if (!summary.positions.empty())
    summary.acceptance_length = 1 + divide(summary.speculative.accepted, summary.positions[0].drafted);
  summary.alternations_differ = !line.value("/alternations/differing"_json_pointer, json::array()).empty();
  for (const json& side : line.value("two_speeds", json::array())) {
    const TwoSpeeds found{side.at("ratio").get<double>(), side.at("slower").get<double>()};
    if (!summary.two_speeds || found.ratio > summary.two_speeds->ratio) summary.two_speeds = found;
  }
  const json agreement =
      line.contains("agreement") && line["agreement"].is_object() ? line["agreement"] : json::object();
  summary.compared = agreement.value("compared", false);
  summary.compared_texts = agreement.value("compared_texts", 0);
  summary.differing_texts = agreement.value("differing_texts", 0);
  return experiment;
}

void leave_out_times(SideFigures& side) {
  side.tokens_per_second = side.decode_tokens_per_second = side.ttft_ms = side.ms_per_token = side.overhead = kUnknown;
  const Quantiles unknown{kUnknown, kUnknown, kUnknown};
  side.latency = {unknown, unknown, unknown, unknown};
  side.phases = {kUnknown, kUnknown, kUnknown, kUnknown, kUnknown, kUnknown, kUnknown};
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

// Why a line cannot be read; empty where it can.
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

std::vector<const json*> latest(const std::vector<json>& lines) {
  std::map<std::string, const json*> last;
  const auto key_of = [](const json& line) {
    return line.is_object() && line.contains("key") ? line["key"].dump() : line.dump();
  };
  for (const json& line : lines) last[key_of(line)] = &line;
  std::vector<const json*> found;
  for (const json& line : lines)
    if (last[key_of(line)] == &line) found.push_back(&line);
  return found;
}

Summary summarize(const json& line) {
  if (!line.is_object() || !line.contains("run") || !line["run"].is_object())
    throw Error(
        "a result line without its run document: this is not a results file of foretoken; name one that `foretoken "
        "run` wrote");
  Summary summary;
  summary.line = line;
  summary.line.erase("repeats");
  if (line.contains("error") && line["error"].is_string()) summary.error = line["error"];
  summary.promise = line.contains("promise") && line["promise"].is_string() ? line["promise"] : "";
  if (summary.failed()) return summary;
  Experiment experiment;
  summary.error = problem_of([&] { experiment = read_line(line, summary); });
  if (summary.failed()) return summary;
  summarize_prompts(experiment, summary);
  const SideFigures& side = summary.speculative;
  summary.steady_share = divide(side.steady_seconds, side.seconds);
  summary.from_cache = summary.left_out > 0 ? kUnknown : divide(side.prefix_rows, side.prompt_tokens);
  summary.theory = theory_of(summary);
  if (summary.load) leave_out_capped(summary);
  summary.without_speeds = summary.run().value("/measure/busy"_json_pointer, "refuse") == "accept";
  if (summary.without_speeds) leave_out_speeds(summary);
  return summary;
}

std::string damage_of(const json& line) {
  if (line.contains("error")) return "";
  return problem_of([&] {
    Summary ignored;
    (void)read_line(line, ignored);
  });
}

std::vector<Summary> summarize(const std::vector<json>& lines) {
  std::vector<Summary> summaries;
  for (const json* line : latest(lines)) summaries.push_back(summarize(*line));
  return summaries;
}

std::vector<std::string> damages_of(const std::vector<json>& lines) {
  std::vector<std::string> found;
  for (const json* line : latest(lines))
    if (std::string damage = damage_of(*line); !damage.empty()) found.push_back(std::move(damage));
  return found;
}

}  // namespace foretoken
