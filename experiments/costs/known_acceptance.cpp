#include "experiments/costs/known_acceptance.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "experiments/report/results.h"
#include "experiments/report/summary.h"
#include "experiments/report/table.h"
#include "experiments/session/measured_pair.h"
#include "framework/text/json_file.h"
#include "kernels/error.h"
#include "kernels/philox.h"

namespace foretoken {
namespace {

using nlohmann::json;
using Counts = KnownAcceptance::Counts;

constexpr double kEnoughRounds = 30;  // of a level
constexpr double kAlways = 0.9;       // of the levels that there is room for: a drafter that drafts so many always does

void grow(std::vector<double>& to, std::size_t size) { to.resize(std::max(to.size(), size)); }

void add(std::vector<double>& to, const std::vector<long>& counts) {
  grow(to, counts.size());
  for (std::size_t i = 0; i < counts.size(); ++i) to[i] += double(counts[i]);
}

// What must agree for drafts to be accepted alike.
json accepted_alike(const json& run, const Budget& most) {
  json found = pair_of(run);
  found["verifier"] = run.at("verifier");
  for (const char* key : {"temperature", "top_k", "top_p", "min_p"})
    found["sampling"][key] = run.at("sampling").value(key, json());
  found["nodes"] = most.nodes > most.depth + 1 ? json(most.nodes) : json("of a chain");
  return found;
}

Budget budget_of_fixed(const json& run) {
  const int length = int(fixed_length(run));
  const json nodes = run.at("policy").value("nodes", json());
  return {nodes.is_null() ? length + 1 : nodes.get<int>(), length};
}

struct Seen {
  std::map<int, Counts> prompts;        // by number; what no request says is of the prompt -1
  std::vector<double> rounds, drafted;  // of runs whose policy asks for the level
  double levels = 0, asked = 0;         // drafted in all, and asked for where the output's end left room
};

// Rounds that reached a level of `length` levels that were asked for: those that tested it. Of a drafter that finds
// nothing in some rounds those that accepted the level before, since no draft is as good as a rejected one. Counts end
// at the deepest level that has one.
void add_counts(Seen& seen, int prompt, double rounds, const std::vector<long>& tested,
                const std::vector<long>& accepted, int length, bool always) {
  Counts& counts = seen.prompts[prompt];
  add(counts.accepted, accepted);
  if (always) return add(counts.reached, tested);
  grow(counts.reached, std::size_t(length));
  counts.reached[0] += std::max(0.0, rounds);
  for (std::size_t i = 1; i < std::size_t(length); ++i)
    counts.reached[i] += i <= accepted.size() ? double(accepted[i - 1]) : 0;
}

double ended_of(const SideRecord& side) {
  const auto end = side.no_draft.find("end");
  return end == side.no_draft.end() ? 0 : double(end->second);
}

// `tokens`: the longest output, at whose end drafts have room for half of their levels.
void add_levels(Seen& seen, const SideRecord& side, int length, double tokens) {
  const double rounds = std::max(0.0, double(side.rounds) - ended_of(side));
  add(seen.drafted, side.drafted_at);
  grow(seen.rounds, std::size_t(length));
  for (int i = 0; i < length; ++i) seen.rounds[std::size_t(i)] += rounds;
  for (const long n : side.drafted_at) seen.levels += double(n);
  seen.asked += rounds * length * (1 - std::min(length / tokens, 1.0) / 2);
}

void add_side(Seen& seen, const SideRecord& side, int length, bool always) {
  const bool by_request =
      std::ranges::all_of(side.requests, [](const RequestRecord& r) { return r.tested_at && r.accepted_at; });
  if (!by_request || side.requests.empty())
    return add_counts(seen, -1, double(side.rounds) - ended_of(side), side.tested_at, side.accepted_at, length, always);
  // Requests do not say which of them had a last round without room; one that ended by its limit has one at most.
  const auto full = [](const RequestRecord& r) { return r.finish == "length"; };
  const auto limited = std::ranges::count_if(side.requests, full);
  const double ended = limited > 0 ? std::min(1.0, ended_of(side) / double(limited)) : 0;
  for (const RequestRecord& r : side.requests)
    add_counts(seen, r.prompt, double(r.rounds) - (full(r) ? ended : 0), *r.tested_at, *r.accepted_at, length, always);
}

KnownAcceptance acceptance_in(const std::vector<const Result*>& results, const std::string& file) {
  Seen seen;
  for (const Result* r : results)
    for (const Alternation& repeat : r->repeats)
      add_levels(seen, repeat.speculative, int(fixed_length(r->run)),
                 r->run.value("/workload/max_new_tokens"_json_pointer, 1e9));
  const bool always = seen.levels >= kAlways * seen.asked;
  for (const Result* r : results)
    for (const Alternation& repeat : r->repeats) add_side(seen, repeat.speculative, int(fixed_length(r->run)), always);
  std::vector<Counts> prompts;
  for (const auto& [number, counts] : seen.prompts) prompts.push_back(counts);
  std::vector<double> drafted{1};
  if (!always) {
    drafted.clear();
    for (std::size_t i = 0; i < seen.rounds.size(); ++i)
      drafted.push_back(i < seen.drafted.size() && seen.rounds[i] > 0 ? std::min(1.0, seen.drafted[i] / seen.rounds[i])
                                                                      : 0);
  }
  return {std::move(prompts), std::move(drafted), file};
}

std::optional<std::vector<double>> rates_in(const std::string& text) {
  std::vector<double> rates;
  for (std::size_t from = 0; from <= text.size();) {
    const std::size_t to = std::min(text.find(',', from), text.size());
    const std::optional<double> rate = number_in(text.substr(from, to - from));
    if (!rate || !(*rate >= 0 && *rate <= 1)) return std::nullopt;
    rates.push_back(*rate);
    from = to + 1;
  }
  return rates;
}

}  // namespace

KnownAcceptance::KnownAcceptance(std::vector<double> rates) : given_(std::move(rates)), drafted_{1} {}

KnownAcceptance::KnownAcceptance(std::vector<Counts> prompts, std::vector<double> drafted, const std::string& where)
    : prompts_(std::move(prompts)), drafted_(std::move(drafted)) {
  double reached = 0;
  for (const Counts& c : prompts_) reached += c.reached.empty() ? 0 : c.reached[0];
  if (reached < kEnoughRounds)
    throw Error(where + " has " + std::to_string(long(reached)) +
                " rounds of such drafts, too few to say how many are "
                "accepted; name a file with more of them, or a number");
}

RoundRates KnownAcceptance::rates(std::uint32_t resample) const {
  if (prompts_.empty()) return {given_, drafted_};
  Counts sum;
  for (std::uint32_t i = 0; i < prompts_.size(); ++i) {
    std::size_t which = i;
    if (resample > 0)
      which = std::size_t(Draws{.seed = 1, .stream = resample, .root = i}.uniform({Role::draft, 0, 0}) *
                          double(prompts_.size()));
    const Counts& c = prompts_[which];
    grow(sum.reached, c.reached.size());
    grow(sum.accepted, c.accepted.size());
    for (std::size_t l = 0; l < c.reached.size(); ++l) sum.reached[l] += c.reached[l];
    for (std::size_t l = 0; l < c.accepted.size(); ++l) sum.accepted[l] += c.accepted[l];
  }
  RoundRates found{.accept = {}, .drafted = drafted_};
  for (std::size_t l = 0; l < sum.reached.size(); ++l) {
    if (sum.reached[l] < kEnoughRounds && l > 0) break;
    found.accept.push_back(l < sum.accepted.size() ? sum.accepted[l] / std::max(1.0, sum.reached[l]) : 0);
  }
  return found;
}

AcceptanceSource AcceptanceSource::read(const std::string& given) {
  AcceptanceSource source;
  if (given.empty()) return source;
  if (!has_file(given)) {
    const auto rates = rates_in(given);
    if (!rates)
      throw Error("--acceptance '" + given +
                  "' is no file, and no number from 0 to 1; give one, one for each level, as "
                  "0.8,0.7, or a file of results");
    source.given_ = KnownAcceptance(*rates);
    return source;
  }
  source.file_ = given;
  source.results_ = load_results(given);
  return source;
}

std::optional<KnownAcceptance> AcceptanceSource::of(const json& run, const Budget& most) const {
  if (given_) return given_;
  if (file_.empty()) return std::nullopt;
  const json wanted = accepted_alike(run, most);
  const auto other = [&](const json& has) {
    const json changes = json::diff(has, wanted);
    return changes.empty() ? std::string() : changes.front().at("path").get<std::string>();
  };
  std::vector<const Result*> alike;
  std::string at;
  for (const Result* result : latest(results_)) {
    if (result->failed() || !damage_of(*result).empty()) continue;
    const json policy = result->run.value("policy", json::object());
    if (policy.value("name", "") != "fixed" || !policy.value("confidence", json()).is_null()) continue;
    if (fixed_length(result->run) == 0) continue;
    at = other(accepted_alike(result->run, budget_of_fixed(result->run)));
    if (at.empty()) alike.push_back(result);
  }
  if (alike.empty())
    throw Error(file_ + " has no run of the policy 'fixed' like this one" +
                (at.empty() ? "" : "; the last differs in " + at) +
                ": drafter, verifier, sampling and the nodes of trees must be equal");
  return acceptance_in(alike, file_);
}

}  // namespace foretoken
