#include "experiments/trace/replay.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "experiments/conformance/scenario.h"
#include "experiments/report/statistics.h"
#include "framework/components/host.h"
#include "framework/engine/tree_report.h"
#include "kernels/error.h"
#include "kernels/philox.h"
#include "kernels/reference/reference_backend.h"

namespace foretoken {

using nlohmann::json;

namespace {

json origin_of(const Trace& trace) {
  const json& run = trace.run();
  json origin;
  for (const char* part : {"target", "drafter"}) origin[part] = run.value(part, json());
  const json engine = run.value("engine", json::object());
  for (const char* key : {"batch", "device", "threads", "numerics"}) origin[key] = engine.value(key, json());
  const json machine = trace.header.value("machine", json::object());
  for (const char* key : {"cpu", "cores", "device", "description"})
    origin[key] = machine.is_object() ? machine.value(key, json()) : json();
  return origin;
}

}  // namespace

const std::map<int, double>& TimesBy::medians() const {
  if (medians_.empty())
    for (const auto& [number, seconds] : measured_) medians_[number] = median(seconds);
  return medians_;
}

double TimesBy::at(int number) const {
  const auto& known = medians();
  if (known.empty() || number < known.begin()->first || number > known.rbegin()->first)
    throw Error("steps of " + std::to_string(number) + " " + what_ + " were not measured" +
                (known.empty() ? ""
                               : " (" + std::to_string(known.begin()->first) + " to " +
                                     std::to_string(known.rbegin()->first) + " were)") +
                ", and times are not extrapolated; add a trace that has such steps with --costs");
  const auto above = known.lower_bound(number);
  if (above->first == number) return above->second;
  const auto below = std::prev(above);
  const double share = double(number - below->first) / double(above->first - below->first);
  return below->second + share * (above->second - below->second);
}

std::vector<double> TimesBy::errors() const {
  std::vector<double> all;
  for (const auto& [number, seconds] : measured_)
    for (const double s : seconds)
      if (const double table = at(number); table > 0) all.push_back(std::abs(s - table) / table);
  return all;
}

CostTable::CostTable(const Trace& trace) : origin_(origin_of(trace)), batch_(trace.batch()) { take(trace); }

void CostTable::add(const Trace& other, const std::string& file) {
  const json origin = origin_of(other);
  for (const auto& [key, value] : origin.items())
    if (value != origin_[key])
      throw Error("the times of " + file + " are those of another run: its '" + key + "' is " + value.dump() +
                  ", not " + origin_[key].dump() + "; take it out of --costs");
  take(other);
}

void CostTable::take(const Trace& trace) {
  for (const TracedStep& s : trace.steps) {
    if (s.judged != batch_ || s.prompt_rows > 0) continue;
    const double draft = s.phases.draft_forward + s.phases.draft_other;
    if (!(s.phases.total > std::max(0.0, draft))) continue;  // a clock that was set meanwhile
    ++steps_;
    if (s.baseline) {
      plain_.add(batch_, s.phases.total);
    } else {
      target_.add(s.rows, s.phases.total - draft);
      draft_.add(s.depth, draft);
    }
  }
}

double CostTable::round(int rows, int depth) const {
  return target_.at(rows * batch_) + (depth > 0 ? draft_.at(depth) : 0);
}

double CostTable::plain() const { return plain_.at(batch_); }

double CostTable::error() const {
  std::vector<double> all = target_.errors();
  const std::vector<double> plain = plain_.errors();
  all.insert(all.end(), plain.begin(), plain.end());
  return median(std::move(all));
}

using nlohmann::json;

namespace {

// reach -> the probability of each number of accepted tokens.
std::vector<double> lengths_of(const std::vector<double>& reach) {
  std::vector<double> of(reach.size() + 1);
  for (std::size_t i = 0; i < of.size(); ++i)
    of[i] = std::max(0.0, (i == 0 ? 1 : reach[i - 1]) - (i == reach.size() ? 0 : reach[i]));
  return of;
}

std::pair<int, int> size_of(const CutTree& tree) { return {tree.rows(), tree.depth}; }

}  // namespace

Replay::Replay(const Trace& trace, const CostTable& costs, const Registries& registries)
    : trace_(trace),
      costs_(costs),
      registries_(registries),
      outputs_(trace.by_request()),
      shape_(foretoken::shape_of(trace)) {
  if (!trace.dense())
    throw Error(
        "the trace is not dense: it has no drafts at the positions that another run would visit; record it "
        "with \"trace\": {\"file\": FILE, \"dense\": true}");
  const json confidence = trace.run().value("/policy/confidence"_json_pointer, json());
  if (confidence.is_number() && confidence > 0)
    throw Error(
        "the trace lacks what other policies would have drafted, since its own ended drafts by the draft's confidence; "
        "record it without '/policy/confidence'");
}

Soundness Replay::soundness_of(const std::string& verifier) const {
  const json own = trace_.run().at("verifier");
  return registries_.verifiers.traits(own.at("name") == verifier ? own : json{{"name", verifier}}, ModelInfo());
}

// Why rounds of a cut have no time; empty where they have.
std::string Replay::untimed(const TreeCut& cut) const {
  try {
    (void)costs_.plain();
    std::set<std::pair<int, int>> sizes;
    for (const auto& output : outputs_)
      for (const TracedRound* r : output) sizes.insert(size_of(cut_of(*r, cut)));
    for (const auto& [rows, depth] : sizes) (void)costs_.round(rows, depth);
    return {};
  } catch (const Error& e) {
    return e.what();
  }
}

Interval over_prompts(const std::map<int, Term>& by_prompt, double least, double most) {
  std::vector<Term> terms;
  for (auto [prompt, term] : by_prompt) {
    term.base_top = term.base_bottom = 1;
    terms.push_back(term);
  }
  return mean_interval(terms, least, most);
}

// Sums over requests; intervals over prompts.
template <class Walk> Replayed Replay::all(Replayed row, const Walk& walk) const {
  std::map<int, Term> tau, speedup;  // by prompt
  for (std::size_t i = 0; i < outputs_.size(); ++i) {
    const Sums sums = walk(TracedOutput(outputs_[i]), i);
    const double tokens = double(outputs_[i].size());
    const int prompt = trace_.requests[i].prompt;
    tau[prompt] += {tokens, sums.rounds, 0, 0};
    if (row.untimed.empty()) speedup[prompt] += {tokens * costs_.plain(), sums.seconds, 0, 0};
    row.tokens += tokens, row.rounds += sums.rounds;
  }
  row.tau = over_prompts(tau, 0, kMaxPath + 1);
  if (row.untimed.empty()) row.speedup = over_prompts(speedup, 0, kMaxPath + 1);
  return row;
}

// The probability that a round begins after t tokens goes to where it ends.
Replay::Sums Replay::walk(TracedOutput output, const TreeCut& cut, const Rule& rule, bool timed) const {
  std::vector<double> begins(output.size() + 1, 0);
  begins[0] = 1;
  Sums sums;
  for (std::size_t t = 0; t < output.size(); ++t) {
    if (begins[t] == 0) continue;
    const CutTree tree = cut_of(*output[t], cut);
    const std::vector<double> lengths = lengths_of(rule.reach.reach(output, t, tree, rule.basis));
    for (std::size_t k = 0; k < lengths.size(); ++k)
      begins[std::min(output.size(), t + k + 1)] += begins[t] * lengths[k];
    sums.rounds += begins[t];
    if (timed) sums.seconds += begins[t] * costs_.round(tree.rows(), tree.depth);
  }
  return sums;
}

// Backward: the least expected time from t tokens on, where the number of levels is chosen with the round's outcome
// known. A draft cut to g levels accepts the lesser of g and what the whole one accepts.
Replay::Sums Replay::best_walk(TracedOutput output, const TreeCut& cut, const Rule& rule) const {
  std::vector<Sums> from(output.size() + 1);
  for (std::size_t t = output.size(); t-- > 0;) {
    const CutTree whole = cut_of(*output[t], cut);
    std::vector<double> seconds;
    for (int g = 0; g <= whole.depth; ++g) {
      const auto rows = 1 + std::ranges::count_if(whole.level, [&](int level) { return level <= g; });
      seconds.push_back(costs_.round(int(rows), g));
    }
    const std::vector<double> lengths = lengths_of(rule.reach.reach(output, t, whole, rule.basis));
    for (std::size_t accepted = 0; accepted < lengths.size(); ++accepted) {
      Sums best{0, -1};
      for (std::size_t g = 0; g < seconds.size(); ++g) {
        const Sums& rest = from[std::min(output.size(), t + std::min(accepted, g) + 1)];
        const Sums now{1 + rest.rounds, seconds[g] + rest.seconds};
        if (best.seconds < 0 || now.seconds < best.seconds) best = now;
      }
      from[t].rounds += lengths[accepted] * best.rounds, from[t].seconds += lengths[accepted] * best.seconds;
    }
  }
  return from[0];
}

Replayed Replay::cut(const std::string& what, const TreeCut& cut, const std::string& verifier) const {
  expect_inside(shape_, cut, what);
  RoundReach reach(trace_, verifier, soundness_of(verifier));
  const Basis basis = reach.basis(cut);
  const Rule rule{std::move(reach), basis};
  Replayed row{.what = what, .verifier = verifier, .basis = basis, .untimed = untimed(cut)};
  for (const auto& output : outputs_)
    for (const TracedRound* r : output) row.rows = std::max(row.rows, double(cut_of(*r, cut).rows()));
  const bool timed = row.untimed.empty();
  return all(std::move(row), [&](TracedOutput output, std::size_t) { return walk(output, cut, rule, timed); });
}

Replayed Replay::oracle(const TreeCut& cut, const std::string& verifier) const {
  expect_inside(shape_, cut, "the oracle");
  const Soundness soundness = soundness_of(verifier);
  RoundReach reach(trace_, verifier, soundness);
  const Basis basis = reach.basis(cut);
  const bool from_the_root = soundness.acceptance == Acceptance::overlap || soundness.acceptance == Acceptance::product;
  if (basis == Basis::expectation && !from_the_root)
    throw Error("the oracle is known for rules that decide from the root down, or along a chain, and '" + verifier +
                "' of these trees is none; leave --oracle out");
  const Rule rule{std::move(reach), basis};
  Replayed row{.what = "oracle", .verifier = verifier, .basis = basis};
  for (int g = shape_.depth; g >= 0 && row.untimed.empty(); --g) {
    TreeCut shorter = cut;
    shorter.depth = std::min(shorter.depth, g);
    row.untimed = untimed(shorter);
  }
  if (!row.untimed.empty()) throw Error("the oracle needs the time of every length: " + row.untimed);
  return all(std::move(row), [&](TracedOutput output, std::size_t) { return best_walk(output, cut, rule); });
}

Replayed Replay::policy(const json& config, const std::string& verifier) const {
  constexpr int kWalks = 64;  // of a request, where its rounds are probabilities
  ReferenceBackend backend;
  const conformance::Models models = conformance::table_models({.vocab = 2});
  conformance::BareHost bare(backend, models, registries_);
  const auto policy = registries_.policies.make(config, bare.host);
  const Budget most = registries_.policies.traits(config, bare.host.target()).most;
  const std::string what = "policy " + config.at("name").get<std::string>();
  const TreeCut widest{most.or_root().depth, most.or_root().nodes, {}};
  expect_inside(shape_, widest, what);
  RoundReach reach(trace_, verifier, soundness_of(verifier));
  const Basis basis = reach.basis(widest);
  const Rule rule{std::move(reach), basis};
  Replayed row{.what = what, .verifier = verifier, .basis = basis, .untimed = untimed(widest)};
  row.rows = double(std::min(most.nodes, int(shape_.nodes.size()) + 1));
  const bool timed = row.untimed.empty();
  const int walks = basis == Basis::exact ? 1 : kWalks;
  return all(std::move(row), [&](TracedOutput output, std::size_t request) {
    Sums sums;
    for (int k = 0; k < walks; ++k) {
      const Sums one =
          follow(output, *policy, most, rule, std::uint64_t(request) * kWalks + std::uint64_t(k) + 1, timed);
      sums.rounds += one.rounds / walks, sums.seconds += one.seconds / walks;
    }
    return sums;
  });
}

namespace {

// How many tokens a round accepts: the draw of request and walk `number` at this position.
int accepted_of(const std::vector<double>& reach, std::uint64_t number, std::size_t at) {
  const double u = Draws{.seed = 1, .stream = number, .root = std::uint32_t(at)}.uniform({Role::accept, 0, 0});
  int accepted = 0;
  while (accepted < int(reach.size()) && u < reach[std::size_t(accepted)]) ++accepted;
  return accepted;
}

// As an engine reports it. `path`: the accepted nodes, by their numbers in the recorded tree; `kept`: see
// report_tree.
SequenceReport report_of(const TracedRound& round, const CutTree& tree, const std::vector<int>& path, int kept) {
  std::vector<std::int32_t> number(std::size_t(round.size()), 0), parents{0}, accepted;  // in the cut tree
  std::vector<Token> tokens{0};
  for (const int n : tree.nodes) {
    number[std::size_t(n)] = std::int32_t(tokens.size());
    parents.push_back(number[std::size_t(round.node(n).parent)]), tokens.push_back(round.node(n).token);
  }
  for (const int n : path) accepted.push_back(number[std::size_t(n)]);
  SequenceReport s;
  std::vector<int> depth;
  report_tree(s, parents, tokens, accepted, kept, depth);
  s.judged = true;
  return s;
}

// The largest tree that an engine allows after so many tokens: the last token of an output is never fed.
Budget room_of(const Budget& most, int remaining) {
  const int depth = std::clamp(remaining - 1, 0, most.depth);
  return {depth > 0 ? most.nodes : 1, depth};
}

// What an engine makes of the policy's budget.
Budget granted(const std::vector<Budget>& budgets, const Budget& room) {
  if (budgets.size() != 1) throw Error("the policy gave " + std::to_string(budgets.size()) + " budgets for 1 sequence");
  if (budgets[0].confidence > 0)
    throw Error("the policy ends drafts by the draft's confidence, which a trace does not hold; replay another");
  return Budget{std::min(budgets[0].nodes, room.nodes), std::min(budgets[0].depth, room.depth)}.or_root();
}

}  // namespace

Replay::Sums Replay::follow(TracedOutput output, LengthPolicy& policy, const Budget& stated, const Rule& rule,
                            std::uint64_t number, bool timed) const {
  const int request = output[0]->request, prompt = trace_.requests[std::size_t(request)].prompt_tokens;
  const Budget most = Budget{std::min(stated.nodes, kMaxNodes), std::min(stated.depth, kMaxPath)}.or_root();
  PastOnly past;
  past.id = number, past.batch = trace_.batch();
  past.category = trace_.requests[std::size_t(request)].category;
  int tested = 0, passed = 0;
  Sums sums;
  for (std::size_t t = 0; t < output.size();) {
    past.length = prompt + int(t), past.room = room_of(most, trace_.most_tokens(request) - int(t));
    const Budget budget = granted(policy.budgets({&past, 1}), past.room);
    const CutTree tree = cut_of(*output[t], {budget.depth, budget.nodes});
    const int accepted = accepted_of(rule.reach.reach(output, t, tree, rule.basis), number, t);
    StepReport report;
    report.rows = tree.rows(), report.running = 1;
    const int kept = int(std::min(output.size() - t, std::size_t(accepted) + 1));
    SequenceReport s = report_of(*output[t], tree, rule.reach.path(output, t, tree, accepted), kept);
    s.id = number;
    for (int i = 0; i < kept; ++i) s.emitted.push_back(output[t + std::size_t(i)]->emitted.front());
    ++past.rounds, past.drafted = s.drafted, past.accepted = s.accepted;
    tested += s.tested(), passed += s.accepted;
    past.acceptance = tested > 0 ? double(passed) / tested : -1;
    report.sequences.push_back(std::move(s));
    ++sums.rounds;
    if (timed) sums.seconds += report.phases.total = costs_.round(tree.rows(), tree.depth);
    policy.observe(report);
    t += std::size_t(accepted) + 1;
  }
  Sequence ended;
  ended.id = number;
  policy.forget(ended);
  return sums;
}

}  // namespace foretoken
