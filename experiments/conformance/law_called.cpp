// causal, in whole runs: draws are recorded, and compared with the nodes that hold their tokens.
#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <set>

#include "experiments/conformance/whole_runs.h"

namespace foretoken::conformance {
namespace {

// Philox, which records the draws.
class Recorder : public Chance {
 public:
  struct Draw {
    Token token;
    Draws draws;
    std::vector<double> from;
    bool taken = false;  // by a node
  };

  bool accept(double probability, const Draws& draws, DrawName name) override {
    return draws.uniform(name) < probability;
  }
  Token draw(int vocab, const std::function<double(Token)>& law, const Draws& draws, DrawName name) override {
    const Philox counter = draws.counter(name);
    if (!names_.insert({draws.seed, std::to_array(counter.word)}).second && reused.empty())
      reused = "node " + std::to_string(name.node) + ", index " + std::to_string(name.index);
    return keep(vocab, law, draws, invert_cdf(scalar_tiles(law), vocab, draws.uniform(name)));
  }
  Token race(int vocab, const std::function<double(Token)>& law, const Draws& draws, std::uint32_t position) override {
    return keep(vocab, law, draws, win_race(scalar_tiles(law), vocab, draws, position));
  }
  void begin() { names_.clear(), drawn.clear(), reused.clear(); }

  std::vector<Draw> drawn;
  std::string reused;  // the first name that two draws had

 private:
  Token keep(int vocab, const std::function<double(Token)>& law, const Draws& draws, Token token) {
    drawn.push_back({token, draws, {}});
    for (Token x = 0; x < vocab; ++x) drawn.back().from.push_back(law(x));
    return token;
  }

  std::set<std::pair<std::uint64_t, std::array<std::uint32_t, 4>>> names_;
};

Drawn drawn_of(const DraftTree& tree, int n) { return Drawn(*tree.q.drawn.row<std::uint8_t>(n)); }
Token token_at(const DraftTree& tree, int n) { return *tree.tokens.row<Token>(n); }
int parent_of(const DraftTree& tree, int n) { return *tree.parents.row<std::int32_t>(n); }

bool equal(const std::vector<double>& a, const std::vector<double>& b) {
  return std::ranges::equal(a, b, [](double x, double y) { return std::abs(x - y) <= 1e-6; });
}

// The trees of one call against its draws.
class Called {
 public:
  Called(Recorder& recorder, Finding& f) : recorder_(recorder), f_(f) {}

  void judge(const DraftRequest& r, const DraftTree& tree) {
    const std::string who = "sequence " + std::to_string(r.sequence->id) + " at length " +
                            std::to_string(r.sequence->length()) + ", tree of " + std::to_string(tree.nodes) +
                            " nodes: ";
    f_.cases += tree.nodes - 1;
    if (!recorder_.reused.empty())
      f_.fail(who + "two draws of one call have the name " + recorder_.reused +
              ", and so the same random number; name each by the node that it draws");
    for (int n = 1; n < tree.nodes && f_.holds; ++n)
      if (tree.random(n) && token_at(tree, n) >= 0 && !drew(tree, n, r))
        f_.fail(who + "node " + std::to_string(n) + " at level " + std::to_string(level_of(tree, n)) + ", called '" +
                foretoken::name_of(drawn_of(tree, n)) + "', holds the token " + std::to_string(token_at(tree, n)) +
                ", and no draw of this call, with the seed and the stream of DraftRequest::draws, gave it from the "
                "distribution that its kind and the proposal state");
  }

 private:
  static int level_of(const DraftTree& tree, int node) {
    int level = 0;
    for (; node > 0; node = parent_of(tree, node)) ++level;
    return level;
  }
  // Whether a draw that no other node took is this node's; it is then taken.
  bool drew(const DraftTree& tree, int node, const DraftRequest& r) {
    const std::vector<double> whole = stated(tree, node, false), rest = stated(tree, node, true);
    const bool repeatless = drawn_of(tree, node) == Drawn::without_replacement;
    for (Recorder::Draw& d : recorder_.drawn) {
      if (d.taken || d.token != token_at(tree, node)) continue;
      if (d.draws.seed != r.draws.seed || d.draws.stream != r.draws.stream) continue;
      // Siblings of one race have no repeats, whatever they are called.
      if (!(equal(d.from, repeatless ? rest : whole) || (r.race && equal(d.from, rest)))) continue;
      d.taken = !r.race;
      return true;
    }
    return false;
  }
  // The proposal's distribution at the parent; without the earlier drawn siblings, where they are not to come again.
  static std::vector<double> stated(const DraftTree& tree, int node, bool repeatless) {
    const int parent = parent_of(tree, node);
    std::vector<double> q;
    if (std::size_t(parent) >= tree.q.distributions.size() || !tree.q.distributions[std::size_t(parent)]) return q;
    const Distribution d = tree.q.distributions[std::size_t(parent)][0];
    for (Token x = 0; x < d.vocab; ++x) q.push_back(d(x));
    if (!repeatless) return q;
    for (int n = 1; n < node; ++n)
      if (parent_of(tree, n) == parent && drawn_of(tree, n) != Drawn::certain && token_at(tree, n) >= 0)
        q[std::size_t(token_at(tree, n))] = 0;
    const double mass = std::accumulate(q.begin(), q.end(), 0.0);
    for (double& x : q) x = mass > 0 ? x / mass : 0;
    return q;
  }

  Recorder& recorder_;
  Finding& f_;
};

// Every call of the drafter is recorded and judged.
class Recorded : public Drafter {
 public:
  Recorded(std::unique_ptr<Drafter> inner, HostBackend& backend, Finding& f)
      : inner_(std::move(inner)), backend_(backend), f_(f) {}
  std::vector<DraftTree> draft(std::span<const DraftRequest> requests) override {
    recorder_.begin();
    backend_.set_chance(&recorder_);
    std::vector<DraftTree> trees;
    try {
      trees = inner_->draft(requests);
    } catch (...) {
      backend_.set_chance(nullptr);
      throw;
    }
    backend_.set_chance(nullptr);
    Called called(recorder_, f_);
    for (std::size_t i = 0; i < trees.size() && f_.holds; ++i) called.judge(requests[i], trees[i]);
    return trees;
  }
  void observe(std::span<const Outcome> outcomes) override { inner_->observe(outcomes); }
  void observe_step(const StepReport& report) override { inner_->observe_step(report); }
  void forget(const Sequence& sequence) override { inner_->forget(sequence); }

 private:
  std::unique_ptr<Drafter> inner_;
  HostBackend& backend_;
  Finding& f_;
  Recorder recorder_;
};

// In each round of a sequence another of these.
class AllBudgets : public LengthPolicy {
 public:
  std::vector<Budget> budgets(std::span<const PastOnly> past) override {
    constexpr Budget kSizes[] = {{kMaxNodes, kMaxPath},
                                 {9, 4},
                                 {2, 1},
                                 {33, 32},
                                 {kMaxNodes, 8},
                                 {5, 1},
                                 {65, 64},
                                 {40, 5},
                                 {17, 16},
                                 {3, 2},
                                 {130, 20},
                                 {1, 0}};
    std::vector<Budget> all;
    for (const PastOnly& p : past) all.push_back(kSizes[(std::size_t(p.rounds) + p.id) % std::size(kSizes)]);
    return all;
  }
};

}  // namespace

Subject under_all_budgets(const Candidate& c) {
  Subject s = c.subject;
  if (c.own_policy) return s;
  s.registries.policies.replace(
      "budgets in turn",
      {"",
       "",
       {},
       [](const nlohmann::json&, Host&) { return std::make_unique<AllBudgets>(); },
       [](const nlohmann::json&, const ModelInfo&) { return Budget{.nodes = kMaxNodes, .depth = kMaxPath}; }});
  s.configs.policy = {{"name", "budgets in turn"}};
  return s;
}

Finding drawn_as_called(const Subject& subject, const Scenario& scenario, HostBackend& backend, const Models& models,
                        std::span<const TestRequest> requests) {
  Finding f{.what = subject.text()};
  const Subject recorded = around(subject, [&](std::unique_ptr<Drafter> made, Host&) {
    return std::make_unique<Recorded>(std::move(made), backend, f);
  });
  const RunOutcome outcome = run_scenario(recorded, scenario, backend, models, requests);
  f.accepted = outcome.accepted, f.rejected = outcome.rejections;
  return f;
}

}  // namespace foretoken::conformance
