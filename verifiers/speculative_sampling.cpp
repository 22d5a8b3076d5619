// Speculative sampling: a child x drawn from q is accepted with probability min(1, r(x) / q(x)), where r is p at first.
// After each rejection r becomes (r - q)+ divided by its sum. If no child is accepted, the next token is drawn from r.
// Leviathan et al. 2023 (arXiv 2211.17192), Chen et al. 2023 (2302.01318); with several i.i.d. children this is
// recursive rejection (SpecInfer, 2305.09781). A certain guess has a one-hot q. Exact for the target's (warped)
// distribution.
#include "verifiers/verifiers.h"

namespace foretoken {
namespace {

struct SpeculativeSampling {
  template <class Lane> FORETOKEN_HD Verdict operator()(Lane& lane, const Trial& t) const {
    Verdict v;
    for (int node = 0;;) {
      auto r = lane.open(t.p(node), t.q(node));
      int chosen = -1;
      std::uint32_t tried = 0;
      for (int c = t.child(node, node); c >= 0 && chosen < 0; c = t.child(node, c), ++tried) {
        const Token x = t.tokens[c];
        const double ratio = t.certain(c) ? r(x) : r(x) / t.q(node)(x);
        if (lane.accept(ratio, {Role::accept, std::uint32_t(c), 0}))
          chosen = c;
        else if (t.certain(c))
          lane.reject_guess(r, x);
        else
          lane.reject_draw(r);
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

Entry<Verifier> speculative_sampling() {
  return {"accept with min(1, p/q), else draw from the residual; exact",
          "arXiv 2211.17192, 2302.01318, 2305.09781",
          {},
          [](const nlohmann::json&, Host&) { return std::make_unique<RuleVerifier<SpeculativeSampling>>(); },
          [](const nlohmann::json&, const ModelInfo&) {
            return Soundness{{Drawn::certain, Drawn::chain, Drawn::independent, Drawn::marginals}, "exact", false};
          }};
}

}  // namespace foretoken
