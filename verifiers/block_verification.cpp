// Block verification: the longest prefix of a drafted chain is kept under the joint weight of the path
// (verifiers/joint_weight.h), decided from the last node up. Sun et al. 2024 (arXiv 2403.10444): exact, and never
// accepts fewer tokens than token-wise speculative sampling. Of a tree it verifies the path of first children;
// traversal_verification takes all of it.
#include "verifiers/joint_weight.h"
#include "verifiers/verifiers.h"

namespace foretoken {
namespace {

struct BlockVerification {
  template <class Lane> FORETOKEN_HD Verdict operator()(Lane& lane, const Trial& t) const {
    Verdict v;
    double weights[kMaxPath + 1];
    weights[0] = 1;
    for (int node = 0, c; v.length < kMaxPath && (c = t.child(node, node)) >= 0; node = c) {
      const Token x = t.tokens[c];
      const double p = t.p(node)(x), ratio = t.certain(c) ? p : p / t.q(node)(x), w = weights[v.length];
      v.follow(c, x);
      weights[v.length] = weight_below(w, ratio);
    }
    for (;; --v.length) {
      const int node = v.length > 0 ? v.path[v.length - 1] : 0, child = t.child(node, node);
      const double weight = weights[v.length];
      const DrawName ends{Role::accept, std::uint32_t(node), 0}, next{Role::residual, std::uint32_t(node), 0};
      if (child < 0) {
        if (v.length > 0 && !lane.accept(weight, ends)) continue;
        v.finish(lane.draw(t.p(node), {Role::bonus, std::uint32_t(node), 0}));
        return v;
      }
      if (v.length > 0 && !(weight > 0)) continue;
      auto r = lane.open(t.p(node), t.q(node));
      const double rest = without_child(lane, r, t, child, weight);
      if (v.length > 0 && !lane.accept(probability_of_ending(weight, rest), ends)) continue;
      v.finish(lane.draw(r, next));
      return v;
    }
  }

 private:
  // Turns r = p into the residual below a node of this weight, and returns its mass (weight p - q)+; 0 where rounding
  // left nothing, and r is p again.
  template <class Lane, class R>
  FORETOKEN_HD static double without_child(Lane& lane, R& r, const Trial& t, int child, double weight) {
    if (t.certain(child)) {
      lane.reject_guess(r, t.tokens[child]);
      return r.rejected < 0 ? 0 : mul(weight, r.mass);
    }
    r.scale = weight;
    lane.reject_draw(r);
    return r.c == 0 ? 0 : r.mass;
  }
};

}  // namespace

Entry<Verifier> block_verification() {
  return {"the longest prefix of a chain under the joint ratio of p and q; exact",
          "arXiv 2403.10444",
          {},
          [](const nlohmann::json&, Host&) { return std::make_unique<RuleVerifier<BlockVerification>>(); },
          [](const nlohmann::json&, const ModelInfo&) {
            return Soundness{.takes = {Drawn::certain, Drawn::chain, Drawn::independent, Drawn::without_replacement,
                                       Drawn::marginals},
                             .acceptance = Acceptance::joint,
                             .first_children = true};
          }};
}

}  // namespace foretoken
