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

// The children of a node, without absent ones.
std::vector<int> children(const DraftTree& tree, int node) {
  std::vector<int> found;
  for (int n = node + 1; n < tree.nodes; ++n)
    if (*tree.parents.row<std::int32_t>(n) == node && *tree.tokens.row<Token>(n) >= 0) found.push_back(n);
  return found;
}

// The probability that one of the children of `node` is accepted: for one drawn child, by the verifier's formula; for
// certain children, the sum of p over their tokens. Empty if there is no formula.
std::optional<double> expected(const DraftTree& tree, int node, const std::vector<int>& below,
                               const std::vector<double>& p, const Soundness& how) {
  const auto certain = [&](int n) { return Drawn(*tree.q.drawn.row<std::uint8_t>(n)) == Drawn::certain; };
  if (below.size() == 1 && !certain(below[0])) return agreement(p, tree.q.distributions[std::size_t(node)][0], how);
  if (!std::ranges::all_of(below, certain)) return std::nullopt;
  std::set<Token> guesses;
  for (const int n : below) guesses.insert(*tree.tokens.row<Token>(n));
  double sum = 0;
  for (const Token x : guesses) sum += p[std::size_t(x)];
  return std::min(sum, 1.0);
}

struct Tally {
  double expected = 0, variance = 0;
  long tested = 0, accepted = 0;
};

// Adds every tested level: down the accepted path, up to the first rejection. False if there is no formula.
bool tally(const Drafted& d, const SequenceReport& r, const TableModel& target, const Sampling& sampling,
           const Soundness& how, std::map<int, Tally>& tallies) {
  Tokens context = d.context;
  for (int level = 1, node = 0;; ++level) {
    const std::vector<int> below = children(d.tree, node);
    if (below.empty()) return true;
    const std::optional<double> e =
        expected(d.tree, node, below, target_distribution(target, context, d.prompt, sampling), how);
    if (!e) return false;
    Tally& t = tallies[level];
    t.expected += *e, t.variance += *e * (1 - *e), t.accepted += level <= r.accepted, ++t.tested;
    if (level > r.accepted) return true;
    context.push_back(r.emitted.at(std::size_t(level) - 1));
    const auto holds = [&](int n) { return *d.tree.tokens.row<Token>(n) == context.back(); };
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
        f.fail("there is no formula here for the acceptance of several drawn children");
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
  }
  if (f.measure > 5) f.fail("the measured acceptance is not the expected one");
  return f;
}

}  // namespace foretoken::conformance
