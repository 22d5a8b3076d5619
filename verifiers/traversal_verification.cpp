// Traversal verification: a tree is verified from its leaves to its root under the joint weight of each path
// (verifiers/joint_weight.h). The first leaf is accepted with its path's weight; a rejected leaf is taken out of the
// tree, what is left of its parent's weight and distribution is computed, and its next sibling's subtree follows; a
// node whose children are all gone is a leaf itself. Weng et al. 2025 (arXiv 2505.12398). Exact; of a chain it is block
// verification.
#include "verifiers/joint_weight.h"
#include "verifiers/verifiers.h"

namespace foretoken {
namespace {

// A node of the path from the root to the leaf that is verified: its weight, and the residual of its distribution after
// its rejected children (the numbers of Residual alone, since a residual of 64 levels is large).
struct Level {
  int node, child;      // the child that is tried next; -1: none
  double weight, left;  // left: the mass of q without the rejected children, where children are drawn without repeats
  double c, mass;
  std::int32_t rejected;
};

struct TraversalVerification {
  template <class Lane> FORETOKEN_HD Verdict operator()(Lane& lane, const Trial& t) const {
    Level levels[kMaxPath + 1];
    int depth = 0;
    levels[0] = entered(t, 0, 1);
    const RejectedGuess* guesses = nullptr;
    for (;;) {
      Level& at = levels[depth];
      auto r = residual(lane, t, at, guesses);
      if (at.child >= 0) {
        const double weight = depth < kMaxPath ? weight_below(at.weight, ratio(t, at, r)) : 0;
        if (weight > 0)
          levels[++depth] = entered(t, at.child, weight);
        else
          reject(lane, t, at, r, guesses);
        continue;
      }
      const std::uint32_t node = std::uint32_t(at.node);
      if (depth == 0 || lane.accept(at.weight, {Role::accept, node, 0})) {
        const bool whole = t.child(at.node, at.node) < 0;
        return verdict(t, levels, depth, lane.draw(r, {whole ? Role::bonus : Role::residual, node, 0}));
      }
      Level& parent = levels[--depth];
      auto rest = residual(lane, t, parent, guesses);
      reject(lane, t, parent, rest, guesses);
    }
  }

 private:
  FORETOKEN_HD static Level entered(const Trial& t, int node, double weight) {
    return {node, t.child(node, node), weight, 1, 0, 1, -1};
  }
  template <class Lane>
  FORETOKEN_HD static auto residual(Lane& lane, const Trial& t, const Level& at, const RejectedGuess* guesses) {
    auto r = lane.open(t.p(at.node), t.q(at.node));
    r.c = at.c, r.mass = at.mass, r.rejected = at.rejected, r.guesses = guesses;
    return r;
  }
  FORETOKEN_HD static bool repeatless(const Trial& t, int node) {
    return Drawn(t.drawn[node]) == Drawn::without_replacement;
  }
  // The residual's probability of the next child over that with which it was drawn.
  template <class R> FORETOKEN_HD static double ratio(const Trial& t, const Level& at, const R& r) {
    const Token x = t.tokens[at.child];
    if (t.certain(at.child)) return r(x);
    const double q = t.q(at.node)(x);
    return repeatless(t, at.child) ? mul(r(x), at.left) / q : r(x) / q;
  }
  // Takes the next child, with all below it, out of the tree.
  template <class Lane, class R>
  FORETOKEN_HD static void reject(Lane& lane, const Trial& t, Level& at, R& r, const RejectedGuess*& guesses) {
    const int child = at.child;
    const Token x = t.tokens[child];
    at.child = t.child(at.node, child);
    if (!(at.weight > 0)) {  // nothing below this node can be accepted any more
      at.child = -1;
      return;
    }
    const bool repeats = !repeatless(t, child);
    const double before = r.mass;
    if (t.certain(child))
      lane.reject_guess(r, x);
    else
      lane.reject_once(r, x, mul(at.weight, repeats ? 1.0 : at.left));  // r becomes (weight r - q / left)+ over its sum
    if (!repeats && at.child >= 0) at.left = t.mass_after(lane, at.node, child);
    const double rest = r.rejected < 0 ? 0 : mul(at.weight, r.mass / before);  // no guess: rounding left no mass
    if (at.node != 0) at.weight = probability_of_ending(at.weight, rest);
    at.c = r.c, at.mass = r.mass, at.rejected = r.rejected, guesses = r.guesses;
  }
  FORETOKEN_HD static Verdict verdict(const Trial& t, const Level* levels, int depth, Token next) {
    Verdict v;
    for (int k = 1; k <= depth; ++k) v.follow(levels[k].node, t.tokens[levels[k].node]);
    v.finish(next);
    return v;
  }
};

}  // namespace

Entry<Verifier> traversal_verification() {
  return {"a tree from its leaves to its root, by the joint ratio of p and q of each path; exact",
          "arXiv 2505.12398",
          {},
          [](const nlohmann::json&, Host&) { return std::make_unique<RuleVerifier<TraversalVerification>>(); },
          [](const nlohmann::json&, const ModelInfo&) {
            return Soundness{.takes = {Drawn::certain, Drawn::chain, Drawn::independent, Drawn::without_replacement,
                                       Drawn::marginals},
                             .acceptance = Acceptance::joint};
          }};
}

}  // namespace foretoken
