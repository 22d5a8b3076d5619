// causal: every node is drawn as it is called. Of small trees, every draw is forced to every token; of whole runs,
// draws are recorded and compared with the nodes that hold their tokens.
#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <set>

#include "experiments/conformance/enumerator.h"
#include "experiments/conformance/law_table.h"

namespace foretoken::conformance {
namespace {

bool equal(const std::vector<double>& a, const std::vector<double>& b) {
  return std::ranges::equal(a, b, [](double x, double y) { return std::abs(x - y) <= 1e-6; });
}

std::vector<double> all_of(int vocab, Probability p) {
  std::vector<double> all;
  for (Token x = 0; x < vocab; ++x) all.push_back(p(x));
  return all;
}

// A drafter's trees, drawn with this in the place of Philox.
std::vector<DraftTree> draft_with(Chance& chance, Backend& backend, Drafter& drafter,
                                  std::span<const DraftRequest> requests) {
  const Asking asking(dynamic_cast<HostBackend&>(backend), chance);
  return drafter.draft(requests);
}

using Which = std::array<std::uint32_t, 3>;  // of a draw's name: node and index, and the scope of the draws

// Records the names of the drafting draws, and may force the token of one.
class Forcing : public Generator {
 public:
  Forcing() = default;
  Forcing(Which which, Token token) : forced_(true), which_(which), token_(token) {}
  Token draw(int vocab, Probability p, const Draws& draws, DrawName name) override {
    const Which which{name.node, name.index, draws.scope};
    if (name.role == Role::draft && !met.insert(which).second && !reused) reused = which;
    if (!forced_ || name.role != Role::draft || which != which_) return Generator::draw(vocab, p, draws, name);
    possible = possible && p(token_) > 0;
    drawn_from = all_of(vocab, p);
    return token_;
  }

  std::set<Which> met;
  std::optional<Which> reused{};   // the name that two draws had
  bool possible = true;            // the forced token might have been drawn
  std::vector<double> drawn_from;  // the distribution of the forced draw

 private:
  bool forced_ = false;
  Which which_{};
  Token token_ = -1;
};

// One round of one sequence, proposed repeatedly by fresh drafters.
class ForcedRound {
 public:
  ForcedRound(const Run& run, const DraftRequest& request, const Needs& needs)
      : run_(run), request_(request), states_(run.backend, run.models, needs) {
    request_.rows = 1 << 20;
    request_.race = false;
    request_.hidden = states_.of(*request_.sequence);
  }

  // Forces every draw to every token of positive probability.
  void force_all(Finding& f) {
    Forcing free;
    const DraftTree tree = propose(free);
    std::set<int> moved;
    ++f.cases;
    for (const Which& which : free.met) force(which, moved, f);
    if (free.reused && f.holds)
      f.fail(where() + "two draws of one round have the name " + std::to_string((*free.reused)[0]) + ", index " +
             std::to_string((*free.reused)[1]) +
             ", and so the same random number; name each by the node that it draws");
    if (f.holds) expect_drawn(tree, moved, f);
  }

 private:
  DraftTree propose(Forcing& chance) {
    BareHost bare(run_.backend, run_.models, run_.subject.registries,
                  page_bytes_of(run_.subject, run_.models, run_.scenario.engine.page_rows), 256, states_.cache());
    const auto drafter = run_.subject.registries.drafters.make(run_.subject.configs.drafter, bare.host);
    DraftTree tree = draft_with(chance, run_.backend, *drafter, {&request_, 1}).front();
    drafter->forget(*request_.sequence);
    return tree;
  }

  // `moved` gets the nodes that hold what was forced.
  void force(Which which, std::set<int>& moved, Finding& f) {
    std::optional<std::pair<Token, DraftTree>> first;
    for (Token x = 0; x < run_.models.target->info().vocab; ++x) {
      Forcing chance(which, x);
      const DraftTree tree = propose(chance);
      if (!chance.possible) continue;
      ++f.cases;
      if (!first) {
        first = {x, tree};
        continue;
      }
      const auto& [other, before] = *first;
      const int node = first_difference(before, tree);
      if (!differ_by_one_token(before, other, tree, x, node))
        return f.fail(where() + "whether the node drawn under the name " + std::to_string(which[0]) +
                      " exists, or a node before it, depends on its own token: " + text_of(tree) + " with token " +
                      std::to_string(x) + ", " + text_of(before) + " with token " + std::to_string(other));
      if (node == tree.nodes) continue;
      moved.insert(node);
      if (const std::string why = misnamed(tree, node, chance.drawn_from); !why.empty())
        return f.fail(where() + "node " + std::to_string(node) + ", called '" + name_of(drawn_of(tree, node)) + "', " +
                      why);
    }
  }

  // Every node that is called drawn, and might have held another token, was moved by some draw.
  void expect_drawn(const DraftTree& tree, const std::set<int>& moved, Finding& f) const {
    for (int n = 1; n < tree.nodes; ++n) {
      if (!tree.random(n) || token_of(tree, n) < 0 || moved.contains(n)) continue;
      const std::vector<double> q = stated(tree, n, false);
      if (std::ranges::count_if(q, [](double x) { return x > 0; }) < 2) continue;
      return f.fail(where() + "node " + std::to_string(n) + ", called '" + name_of(drawn_of(tree, n)) +
                    "', holds the token of no draw; add it with DraftTree::guess, or draw it by Backend::draw");
    }
  }

  // Why a node that holds the token of a draw from this distribution is not what it is called; empty if it is.
  static std::string misnamed(const DraftTree& tree, int node, const std::vector<double>& from) {
    if (!tree.random(node))
      return "holds the token of a draw; call it as it was drawn (DraftTree::grow), and name that kind in "
             "Needs::proposes";
    const std::vector<double> q = stated(tree, node, false);
    for (std::size_t x = 0; x < q.size(); ++x)
      if (!(std::abs(q[x] - from[x]) <= 1e-6))
        return "was drawn with the probability " + std::to_string(from[x]) + " of the token " + std::to_string(x) +
               ", where its kind and the distribution at its parent say " + std::to_string(q[x]);
    return "";
  }

  // The number of nodes of the smaller tree, if it is the beginning of the other.
  static int first_difference(const DraftTree& a, const DraftTree& b) {
    int n = 1;
    while (n < std::min(a.nodes, b.nodes) && parent_of(a, n) == parent_of(b, n) && token_of(a, n) == token_of(b, n))
      ++n;
    return n;
  }
  // Whether two trees of a forced draw are equal up to the node that holds the two forced tokens, or everywhere.
  static bool differ_by_one_token(const DraftTree& a, Token in_a, const DraftTree& b, Token in_b, int node) {
    if (node == a.nodes && node == b.nodes) return true;
    return node < a.nodes && node < b.nodes && parent_of(a, node) == parent_of(b, node) && token_of(a, node) == in_a &&
           token_of(b, node) == in_b;
  }
  std::string where() const { return text_of(*request_.sequence) + ": "; }

  const Run& run_;
  DraftRequest request_;
  TargetStates states_;
};

// Records the draws.
class Recorder : public Generator {
 public:
  struct Draw {
    Token token;
    Draws draws;
    std::vector<double> from;
    bool taken = false;  // by a node
  };

  Token draw(int vocab, Probability p, const Draws& draws, DrawName name) override {
    const Philox counter = draws.counter(name);
    if (!names_.insert({draws.seed, std::to_array(counter.word)}).second && reused.empty())
      reused = "node " + std::to_string(name.node) + ", index " + std::to_string(name.index);
    drawn.push_back({Generator::draw(vocab, p, draws, name), draws, all_of(vocab, p)});
    return drawn.back().token;
  }
  Token race(int vocab, Probability p, const Draws& draws, std::uint32_t position) override {
    drawn.push_back({Generator::race(vocab, p, draws, position), draws, all_of(vocab, p)});
    return drawn.back().token;
  }

  std::vector<Draw> drawn;
  std::string reused;  // the first name that two draws had

 private:
  std::set<std::pair<std::uint64_t, std::array<std::uint32_t, 4>>> names_;
};

// Every call of the drafter is recorded, and its trees are judged against its draws.
class Recorded : public Around {
 public:
  Recorded(std::unique_ptr<Drafter> inner, Backend& backend, Finding& f)
      : Around(std::move(inner)), backend_(backend), f_(f) {}
  std::vector<DraftTree> draft(std::span<const DraftRequest> requests) override {
    Recorder recorder;
    std::vector<DraftTree> trees = draft_with(recorder, backend_, *inner_, requests);
    for (std::size_t i = 0; i < trees.size() && f_.holds; ++i) judge(recorder, requests[i], trees[i]);
    return trees;
  }

 private:
  void judge(Recorder& recorder, const DraftRequest& r, const DraftTree& tree) {
    const std::string who = text_of(*r.sequence) + ", tree of " + std::to_string(tree.nodes) + " nodes: ";
    f_.cases += tree.nodes - 1;
    if (!recorder.reused.empty())
      f_.fail(who + "two draws of one call have the name " + recorder.reused +
              ", and so the same random number; name each by the node that it draws");
    for (int n = 1; n < tree.nodes && f_.holds; ++n)
      if (tree.random(n) && token_of(tree, n) >= 0 && !drew(recorder, tree, n, r))
        f_.fail(who + "node " + std::to_string(n) + " at level " + std::to_string(level_of(tree, n)) + ", called '" +
                name_of(drawn_of(tree, n)) + "', holds the token " + std::to_string(token_of(tree, n)) +
                ", and no draw of this call, with the seed and the stream of DraftRequest::draws, gave it from the "
                "distribution that its kind and the proposal state");
  }
  static int level_of(const DraftTree& tree, int node) {
    return node == 0 ? 0 : 1 + level_of(tree, parent_of(tree, node));
  }
  // Whether a draw that no other node took is this node's; it is then taken.
  static bool drew(Recorder& recorder, const DraftTree& tree, int node, const DraftRequest& r) {
    const std::vector<double> called = stated(tree, node, false), raced = r.race ? stated(tree, node, true) : called;
    for (Recorder::Draw& d : recorder.drawn) {
      if (d.taken || d.token != token_of(tree, node)) continue;
      if (d.draws.seed != r.draws.seed || d.draws.stream != r.draws.stream) continue;
      // Siblings of one race have no repeats, whatever they are called.
      if (!equal(d.from, called) && !equal(d.from, raced)) continue;
      d.taken = !r.race;
      return true;
    }
    return false;
  }

  Backend& backend_;
  Finding& f_;
};

// In each round of a sequence another of these.
class AllBudgets : public LengthPolicy {
 public:
  std::vector<Budget> budgets(std::span<const PastOnly> past) override {
    constexpr int kSizes[][2] = {{kMaxNodes, kMaxPath},
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
    for (const PastOnly& p : past) {
      const auto& [nodes, depth] = kSizes[(std::size_t(p.rounds) + p.id) % std::size(kSizes)];
      all.push_back({nodes, depth});
    }
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

Finding drawn_as_called(const Run& run) {
  Finding f{.what = run.subject.text()};
  const Subject recorded = around(run.subject, [&](std::unique_ptr<Drafter> made, Host&) {
    return std::make_unique<Recorded>(std::move(made), run.backend, f);
  });
  f.add(run_scenario(run.with(recorded)));
  return f;
}

Finding causal(const Run& run) {
  Finding f{.what = run.subject.text()};
  const Needs needs = needs_of(run.subject.registries, run.subject.configs.drafter);
  const auto judge = [&](Host&, std::span<const DraftRequest> drafted, std::span<const DraftTree>) {
    for (const DraftRequest& request : drafted)
      if (request.budget.drafts() && f.holds) ForcedRound(run, request, needs).force_all(f);
  };
  f.add(run_scenario(run.with(watched(run.subject, judge))));
  return f;
}

}  // namespace foretoken::conformance
