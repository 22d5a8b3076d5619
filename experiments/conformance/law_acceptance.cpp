#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>

#include "experiments/conformance/laws.h"
#include "experiments/conformance/target_distribution.h"

namespace foretoken::conformance {
namespace {

struct Drafted {
  Tokens context;
  int prompt = 0;  // so many of them
  DraftTree tree;
};

// The probability that a token drawn from q is accepted, given p, by the verifier's formula.
double agreement(const std::vector<double>& p, const Distribution& q, const Soundness& how) {
  double sum = 0;
  for (Token x = 0; x < q.vocab; ++x) {
    const double px = p[std::size_t(x)], qx = q(x);
    if (!how.race) sum += how.acceptance == Acceptance::product ? px * qx : std::min(px, qx);
    if (!how.race || px == 0 || qx == 0) continue;
    double rivals = 0;
    for (Token y = 0; y < q.vocab; ++y) rivals += std::max(p[std::size_t(y)] / px, q(y) / qx);
    sum += 1 / rivals;
  }
  return sum;
}

// The children of a node, without absent ones and those aside.
std::vector<int> children(const DraftTree& tree, int node) {
  std::vector<int> found;
  for (int n = node + 1; n < tree.nodes; ++n)
    if (*tree.parents.row<std::int32_t>(n) == node && *tree.tokens.row<Token>(n) >= 0 && !tree.aside(n))
      found.push_back(n);
  return found;
}

bool certain(const DraftTree& tree, int n) { return Drawn(*tree.q.drawn.row<std::uint8_t>(n)) == Drawn::certain; }
Token token_of(const DraftTree& tree, int n) { return *tree.tokens.row<Token>(n); }
std::vector<double> draft_after(const DraftTree& tree, int node) {
  const Distribution d = tree.q.distributions[std::size_t(node)][0];
  std::vector<double> q;
  for (Token x = 0; x < d.vocab; ++x) q.push_back(d(x));
  return q;
}

// (r - q)+ over its sum; r unchanged if nothing is left.
std::vector<double> residual(const std::vector<double>& r, const std::vector<double>& q) {
  std::vector<double> rest;
  double mass = 0;
  for (std::size_t x = 0; x < r.size(); ++x) rest.push_back(std::max(0.0, r[x] - q[x])), mass += rest.back();
  for (double& v : rest) v /= mass;
  return mass > 0 ? rest : r;
}

// Recursive rejection of siblings with these tokens: each against what its predecessors left of p.
double recursive(const DraftTree& tree, const std::vector<int>& below, const std::vector<double>& p,
                 const std::vector<double>& q) {
  std::vector<double> r = p, rest = q;
  double none = 1;  // the probability that none was accepted so far
  for (const int n : below) {
    const std::size_t x = std::size_t(token_of(tree, n));
    const Drawn drawn = Drawn(*tree.q.drawn.row<std::uint8_t>(n));
    std::vector<double> from = drawn == Drawn::without_replacement ? rest : q;
    if (drawn == Drawn::certain) from.assign(r.size(), 0), from[x] = 1;
    none *= 1 - std::min(1.0, r[x] / from[x]);
    r = residual(r, from);
    if (drawn != Drawn::without_replacement) continue;
    rest[x] = 0;
    double mass = 0;
    for (const double v : rest) mass += v;
    for (double& v : rest) v = mass > 0 ? v / mass : 0;
  }
  return 1 - none;
}

// K-SEQ of k i.i.d. draws from q, whatever their tokens.
double k_seq(const std::vector<double>& p, const std::vector<double>& q, int k) {
  const auto accepted = [&](double rho) {
    double beta = 0;
    for (std::size_t x = 0; x < p.size(); ++x) beta += std::min(q[x], p[x] / rho);
    return std::pair{beta, 1 - std::pow(1 - beta, k)};
  };
  double low = 1, high = k;
  for (int i = 0; i < 60; ++i) {
    const double middle = (low + high) / 2;
    const auto [beta, any] = accepted(middle);
    (any <= middle * beta ? high : low) = middle;
  }
  return accepted(high).second;
}

// K-SEQ of a family with guesses: these are tried first, the draws against what they left of p.
double k_seq(const DraftTree& tree, const std::vector<int>& below, const std::vector<double>& p,
             const std::vector<double>& q) {
  std::vector<double> r = p;
  double none = 1;
  int drawn = 0;
  for (const int n : below) {
    drawn += !certain(tree, n);
    if (!certain(tree, n)) continue;
    std::vector<double> guess(r.size(), 0);
    guess[std::size_t(token_of(tree, n))] = 1;
    none *= 1 - r[std::size_t(token_of(tree, n))];
    r = residual(r, guess);
  }
  return 1 - none * (1 - k_seq(r, q, drawn));
}

// The probability that one of the children of `node` is accepted, by the verifier's formula: of one drawn child over
// its draws, of siblings given their tokens, of K-SEQ's over their draws. Empty if there is no formula.
std::optional<double> expected(const DraftTree& tree, int node, const std::vector<int>& below,
                               const std::vector<double>& p, const Soundness& how) {
  const auto guess = [&](int n) { return certain(tree, n); };
  if (below.size() == 1 && !guess(below[0])) return agreement(p, tree.q.distributions[std::size_t(node)][0], how);
  if (how.acceptance == Acceptance::product || std::ranges::all_of(below, guess)) {
    std::set<Token> tokens;
    for (const int n : below) tokens.insert(token_of(tree, n));
    double sum = 0;
    for (const Token x : tokens) sum += p[std::size_t(x)];
    return std::min(sum, 1.0);
  }
  if (how.race) return std::nullopt;
  if (how.acceptance == Acceptance::k_seq) return k_seq(tree, below, p, draft_after(tree, node));
  if (how.acceptance == Acceptance::overlap) return recursive(tree, below, p, draft_after(tree, node));
  return std::nullopt;
}

struct Tally {
  double expected = 0, variance = 0;
  long tested = 0, accepted = 0;
  void add(double probability, bool is_accepted) {
    expected += probability, variance += probability * (1 - probability), accepted += is_accepted, ++tested;
  }
};

// Adds every level of a drafted chain, judged by the joint weight of its tokens. False if it is no chain.
bool tally_joint(const Drafted& d, const SequenceReport& r, const TableModel& target, const Sampling& sampling,
                 std::map<int, Tally>& tallies) {
  Tokens context = d.context;
  double weight = 1;
  for (int level = 1, node = 0;; ++level) {
    const std::vector<int> below = children(d.tree, node);
    if (below.empty()) return true;
    if (below.size() > 1) return false;
    const Token x = token_of(d.tree, below[0]);
    const double p = target_distribution(target, context, d.prompt, sampling)[std::size_t(x)];
    weight = std::min(1.0, weight * p / (certain(d.tree, below[0]) ? 1 : draft_after(d.tree, node)[std::size_t(x)]));
    tallies[level].add(weight, level <= r.accepted);
    context.push_back(x);
    node = below[0];
  }
}

// Adds every tested level: down the accepted path, up to the first rejection. False if there is no formula.
bool tally(const Drafted& d, const SequenceReport& r, const TableModel& target, const Sampling& sampling,
           const Soundness& how, std::map<int, Tally>& tallies) {
  if (how.acceptance == Acceptance::joint) return tally_joint(d, r, target, sampling, tallies);
  Tokens context = d.context;
  for (int level = 1, node = 0;; ++level) {
    const std::vector<int> below = children(d.tree, node);
    // Of two siblings with one token the report may mean the one that has no children.
    if (below.empty() || level > r.tested()) return true;
    const std::optional<double> e =
        expected(d.tree, node, below, target_distribution(target, context, d.prompt, sampling), how);
    if (!e) return false;
    tallies[level].add(*e, level <= r.accepted);
    if (level > r.accepted) return true;
    context.push_back(r.emitted.at(std::size_t(level) - 1));
    const auto holds = [&](int n) { return token_of(d.tree, n) == context.back(); };
    const auto accepted = std::ranges::find_if(below, holds);
    if (accepted == below.end())
      return true;  // the verifier emitted another token than the node's: other laws detect that
    node = *accepted;
  }
}

}  // namespace

Finding acceptance(const Subject& subject, const Scenario& scenario, Backend& backend,
                   const TableModel::Options& options, std::span<const TestRequest> requests) {
  Finding f{.what = subject.text()};
  const Models models = table_models(options);
  const Soundness how = soundness_of(subject.registries, subject.configs.verifier);
  std::map<SequenceId, Drafted> last;
  std::map<int, Tally> tallies;
  const auto record = [&](Host&, std::span<const DraftRequest> draft_requests, std::span<const DraftTree> trees) {
    for (std::size_t i = 0; i < trees.size(); ++i)
      last[draft_requests[i].sequence->id] = {draft_requests[i].sequence->tokens,
                                              draft_requests[i].sequence->prompt_length, trees[i]};
  };
  const auto judge = [&](Engine&, const StepReport& report, std::span<const Sequence* const>) {
    for (const SequenceReport& r : report.sequences)
      if (r.judged && f.holds &&
          !tally(last.at(r.id), r, static_cast<const TableModel&>(*models.target), scenario.sampling, how, tallies))
        f.fail("there is no formula for the acceptance of the children that the drafter proposed");
  };
  run_scenario(watched(subject, record), scenario, backend, models, requests, judge);
  for (const auto& [position, t] : tallies) {
    const double z = t.variance > 1e-9 ? (double(t.accepted) - t.expected) / std::sqrt(t.variance)
                     : std::abs(double(t.accepted) - t.expected) < 1e-6 ? 0
                                                                        : 1e9;
    f.what += "; position " + std::to_string(position) + ": " + std::to_string(t.accepted) + " of " +
              std::to_string(t.tested) + ", expected " + std::to_string(t.expected) + ", z " + std::to_string(z);
    f.measure = std::max(f.measure, std::abs(z));
    f.cases += t.tested, f.accepted += t.accepted, f.rejected += t.tested - t.accepted;
    constexpr double kMost = 5;
    if (std::abs(z) > kMost)
      f.fail("at level " + std::to_string(position) + " of the drafts " + std::to_string(t.accepted) + " of " +
             std::to_string(t.tested) + " were accepted, where p, q and the verifier's formula imply " +
             text_of(t.expected) + " (a rate of " + text_of(double(t.accepted) / double(t.tested)) + " instead of " +
             text_of(t.expected / double(t.tested)) + ", z = " + text_of(z) + ")");
  }
  return f;
}

}  // namespace foretoken::conformance
