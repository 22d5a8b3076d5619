// Recursive rejection for siblings drawn without replacement: the j-th sibling was drawn from q without its
// predecessors, renormalized. It is accepted with probability min(1, r(x) / q_j(x)); after a rejection r becomes
// (r - q_j)+ over its sum. Sequoia: Chen et al. 2024 (arXiv 2402.12374); Jeon et al. 2024 (2402.14160). Exact.
#include "verifiers/verifiers.h"

namespace foretoken {
namespace {

struct WithoutReplacement {
  template <class Lane> FORETOKEN_HD Verdict operator()(Lane& lane, const Trial& t) const {
    Verdict v;
    for (int node = 0;;) {
      auto r = lane.open(t.p(node), t.q(node));
      double left = 1;  // the mass of q without the earlier siblings
      int chosen = -1;
      std::uint32_t tried = 0;
      for (int c = t.child(node, node); c >= 0 && chosen < 0; c = t.child(node, c), ++tried) {
        const Token x = t.tokens[c];
        const double q = t.certain(c) ? 1 : t.q(node)(x);
        const double ratio = t.certain(c) ? r(x) : mul(r(x), left) / q;
        if (lane.accept(ratio, {Role::accept, std::uint32_t(c), 0})) {
          chosen = c;
        } else if (t.certain(c)) {
          lane.reject_guess(r, x);
        } else {
          lane.reject_once(r, x, left);
          if (t.child(node, c) >= 0) left = t.mass_after(lane, node, c);
        }
      }
      if (chosen < 0) {
        v.finish(lane.draw(r, {tried ? Role::residual : Role::bonus, std::uint32_t(node), 0}));
        return v;
      }
      v.follow(node = chosen, t.tokens[chosen]);
    }
  }
};

}  // namespace

Entry<Verifier> without_replacement() {
  return {"recursive rejection for siblings without repeats; exact",
          "arXiv 2402.12374, 2402.14160",
          {},
          [](const nlohmann::json&, Host&) { return std::make_unique<RuleVerifier<WithoutReplacement>>(); },
          [](const nlohmann::json&, const ModelInfo&) {
            return Soundness{.takes = {Drawn::certain, Drawn::chain, Drawn::without_replacement}};
          }};
}

}  // namespace foretoken
