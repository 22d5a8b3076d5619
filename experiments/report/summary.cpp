#include "experiments/report/summary.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "framework/text/json_file.h"
#include "kernels/error.h"

namespace foretoken {
namespace {

using nlohmann::json;

constexpr int kSchema = 1;
constexpr double kNoMost = std::numeric_limits<double>::infinity();
constexpr double kFullLength = 0.9;  // share of the draft length; the last draft of a sequence may be shorter

double divide(double top, double bottom) {
  return bottom == 0 ? std::numeric_limits<double>::quiet_NaN() : top / bottom;
}

// One prompt in one alternation on one side; several requests may have served it.
struct Served {
  double tokens = 0, seconds = 0, rounds = 0, drafted = 0, tested = 0, accepted = 0;
};

// Prompts of one side: [prompt index] -> one Served per repeat.
using Side = std::map<int, std::vector<Served>>;

struct Experiment {
  Side speculative, baseline;
  std::map<int, std::string> category;
  std::set<int> failed;  // prompts with a failed request on either side: they have no figures
  int repeats = 0;
};

bool failed(const json& request) { return request.value("finish", "") == "failed"; }

void add_requests(const json& measure, int repeat, Side& side, Experiment& e) {
  double shares = 0;
  for (const json& request : measure.at("requests")) {
    const int prompt = request.at("prompt").get<int>();
    std::vector<Served>& row = side.try_emplace(prompt, e.repeats).first->second;
    Served& served = row[repeat];
    served.tokens += request.at("tokens").get<double>();
    served.seconds += request.at("share_seconds").get<double>();
    served.rounds += request.at("rounds").get<double>();
    served.drafted += request.at("drafted").get<double>();
    served.tested += request.at("tested").get<double>();
    served.accepted += request.at("accepted").get<double>();
    shares += request.at("share_seconds").get<double>();
    if (request.contains("category") && request["category"].is_string()) e.category[prompt] = request["category"];
    if (failed(request)) e.failed.insert(prompt);
  }
  const double seconds = measure.at("seconds").get<double>();
  if (std::abs(shares - seconds) > 0.01 * seconds + 1e-6)
    throw Error("the requests' shares of the time add up to " + std::to_string(shares) + " s, not to the " +
                std::to_string(seconds) + " s measured");
}

Experiment read_experiment(const json& repeats) {
  Experiment found;
  found.repeats = int(repeats.size());
  for (int r = 0; r < found.repeats; ++r) {
    add_requests(repeats[r].at("speculative"), r, found.speculative, found);
    add_requests(repeats[r].at("baseline"), r, found.baseline, found);
  }
  for (const int prompt : found.failed) found.speculative.erase(prompt), found.baseline.erase(prompt);
  if (!found.failed.empty() && found.speculative.empty()) throw Error("every prompt has a request that failed");
  const auto prompts = [](const Side& side) {
    std::set<int> all;
    for (const auto& [prompt, served] : side)
      if (std::ranges::all_of(served, [](const Served& s) { return s.rounds > 0; })) all.insert(prompt);
    return all;
  };
  if (found.speculative.empty() || prompts(found.speculative).size() != found.speculative.size() ||
      prompts(found.speculative) != prompts(found.baseline))
    throw Error("speculation and baseline did not serve the same prompts in every repeat");
  return found;
}

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

// Tokens and seconds of speculation, over the baseline's if `base` is requested.
Measurements rates(const Experiment& e, const std::vector<int>& prompts, bool over_baseline) {
  Measurements measured(int(prompts.size()), e.repeats);
  for (int i = 0; i < int(prompts.size()); ++i)
    for (int r = 0; r < e.repeats; ++r) {
      const Served &fast = e.speculative.at(prompts[i])[r], &plain = e.baseline.at(prompts[i])[r];
      measured.at(i, r) = {fast.tokens, fast.seconds, 1, 1};
      if (over_baseline) measured.at(i, r) = {fast.tokens, fast.seconds, plain.tokens, plain.seconds};
    }
  return measured;
}

Interval alpha_of(const Experiment& e, const std::vector<int>& p) {
  return prompt_interval(shares(e, p, &Served::accepted, &Served::tested), 1);
}
Interval tau_of(const Experiment& e, const std::vector<int>& p) {
  return prompt_interval(shares(e, p, &Served::tokens, &Served::rounds), kNoMost);
}
Interval speedup_of(const Experiment& e, const std::vector<int>& p) { return paired_interval(rates(e, p, true)); }

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
                                 ratio_of_totals(rates(e, {prompt}, true).terms)});
  }
  summary.prompts = int(all.size());
  summary.alpha = alpha_of(e, all);
  summary.accept_rate = prompt_interval(shares(e, all, &Served::accepted, &Served::drafted), 1);
  summary.tau = tau_of(e, all);
  summary.speedup = speedup_of(e, all);
  summary.tokens_per_second = paired_interval(rates(e, all, false));
  for (const std::string& name : names) {
    const std::vector<int>& p = members[name];
    summary.categories.push_back({name, int(p.size()), alpha_of(e, p), tau_of(e, p), speedup_of(e, p)});
  }
}

Phases read_phases(const json& phases) {
  Phases found;
  found.schedule = phases.at("schedule").get<double>();
  found.draft_forward = phases.at("draft_forward").get<double>();
  found.draft_other = phases.at("draft_other").get<double>();
  found.target_forward = phases.at("target_forward").get<double>();
  found.verify = phases.at("verify").get<double>();
  found.deliver = phases.at("deliver").get<double>();
  found.total = phases.at("total").get<double>();
  return found;
}

// A request's first round processes its prompt and emits all accepted tokens of its first draft at once; the rest is
// decoding. In lines without that number of tokens it counts as one.
SideFigures summarize_side(const json& repeats, const char* name) {
  SideFigures side;
  std::vector<double> ttft;
  double decode_tokens = 0, decode_seconds = 0;
  const std::pair<const char*, double SideFigures::*> sums[] = {
      {"tokens", &SideFigures::tokens},           {"seconds", &SideFigures::seconds},
      {"rounds", &SideFigures::rounds},           {"steps", &SideFigures::steps},
      {"drafted", &SideFigures::drafted},         {"tested", &SideFigures::tested},
      {"accepted", &SideFigures::accepted},       {"prompt_tokens", &SideFigures::prompt_tokens},
      {"prefix_rows", &SideFigures::prefix_rows}, {"preempted", &SideFigures::preempted}};
  for (const json& repeat : repeats) {
    const json& measure = repeat.at(name);
    for (const auto& [key, sum] : sums) side.*sum += measure.at(key).get<double>();
    side.recorded += measure.value("recorded", std::numeric_limits<double>::quiet_NaN());
    side.cut += measure.value("cut", 0.0);
    side.phases += read_phases(measure.at("phases"));
    for (const json& request : measure.at("requests")) {
      if (failed(request)) continue;
      ttft.push_back(1000 * request.at("ttft").get<double>());
      decode_tokens += request.at("tokens").get<double>() - request.value("first_tokens", 1.0);
      decode_seconds += request.at("decode_seconds").get<double>();
    }
  }
  side.tokens_per_second = divide(side.tokens, side.seconds);
  side.decode_tokens_per_second = divide(decode_tokens, decode_seconds);
  side.ms_per_token = divide(1000 * decode_seconds, decode_tokens);
  side.ttft_ms = median(std::move(ttft));
  side.overhead = divide(side.phases.overhead(), side.phases.total);
  return side;
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

std::vector<PositionFigures> positions_of(const json& repeats, double rounds) {
  std::vector<double> drafted = sum_of(repeats, "drafted_at"), tested = sum_of(repeats, "tested_at"),
                      accepted = sum_of(repeats, "accepted_at");
  while (!drafted.empty() && drafted.back() == 0) drafted.pop_back();
  tested.resize(drafted.size());
  accepted.resize(drafted.size());
  std::vector<PositionFigures> positions;
  for (std::size_t i = 0; i < drafted.size(); ++i)
    positions.push_back(
        {int(i) + 1, drafted[i], tested[i], accepted[i], divide(accepted[i], tested[i]), divide(accepted[i], rounds)});
  return positions;
}

double fixed_length(const json& run) {
  const json policy = run.value("policy", json::object());
  return policy.value("name", "") == "fixed" && policy.contains("length") ? policy["length"].get<double>() : 0;
}

TheoryFigures theory_of(const Summary& summary) {
  const SideFigures& side = summary.speculative;
  TheoryFigures theory;
  theory.draft_length = fixed_length(summary.run());
  if (theory.draft_length == 0) theory.draft_length = double(summary.positions.size());
  theory.mean_drafted = divide(side.drafted, side.rounds);
  const double alpha = summary.alpha.value, full = theory.draft_length;
  double levels = 0, tau = 1;
  for (const PositionFigures& at : summary.positions)
    levels += at.drafted, tau += at.drafted / side.rounds * std::pow(alpha, at.position);
  theory.branched = side.drafted > levels;
  theory.full_length = !theory.branched && side.drafted > 0 && theory.mean_drafted >= kFullLength * full;
  const double g = theory.full_length ? full : theory.mean_drafted;
  if (theory.full_length) tau = alpha == 1 ? g + 1 : (1 - std::pow(alpha, g + 1)) / (1 - alpha);
  theory.tau = theory.branched ? std::numeric_limits<double>::quiet_NaN() : tau;
  theory.cost =
      divide(divide(side.phases.draft_forward, side.drafted), divide(side.phases.target_forward, side.rounds));
  theory.speedup = side.drafted == 0 ? theory.tau : theory.tau / (1 + g * theory.cost);
  return theory;
}

void summarize_repeats(const json& line, Summary& summary) {
  const json& repeats = line.at("repeats");
  summary.repeats = int(repeats.size());
  summary.failed_requests = int(line.value("failures", json::array()).size());
  summarize_prompts(read_experiment(repeats), summary);
  summary.speculative = summarize_side(repeats, "speculative");
  summary.baseline = summarize_side(repeats, "baseline");
  summary.decode_speedup =
      divide(summary.speculative.decode_tokens_per_second, summary.baseline.decode_tokens_per_second);
  summary.histogram = sum_of(repeats, "histogram");
  summary.positions = positions_of(repeats, summary.speculative.rounds);
  summary.theory = theory_of(summary);
  const json agreement =
      line.contains("agreement") && line["agreement"].is_object() ? line["agreement"] : json::object();
  summary.compared = agreement.value("compared", false);
  summary.compared_texts = agreement.value("compared_texts", 0);
  summary.differing_texts = agreement.value("differing_texts", 0);
}

}  // namespace

Summary summarize(const json& line) {
  if (!line.is_object() || !line.contains("run") || !line["run"].is_object())
    throw Error(
        "a result line without its run document: this is not a results file of foretoken; name one that `foretoken "
        "run` wrote");
  Summary summary;
  summary.line = line;
  summary.line.erase("repeats");
  try {
    if (line.value("schema", 0) != kSchema)
      throw Error("the line has schema " + std::to_string(line.value("schema", 0)) + ", this program reads schema " +
                  std::to_string(kSchema) + ": show it with the version that wrote it");
    summary.promise = line.value("promise", "");
    if (line.contains("error") && line["error"].is_string()) summary.error = line["error"];
    if (summary.error.empty()) summarize_repeats(line, summary);
  } catch (const json::exception& e) {
    summary.error = "not a complete result line: " + reason_of(e);
  } catch (const Error& e) {
    summary.error = e.what();
  }
  return summary;
}

std::vector<Summary> summarize(const std::vector<json>& lines) {
  std::map<std::string, std::size_t> last;
  const auto key_of = [](const json& line) {
    return line.is_object() && line.contains("key") ? line["key"].dump() : line.dump();
  };
  for (std::size_t i = 0; i < lines.size(); ++i) last[key_of(lines[i])] = i;
  std::vector<Summary> summaries;
  for (std::size_t i = 0; i < lines.size(); ++i)
    if (last[key_of(lines[i])] == i) summaries.push_back(summarize(lines[i]));
  return summaries;
}

}  // namespace foretoken
