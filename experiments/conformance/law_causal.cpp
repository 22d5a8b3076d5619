#include <algorithm>
#include <optional>
#include <set>

#include "experiments/conformance/laws.h"
#include "kernels/host_backend.h"

namespace foretoken::conformance {
namespace {

using Which = std::pair<std::uint32_t, std::uint32_t>;  // node and index of a draw's name

// Philox, except for one draw whose token is forced. Records the names of the drafting draws.
class Forcing : public Chance {
 public:
  Forcing() = default;
  Forcing(Which which, Token token) : forced_(true), which_(which), token_(token) {}
  bool accept(double probability, const Draws& draws, DrawName name) override {
    return draws.uniform(name) < probability;
  }
  Token draw(int vocab, const std::function<double(Token)>& law, const Draws& draws, DrawName name) override {
    const Which which{name.node, name.index};
    if (name.role == Role::draft) met.insert(which);
    if (!forced_ || name.role != Role::draft || which != which_)
      return invert_cdf(scalar_tiles(law), vocab, draws.uniform(name));
    possible = possible && law(token_) > 0;
    return token_;
  }
  Token race(int vocab, const std::function<double(Token)>& law, const Draws& draws, std::uint32_t position) override {
    return win_race(scalar_tiles(law), vocab, draws, position);
  }

  std::set<Which> met;
  bool possible = true;  // the forced token might have been drawn

 private:
  bool forced_ = false;
  Which which_{};
  Token token_ = -1;
};

// One round of one sequence, proposed repeatedly by fresh drafters.
class Round {
 public:
  Round(const Subject& subject, const Scenario& scenario, HostBackend& backend, const Models& models,
        const DraftRequest& request)
      : subject_(subject), scenario_(scenario), backend_(backend), models_(models), request_(request) {
    request_.rows = 1 << 20;
    request_.race = false;
  }

  DraftTree propose(Forcing& chance) const {
    PagePool pool(backend_, models_.target->info().kv.page_bytes(scenario_.engine.page_rows), 256);
    Host host(backend_, pool, models_.target->info(), models_.load, false, {models_.target, &subject_.registries});
    const auto drafter = subject_.registries.drafters.make(subject_.configs.drafter, host);
    backend_.set_chance(&chance);
    DraftTree tree = drafter->draft({&request_, 1}).front();
    backend_.set_chance(nullptr);
    drafter->forget(*request_.sequence);
    return tree;
  }

  // Forces this draw to every token of positive probability.
  void force(Which which, Finding& f) const {
    std::optional<std::pair<Token, Nodes>> first;
    for (Token x = 0; x < models_.target->info().vocab; ++x) {
      Forcing chance(which, x);
      const Nodes nodes = nodes_of(propose(chance));
      if (!chance.possible) continue;
      ++f.cases;
      if (!first)
        first = {x, nodes};
      else if (!differ_by_one_token(*first, {x, nodes}))
        return f.fail("sequence " + std::to_string(request_.sequence->id) + " at length " +
                      std::to_string(request_.sequence->length()) + ": whether the node drawn under the name " +
                      std::to_string(which.first) + " exists, or a node before it, depends on its own token: [" +
                      text(nodes) + "] with token " + std::to_string(x) + ", [" + text(first->second) +
                      "] with token " + std::to_string(first->first));
    }
  }

 private:
  using Nodes = std::vector<std::pair<std::int32_t, Token>>;  // parent and token of each node below the root

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
};

}  // namespace

Finding causal(const Subject& subject, const Scenario& scenario, HostBackend& backend, const Models& models,
               std::span<const TestRequest> requests) {
  Finding f{.what = subject.text()};
  const auto judge = [&](Host&, std::span<const DraftRequest> draft_requests, std::span<const DraftTree>) {
    for (const DraftRequest& request : draft_requests) {
      if (!request.budget.drafts() || !f.holds) continue;
      const Round round(subject, scenario, backend, models, request);
      Forcing free;
      (void)round.propose(free);
      for (const Which& which : free.met) round.force(which, f);
    }
  };
  const RunOutcome outcome = run_scenario(watched(subject, judge), scenario, backend, models, requests);
  f.accepted = outcome.accepted, f.rejected = outcome.rejections;
  return f;
}

}  // namespace foretoken::conformance
