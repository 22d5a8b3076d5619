#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <optional>
#include <set>

#include "experiments/conformance/laws.h"
#include "experiments/conformance/target_states.h"
#include "kernels/host_backend.h"

namespace foretoken::conformance {
namespace {

using Which = std::array<std::uint32_t, 3>;  // of a draw's name: node and index, and the scope of the draws

// Philox, except for one draw whose token is forced. Records the names of the drafting draws.
class Forcing : public Chance {
 public:
  Forcing() = default;
  Forcing(Which which, Token token) : forced_(true), which_(which), token_(token) {}
  bool accept(double probability, const Draws& draws, DrawName name) override {
    return draws.uniform(name) < probability;
  }
  Token draw(int vocab, const std::function<double(Token)>& law, const Draws& draws, DrawName name) override {
    const Which which{name.node, name.index, draws.scope};
    if (name.role == Role::draft && !met.insert(which).second && !reused) reused = which;
    if (!forced_ || name.role != Role::draft || which != which_)
      return invert_cdf(scalar_tiles(law), vocab, draws.uniform(name));
    possible = possible && law(token_) > 0;
    drawn_from.clear();
    for (Token x = 0; x < vocab; ++x) drawn_from.push_back(law(x));
    return token_;
  }
  Token race(int vocab, const std::function<double(Token)>& law, const Draws& draws, std::uint32_t position) override {
    return win_race(scalar_tiles(law), vocab, draws, position);
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
class Round {
 public:
  Round(const Subject& subject, const Scenario& scenario, HostBackend& backend, const Models& models,
        const DraftRequest& request, const Needs& needs)
      : subject_(subject),
        scenario_(scenario),
        backend_(backend),
        models_(models),
        request_(request),
        states_(backend, models, needs) {
    request_.rows = 1 << 20;
    request_.race = false;
    request_.hidden = states_.of(*request_.sequence);
  }

  DraftTree propose(Forcing& chance) {
    PagePool pool(backend_, page_bytes_of(subject_, models_, scenario_.engine.page_rows), 256);
    Host host(backend_, pool, models_.target->info(), models_.load, false,
              {models_.target, states_.cache(), &subject_.registries});
    const auto drafter = subject_.registries.drafters.make(subject_.configs.drafter, host);
    backend_.set_chance(&chance);
    DraftTree tree = drafter->draft({&request_, 1}).front();
    backend_.set_chance(nullptr);
    drafter->forget(*request_.sequence);
    return tree;
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
  using Nodes = std::vector<std::pair<std::int32_t, Token>>;  // parent and token of each node below the root

  // `moved` gets the nodes that hold what was forced.
  void force(Which which, std::set<int>& moved, Finding& f) {
    std::optional<std::pair<Token, Nodes>> first;
    for (Token x = 0; x < models_.target->info().vocab; ++x) {
      Forcing chance(which, x);
      const DraftTree tree = propose(chance);
      const Nodes nodes = nodes_of(tree);
      if (!chance.possible) continue;
      ++f.cases;
      if (!first) {
        first = {x, nodes};
        continue;
      }
      if (!differ_by_one_token(*first, {x, nodes}))
        return f.fail(where() + "whether the node drawn under the name " + std::to_string(which[0]) +
                      " exists, or a node before it, depends on its own token: [" + text(nodes) + "] with token " +
                      std::to_string(x) + ", [" + text(first->second) + "] with token " + std::to_string(first->first));
      const int node = 1 + int(std::ranges::mismatch(first->second, nodes).in2 - nodes.begin());
      if (node == tree.nodes) continue;
      moved.insert(node);
      if (const std::string why = misnamed(tree, node, chance.drawn_from); !why.empty())
        return f.fail(where() + "node " + std::to_string(node) + ", called '" + name_of(drawn(tree, node)) + "', " +
                      why);
    }
  }

  // Every node that is called drawn, and might have held another token, was moved by some draw.
  void expect_drawn(const DraftTree& tree, const std::set<int>& moved, Finding& f) const {
    for (int n = 1; n < tree.nodes; ++n) {
      if (!tree.random(n) || token(tree, n) < 0 || moved.contains(n)) continue;
      const std::vector<double> q = stated(tree, n);
      if (std::ranges::count_if(q, [](double x) { return x > 0; }) < 2) continue;
      return f.fail(where() + "node " + std::to_string(n) + ", called '" + name_of(drawn(tree, n)) +
                    "', holds the token of no draw; add it with DraftTree::guess, or draw it by Backend::draw");
    }
  }

  // Why a node that holds the token of a draw from this distribution is not what it is called; empty if it is.
  static std::string misnamed(const DraftTree& tree, int node, const std::vector<double>& from) {
    if (!tree.random(node))
      return "holds the token of a draw; call it as it was drawn (DraftTree::grow), and name that kind in "
             "Needs::proposes";
    const std::vector<double> q = stated(tree, node);
    for (std::size_t x = 0; x < q.size(); ++x)
      if (!(std::abs(q[x] - from[x]) <= 1e-6))
        return "was drawn with the probability " + std::to_string(from[x]) + " of the token " + std::to_string(x) +
               ", where its kind and the distribution at its parent say " + std::to_string(q[x]);
    return "";
  }

  // The distribution of a node's token by its kind and the proposal: siblings without repeats lack the earlier ones.
  static std::vector<double> stated(const DraftTree& tree, int node) {
    const int parent = *tree.parents.row<std::int32_t>(node);
    const Distribution d = tree.q.distributions[std::size_t(parent)][0];
    std::vector<double> q;
    for (Token x = 0; x < d.vocab; ++x) q.push_back(d(x));
    if (drawn(tree, node) != Drawn::without_replacement) return q;
    for (int n = 1; n < node; ++n)
      if (*tree.parents.row<std::int32_t>(n) == parent && drawn(tree, n) == Drawn::without_replacement &&
          token(tree, n) >= 0)
        q[std::size_t(token(tree, n))] = 0;
    const double mass = std::accumulate(q.begin(), q.end(), 0.0);
    for (double& x : q) x = mass > 0 ? x / mass : 0;
    return q;
  }

  static Drawn drawn(const DraftTree& tree, int n) { return Drawn(*tree.q.drawn.row<std::uint8_t>(n)); }
  static Token token(const DraftTree& tree, int n) { return *tree.tokens.row<Token>(n); }
  std::string where() const {
    return "sequence " + std::to_string(request_.sequence->id) + " at length " +
           std::to_string(request_.sequence->length()) + ": ";
  }

  static Nodes nodes_of(const DraftTree& tree) {
    Nodes nodes;
    for (int n = 1; n < tree.nodes; ++n)
      nodes.emplace_back(*tree.parents.row<std::int32_t>(n), *tree.tokens.row<Token>(n));
    return nodes;
  }
  // Whether two trees of a forced draw are equal up to the node that holds the two forced tokens, or everywhere.
  static bool differ_by_one_token(const std::pair<Token, Nodes>& a, const std::pair<Token, Nodes>& b) {
    const auto [in_a, in_b] = std::ranges::mismatch(a.second, b.second);
    if (in_a == a.second.end() && in_b == b.second.end()) return true;
    return in_a != a.second.end() && in_b != b.second.end() && *in_a == std::pair(in_b->first, a.first) &&
           in_b->second == b.first;
  }
  static std::string text(const Nodes& nodes) {
    std::string s;
    for (const auto& [parent, token] : nodes)
      s += (s.empty() ? "" : " ") + std::to_string(parent) + ">" + std::to_string(token);
    return s;
  }

  const Subject& subject_;
  const Scenario& scenario_;
  HostBackend& backend_;
  const Models& models_;
  DraftRequest request_;
  TargetStates states_;
};

}  // namespace

Finding causal(const Subject& subject, const Scenario& scenario, HostBackend& backend, const Models& models,
               std::span<const TestRequest> requests) {
  Finding f{.what = subject.text()};
  const Needs needs = needs_of(subject.registries, subject.configs.drafter);
  const auto judge = [&](Host&, std::span<const DraftRequest> draft_requests, std::span<const DraftTree>) {
    for (const DraftRequest& request : draft_requests) {
      if (!request.budget.drafts() || !f.holds) continue;
      Round round(subject, scenario, backend, models, request, needs);
      round.force_all(f);
    }
  };
  const RunOutcome outcome = run_scenario(watched(subject, judge), scenario, backend, models, requests);
  f.accepted = outcome.accepted, f.rejected = outcome.rejections;
  return f;
}

}  // namespace foretoken::conformance
