#include <algorithm>
#include <cmath>
#include <map>

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
    if (!tree.random(n) || drawn == Drawn::marginals) continue;
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

// Which of the levels that were tested must have been accepted, and which of these were not.
class Levels {
 public:
  explicit Levels(const Soundness& soundness) : soundness_(soundness) {}

  void drafted(const DraftRequest& r, const DraftTree& tree) {
    last_[r.sequence->id] = {tree, r.sequence->sampling.temperature > 0};
    for (int n = 1; n < tree.nodes; ++n) any_draw_ = any_draw_ || tree.random(n);
  }

  void judged(const SequenceReport& r) {
    const Drafted& d = last_.at(r.id);
    for (int level = 0, node = 0; level < r.tested(); ++level) {
      const std::vector<int> family = children(d.tree, node);
      const int place = r.levels.at(std::size_t(level)).accepted;
      if (place >= 0)
        node = family.at(std::size_t(place));
      else
        refused(d, family);
    }
  }

  // Levels whose children were all refused, though one of them must have been accepted. Where a drafter draws at
  // temperature 0 too, its guesses come from elsewhere.
  long wrongly_refused() const { return refused_draws_ + (any_draw_ ? 0 : refused_guesses_); }

 private:
  struct Drafted {
    DraftTree tree;
    bool warm = false;  // the temperature is not 0
  };

  static bool guess(const DraftTree& tree, int n) {
    return Drawn(*tree.q.drawn.row<std::uint8_t>(n)) == Drawn::certain;
  }
  // Drawn whatever the tokens before it are: the target, which knows them, may have another distribution.
  static bool marginal(const DraftTree& tree, int n) {
    return Drawn(*tree.q.drawn.row<std::uint8_t>(n)) == Drawn::marginals;
  }
  // Without absent ones, and those aside.
  static std::vector<int> children(const DraftTree& tree, int node) {
    std::vector<int> found;
    for (int n = node + 1; n < tree.nodes; ++n)
      if (*tree.parents.row<std::int32_t>(n) == node && token_of(tree, n) >= 0 && !tree.aside(n)) found.push_back(n);
    return found;
  }

  // A guess may be any token. Above temperature 0 it is refused by chance, and what it leaves of p is no longer the
  // draft's distribution: nothing is expected of its siblings. Draws below it count: a rule of whole paths may refuse
  // all that is below the guess, and then ends above it. At temperature 0 every draw is the target's own token,
  // whatever stands beside it.
  void refused(const Drafted& d, std::vector<int> family) {
    if (soundness_.first_children) family.resize(1);
    const auto guessed = [&](int n) { return guess(d.tree, n); };
    const bool draws = !std::ranges::all_of(family, guessed);
    if (d.warm && std::ranges::any_of(family, guessed)) return;
    if (std::ranges::any_of(family, [&](int n) { return marginal(d.tree, n); })) return;
    ++(draws ? refused_draws_ : refused_guesses_);
  }

  const Soundness soundness_;
  std::map<SequenceId, Drafted> last_;
  bool any_draw_ = false;
  long refused_draws_ = 0, refused_guesses_ = 0;
};

}  // namespace

Finding twin_accepts_all(const Subject& subject, const Scenario& scenario, Backend& backend, const Models& models,
                         std::span<const TestRequest> requests) {
  Finding f{.what = subject.text()};
  const auto* const table = dynamic_cast<const TableModel*>(models.target.get());
  Levels levels(soundness_of(subject.registries, subject.configs.verifier));
  const auto look = [&](Host&, std::span<const DraftRequest> drafted, std::span<const DraftTree> trees) {
    for (std::size_t i = 0; i < trees.size(); ++i) {
      if (table) expect_the_targets(*table, drafted[i], trees[i], f);
      levels.drafted(drafted[i], trees[i]);
    }
  };
  const auto judge = [&](Engine&, const StepReport& report, std::span<const Sequence* const>) {
    for (const SequenceReport& r : report.sequences)
      if (r.judged) levels.judged(r);
  };
  const RunOutcome outcome = run_scenario(watched(subject, look), scenario, backend, models, requests, judge);
  f.accepted = outcome.accepted, f.rejected = outcome.rejections;
  f.cases = outcome.tested;  // of siblings one is accepted, so levels are counted and not nodes
  if (levels.wrongly_refused() > 0)
    f.fail("of " + std::to_string(outcome.tested) + " levels drafted from the target's own distribution " +
           std::to_string(levels.wrongly_refused()) + " were refused");
  return f;
}

}  // namespace foretoken::conformance
