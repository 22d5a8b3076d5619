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
    std::string seen;
    for (Token x = 0; x < models_.target->info().vocab; ++x) {
      Forcing chance(which, x);
      const DraftTree tree = propose(chance);
      if (!chance.possible) continue;
      ++f.cases;
      const std::string before = fixed_before(tree, int(which.first));
      if (seen.empty()) seen = before;
      if (before == seen) continue;
      return f.fail("sequence " + std::to_string(request_.sequence->id) + " at length " +
                    std::to_string(request_.sequence->length()) + ": the tree up to node " +
                    std::to_string(which.first) + " depends on that node's own token: [" + before + "] with token " +
                    std::to_string(x) + ", else [" + seen + "]");
    }
  }

 private:
  // The nodes before `node`, and whether `node` exists and below which parent.
  static std::string fixed_before(const DraftTree& tree, int node) {
    std::string s;
    for (int n = 1; n < std::min(node, tree.nodes); ++n)
      s += std::to_string(*tree.parents.row<std::int32_t>(n)) + ">" + std::to_string(*tree.tokens.row<Token>(n)) + " ";
    return s + (node < tree.nodes ? std::to_string(*tree.parents.row<std::int32_t>(node)) + ">?" : "absent");
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
