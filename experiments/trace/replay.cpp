#include "experiments/trace/replay.h"

#include <algorithm>
#include <map>

#include "experiments/conformance/scenario.h"
#include "framework/components/host.h"
#include "kernels/error.h"
#include "kernels/reference/reference_backend.h"

namespace foretoken {

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

// A host without models worth running, to make policies.
struct BareHost {
  explicit BareHost(const Registries& registries)
      : host(backend, pool, models.target->info(), models.load, false, {models.target, nullptr, &registries}) {}
  ReferenceBackend backend;
  conformance::Models models = conformance::table_models({.vocab = 2});
  PagePool pool{backend, 64, 1};
  Host host;
};

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
  const auto interval = [](const std::map<int, Term>& by_prompt) {
    std::vector<Term> terms;
    for (auto [prompt, term] : by_prompt) {
      term.base_top = term.base_bottom = 1;
      terms.push_back(term);
    }
    return mean_interval(terms, 0, kMaxPath + 1);
  };
  row.tau = interval(tau);
  if (row.untimed.empty()) row.speedup = interval(speedup);
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
  BareHost bare(registries_);
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

}  // namespace foretoken
