#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "experiments/conformance/laws.h"
#include "experiments/conformance/table_model.h"
#include "kernels/reference/reference_backend.h"

namespace foretoken::conformance {
namespace {

void expect_same(const std::vector<Tokens>& texts, const std::vector<Tokens>& others, const std::string& where,
                 Finding& f) {
  for (std::size_t i = 0; i < texts.size(); ++i, ++f.cases)
    if (texts[i] != others[i]) {
      const auto at = std::ranges::mismatch(texts[i], others[i]).in1 - texts[i].begin();
      f.fail(where + ": text " + std::to_string(i) + " is [" + text_of(others[i]) + "] instead of [" +
             text_of(texts[i]) + "], from token " + std::to_string(at) + " on");
    }
}

// All that a verifier reads of a tree, as bytes.
std::string signature(const DraftTree& t) {
  const auto bytes = [](const void* p, std::size_t n) { return std::string(static_cast<const char*>(p), n); };
  const std::size_t n = std::size_t(t.nodes);
  std::string s =
      bytes(t.parents.raw(), 4 * n) + bytes(t.tokens.raw(), 4 * n) + bytes(t.q.drawn.row<std::uint8_t>(0) + 1, n - 1);
  for (std::size_t i = 0; i < t.q.distributions.size() && i < n; ++i)
    if (t.q.distributions[i])
      s += bytes(t.q.distributions[i].logits.row<float>(0), 4 * std::size_t(t.q.distributions[i].vocab())) +
           bytes(t.q.distributions[i].rows.row<std::uint8_t>(0), sizeof(DistributionRow));
  return s;
}

// The tree proposed in every round, by stream and root.
using Rounds = std::map<std::pair<std::uint64_t, int>, std::string>;

RunOutcome recorded(const Run& run, Rounds& rounds) {
  const auto record = [&](Host&, std::span<const DraftRequest> drafted, std::span<const DraftTree> trees) {
    for (std::size_t i = 0; i < trees.size(); ++i)
      rounds[{drafted[i].sequence->stream, drafted[i].sequence->length()}] = signature(trees[i]);
  };
  return run_scenario(run.with(watched(run.subject, record)));
}

// Compares round by round, as long as the trees are equal: equal trees give equal tokens, so the next round begins at
// the same root.
void compare_rounds(const TestRequest& request, const Tokens& text, const Tokens& other, const Rounds& alone,
                    const Rounds& batched, const std::string& where, Finding& f) {
  const int first = int(request.prompt.size());
  for (auto at = alone.find({request.stream, first}); at != alone.end() && at->first.first == request.stream; ++at) {
    const auto same = batched.find(at->first);
    const int begin = at->first.second - first;
    if (same == batched.end()) return f.fail(where + ": no round began at token " + std::to_string(begin));
    if (same->second != at->second) return;
    const auto next = std::next(at);
    const int end =
        next != alone.end() && next->first.first == request.stream ? next->first.second - first : int(text.size());
    ++f.cases;
    if (int(other.size()) < end || !std::equal(text.begin() + begin, text.begin() + end, other.begin() + begin))
      return f.fail(where + ": equal trees, but [" + text_of(other) + "] instead of [" + text_of(text) + "]");
  }
}

}  // namespace

Finding same_text(const Run& run) {
  Finding f{.what = run.subject.text()};
  const RunOutcome outcome = run_scenario(run);
  f.add(outcome);
  expect_same(run_scenario(run.with(plain(run.subject))).outputs, outcome.outputs, "against plain decoding", f);
  return f;
}

Finding batch(const Run& run, const BatchCase& c) {
  const auto& [subject, alone, backend, models, requests] = run;
  Finding f{.what = subject.text()};
  std::vector<Tokens> texts;
  Rounds rounds;
  for (const TestRequest& request : requests)
    texts.push_back(recorded({subject, alone, backend, models, {&request, 1}}, rounds).outputs.front());
  for (std::size_t k = 0; k < c.batches.size(); ++k) {
    const std::string where = "batch " + std::to_string(k);
    std::vector<std::size_t> order(requests.size());  // another order of arrival for every batch
    std::iota(order.begin(), order.end(), 0);
    std::ranges::rotate(order, order.begin() + std::ptrdiff_t(k % requests.size()));
    if (k % 2) std::ranges::reverse(order);
    std::vector<TestRequest> arriving;
    for (const std::size_t i : order) arriving.push_back(requests[i]);
    Rounds batched;
    const RunOutcome outcome = recorded({subject, c.batches[k], backend, models, arriving}, batched);
    f.add(outcome);
    f.seen["preemptions"] += outcome.preempted, f.seen["prefix rows"] += long(outcome.prefix_rows);
    for (std::size_t i = 0; i < order.size(); ++i) {
      if (c.whole)
        expect_same({texts[order[i]]}, {outcome.outputs[i]}, where, f);
      else
        compare_rounds(arriving[i], texts[order[i]], outcome.outputs[i], rounds, batched, where, f);
    }
    if (outcome.pages_left != 0)
      f.fail(where + ": " + std::to_string(outcome.pages_left) + " pages are still held at the end");
  }
  return f;
}

Finding no_budget_is_plain(const Run& run) {
  Finding f{.what = run.subject.text()};
  Subject undrafted = run.subject;
  undrafted.configs.policy = {{"name", "fixed"}, {"length", 0}};
  const RunOutcome outcome = run_scenario(run.with(undrafted));
  if (outcome.drafted > 0) f.fail(std::to_string(outcome.drafted) + " nodes were drafted under a budget of 0");
  expect_same(run_scenario(run.with(plain(run.subject))).outputs, outcome.outputs, "with no budget", f);
  return f;
}

namespace {

// The tokens of the sequence and of the path to a node; empty if a node of it is absent.
Tokens context_of(const DraftRequest& r, const DraftTree& tree, int node) {
  Tokens path;
  for (int n = node; n > 0; n = parent_of(tree, n)) path.push_back(token_of(tree, n));
  if (std::ranges::find(path, -1) != path.end()) return {};
  Tokens context = r.sequence->tokens;
  context.insert(context.end(), path.rbegin(), path.rend());
  return context;
}

// The children of every node, on branches that no verifier reached as well, were drawn from the target's distribution.
void expect_the_targets(const TableModel& target, const DraftRequest& r, const DraftTree& tree, Finding& f) {
  for (int n = 1; n < tree.nodes && f.holds; ++n) {
    if (!tree.random(n) || drawn_of(tree, n) == Drawn::marginals) continue;
    const Tokens context = context_of(r, tree, parent_of(tree, n));
    if (context.empty()) continue;
    const std::vector<double> q = proposed(tree, parent_of(tree, n));
    const std::vector<double> p = target_distribution(target, context, r.sequence->prompt_length, r.sequence->sampling);
    ++f.seen["distributions"];
    for (std::size_t x = 0; x < q.size(); ++x)
      if (!(std::abs(q[x] - p[x]) <= 1e-6))
        return f.fail("node " + std::to_string(n) + " was drawn from another distribution than the target's after [" +
                      text_of(context) + "]: token " + std::to_string(x) + " has " + std::to_string(q[x]) +
                      " instead of " + std::to_string(p[x]));
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

  // A guess may be any token. Above temperature 0 it is refused by chance, and what it leaves of p is no longer the
  // draft's distribution: nothing is expected of its siblings. Draws below it count: a rule of whole paths may refuse
  // all that is below the guess, and then ends above it. At temperature 0 every draw is the target's own token,
  // whatever stands beside it.
  void refused(const Drafted& d, std::vector<int> family) {
    if (soundness_.first_children) family.resize(1);
    const auto guessed = [&](int n) { return drawn_of(d.tree, n) == Drawn::certain; };
    const bool draws = !std::ranges::all_of(family, guessed);
    if (d.warm && std::ranges::any_of(family, guessed)) return;
    // Marginals are drawn whatever the tokens before them are: the target, which knows them, may have another
    // distribution.
    if (std::ranges::any_of(family, [&](int n) { return drawn_of(d.tree, n) == Drawn::marginals; })) return;
    ++(draws ? refused_draws_ : refused_guesses_);
  }

  const Soundness soundness_;
  std::map<SequenceId, Drafted> last_;
  bool any_draw_ = false;
  long refused_draws_ = 0, refused_guesses_ = 0;
};

}  // namespace

Finding twin_accepts_all(const Run& run) {
  Finding f{.what = run.subject.text()};
  const auto* const table = dynamic_cast<const TableModel*>(run.models.target.get());
  Levels levels(soundness_of(run.subject.registries, run.subject.configs.verifier));
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
  const RunOutcome outcome = run_scenario(run.with(watched(run.subject, look)), judge);
  f.add(outcome);
  f.cases = outcome.tested;  // of siblings one is accepted, so levels are counted and not nodes
  if (levels.wrongly_refused() > 0)
    f.fail("of " + std::to_string(outcome.tested) + " levels drafted from the target's own distribution " +
           std::to_string(levels.wrongly_refused()) + " were refused");
  return f;
}

namespace {

// Requests of the other engine, which takes a step after each step of the run.
class Other {
 public:
  Other(const Run& run, std::span<const TestRequest> requests)
      : engine_(backend_, run.models.target, run.subject.registries, run.subject.configs, run.scenario.engine,
                run.models.load) {
    for (const TestRequest& r : requests) {
      Limits limits;
      limits.max_new_tokens = r.max_new_tokens;
      engine_.submit({r.prompt, limits, run.scenario.sampling, r.stream, {}});
    }
  }
  void step() {
    if (!engine_.idle()) (void)without_failures(engine_.step());
  }

 private:
  ReferenceBackend backend_;
  Engine engine_;
};

}  // namespace

Finding beside_another_engine(const Run& run, std::span<const TestRequest> others) {
  const Subject& subject = run.subject;
  Finding f{.what = subject.text()};
  const auto trees = [&](Other* other) {
    std::vector<std::string> all;
    const auto see = [&](Host&, std::span<const DraftRequest> asked, std::span<const DraftTree> given) {
      for (std::size_t i = 0; i < given.size(); ++i)
        all.push_back(text_of(*asked[i].sequence) + " got the draft (parent>token of each node) " + text_of(given[i]));
    };
    const auto step = [&](Engine&, const StepReport&, std::span<const Sequence* const>) {
      if (other) other->step();
    };
    const RunOutcome outcome = run_scenario(run.with(watched(subject, see)), step);
    f.accepted = outcome.accepted, f.rejected = outcome.rejections, f.cases += long(all.size());
    return all;
  };
  const bool learns = needs_of(subject.registries, subject.configs.drafter).learns ||
                      policy_of(subject.registries, subject.configs.policy).learns;
  const std::vector<std::string> alone = trees(nullptr);
  if (learns && trees(nullptr) != alone) return f;  // it measures times
  Other other(run, others);
  const std::vector<std::string> beside = trees(&other);
  for (std::size_t i = 0; i < std::max(alone.size(), beside.size()) && f.holds; ++i) {
    const std::string a = i < alone.size() ? alone[i] : "there was no such draft",
                      b = i < beside.size() ? beside[i] : "there was no such draft";
    if (a != b)
      f.fail("beside another engine of the process " + b + "; alone: " + a +
             "; keep what a component knows in its object, not in static variables");
  }
  return f;
}

}  // namespace foretoken::conformance
