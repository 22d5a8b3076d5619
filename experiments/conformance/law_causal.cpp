#include <set>

#include "experiments/conformance/laws.h"
#include "kernels/host_backend.h"

namespace foretoken::conformance {
namespace {

using Which = std::pair<std::uint32_t, std::uint32_t>;  // node and index of a draw's name

// Philox, but for one draw, which is told what to give. Notes the draws of drafting that it met.
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

// One round of one sequence, proposed again and again by fresh drafters.
class Round {
 public:
  Round(const Subject& subject, const Scene& scene, HostBackend& backend, const Cast& cast, const DraftRequest& request)
      : subject_(subject), scene_(scene), backend_(backend), cast_(cast), request_(request) {
    request_.rows = 1 << 20;
    request_.race = false;
  }

  DraftTree propose(Forcing& chance) const {
    PagePool pool(backend_, scene_.engine.page_rows * cast_.target->info().kv.bytes_per_row(), 256);
    Host host(backend_, pool, cast_.target->info(), cast_.load, false, {cast_.target, &subject_.registries});
    const auto drafter = subject_.registries.drafters.make(subject_.chairs.drafter, host);
    backend_.set_chance(&chance);
    DraftTree tree = drafter->draft({&request_, 1}).front();
    backend_.set_chance(nullptr);
    drafter->forget(*request_.sequence);
    return tree;
  }

  // Every token that this draw might have given, one after another.
  void force(Which which, Finding& f) const {
    std::string seen;
    for (Token x = 0; x < cast_.target->info().vocab; ++x) {
      Forcing chance(which, x);
      const DraftTree tree = propose(chance);
      if (!chance.possible) continue;
      ++f.cases;
      const std::string before = fixed_before(tree, int(which.first));
      if (seen.empty()) seen = before;
      if (before == seen) continue;
      return f.fail("sequence " + std::to_string(request_.sequence->id) + " at length " +
                    std::to_string(request_.sequence->length()) + ": what stands up to node " +
                    std::to_string(which.first) + " depends on that node's own token: [" + before + "] with token " +
                    std::to_string(x) + ", else [" + seen + "]");
    }
  }

 private:
  // Nodes before `node`, and of it that it is there and hangs somewhere.
  static std::string fixed_before(const DraftTree& tree, int node) {
    std::string s;
    for (int n = 1; n < std::min(node, tree.nodes); ++n)
      s += std::to_string(*tree.parents.row<std::int32_t>(n)) + ">" + std::to_string(*tree.tokens.row<Token>(n)) + " ";
    return s + (node < tree.nodes ? std::to_string(*tree.parents.row<std::int32_t>(node)) + ">?" : "absent");
  }

  const Subject& subject_;
  const Scene& scene_;
  HostBackend& backend_;
  const Cast& cast_;
  DraftRequest request_;
};

}  // namespace

Finding causal(const Subject& subject, const Scene& scene, HostBackend& backend, const Cast& cast,
               std::span<const Ask> asks) {
  Finding f{.what = subject.text()};
  const auto judge = [&](Host&, std::span<const DraftRequest> requests, std::span<const DraftTree>) {
    for (const DraftRequest& request : requests) {
      if (!request.budget.drafts() || !f.holds) continue;
      const Round round(subject, scene, backend, cast, request);
      Forcing free;
      (void)round.propose(free);
      for (const Which& which : free.met) round.force(which, f);
    }
  };
  const Played played = play(watched(subject, judge), scene, backend, cast, asks);
  f.accepted = played.accepted, f.refused = played.refusals;
  return f;
}

}  // namespace foretoken::conformance
