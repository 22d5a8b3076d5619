#include <cmath>

#include "experiments/conformance/laws.h"
#include "experiments/conformance/target_distribution.h"

namespace foretoken::conformance {
namespace {

Token token_of(const DraftTree& tree, int n) { return *tree.tokens.row<Token>(n); }

// The tokens of the sequence and of the path to a node; empty if a node of it is absent.
Tokens context_of(const DraftRequest& r, const DraftTree& tree, int node) {
  Tokens path;
  for (int n = node; n > 0; n = *tree.parents.row<std::int32_t>(n)) path.push_back(token_of(tree, n));
  if (std::ranges::find(path, -1) != path.end()) return {};
  Tokens context = r.sequence->tokens;
  context.insert(context.end(), path.rbegin(), path.rend());
  return context;
}

// The children of every node, on branches that no verifier reached as well, were drawn from the target's distribution.
void expect_the_targets(const TableModel& target, const DraftRequest& r, const DraftTree& tree, Finding& f) {
  for (int n = 1; n < tree.nodes && f.holds; ++n) {
    const Drawn drawn = Drawn(*tree.q.drawn.row<std::uint8_t>(n));
    const int parent = *tree.parents.row<std::int32_t>(n);
    if (drawn == Drawn::certain || drawn == Drawn::marginals) continue;
    const Tokens context = context_of(r, tree, parent);
    if (context.empty()) continue;
    const Distribution q = tree.q.distributions[std::size_t(parent)][0];
    const std::vector<double> p = target_distribution(target, context, r.sequence->prompt_length, r.sequence->sampling);
    ++f.seen["distributions"];
    for (Token x = 0; x < q.vocab; ++x)
      if (!(std::abs(q(x) - p[std::size_t(x)]) <= 1e-6))
        return f.fail("node " + std::to_string(n) + " was drawn from another distribution than the target's after [" +
                      text_of(context) + "]: token " + std::to_string(x) + " has " + std::to_string(q(x)) +
                      " instead of " + std::to_string(p[std::size_t(x)]));
  }
}

}  // namespace

Finding twin_accepts_all(const Subject& subject, const Scenario& scenario, Backend& backend, const Models& models,
                         std::span<const TestRequest> requests) {
  Finding f{.what = subject.text()};
  const auto* const table = dynamic_cast<const TableModel*>(models.target.get());
  bool guesses = false, draws = false;
  const auto look = [&](Host&, std::span<const DraftRequest> drafted, std::span<const DraftTree> trees) {
    for (std::size_t i = 0; i < trees.size(); ++i) {
      if (table) expect_the_targets(*table, drafted[i], trees[i], f);
      for (int n = 1; n < trees[i].nodes; ++n)
        (Drawn(*trees[i].q.drawn.row<std::uint8_t>(n)) == Drawn::certain ? guesses : draws) = true;
    }
  };
  const RunOutcome outcome = run_scenario(watched(subject, look), scenario, backend, models, requests);
  f.accepted = outcome.accepted, f.rejected = outcome.rejections;
  f.cases = outcome.tested;  // of siblings one is accepted, so levels are counted and not nodes
  // A guess among draws may be any token, and what it leaves of p is no longer the draft's distribution.
  if (!(guesses && draws) && (outcome.accepted != outcome.tested || outcome.rejections > 0))
    f.fail("of " + std::to_string(outcome.tested) + " levels drafted from the target's own distribution " +
           std::to_string(outcome.accepted) + " were accepted");
  return f;
}

}  // namespace foretoken::conformance
