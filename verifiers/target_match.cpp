// Target matching: the target draws its own token, independently of the draft, and the child that holds it is accepted.
// Exact for every tree, since every emitted token is drawn from the target's distribution. It accepts a drawn child
// with probability sum_x p(x) q(x), less than speculative sampling; for certain guesses the two accept equally often.
// Called naive sampling in SpecInfer: Miao et al. 2023 (arXiv 2305.09781); the rule of most servers.
#include "verifiers/verifiers.h"

namespace foretoken {
namespace {

struct TargetMatch {
  template <class Lane> FORETOKEN_HD Verdict operator()(Lane& lane, const Trial& t) const {
    Verdict v;
    for (int node = 0;;) {
      const Token next = lane.draw(t.p(node), {Role::bonus, std::uint32_t(node), 0});
      const int match = t.match(node, next);
      if (match < 0) {
        v.finish(next);
        return v;
      }
      v.follow(node = match, next);
    }
  }
};

}  // namespace

Entry<Verifier> target_match() {
  return {"the target's own token, drawn independently of the draft; exact",
          "arXiv 2305.09781",
          {},
          [](const nlohmann::json&, Host&) { return std::make_unique<RuleVerifier<TargetMatch>>(); },
          [](const nlohmann::json&, const ModelInfo&) {
            return Soundness{.takes = {Drawn::certain, Drawn::chain, Drawn::independent, Drawn::without_replacement,
                                       Drawn::marginals},
                             .acceptance = Acceptance::product};
          }};
}

}  // namespace foretoken
