// Coupled decoding: the target's token at each position is the winner of an exponential race with noise named by
// absolute position and token, and the drafter races with the same noise. The output is that of plain decoding with the
// same seed, whatever the drafter; a guess is accepted if it equals the target's own token. Gumbel coupling: Daliri et
// al. 2024 (arXiv 2408.07978); the race: Maddison et al. 2014 (1411.0030).
#include "verifiers/verifiers.h"

namespace foretoken {
namespace {

struct CoupledRule {
  template <class Lane> FORETOKEN_HD Verdict operator()(Lane& lane, const Trial& t) const {
    Verdict v;
    for (int node = 0;;) {
      const Token next = lane.race(t.p(node), t.position + std::uint32_t(v.length));
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

Entry<Verifier> coupled() {
  return {"the target's own token by noise of its position; same output as plain decoding",
          "arXiv 2408.07978",
          {},
          [](const nlohmann::json&, Host&) { return std::make_unique<RuleVerifier<CoupledRule>>(); },
          [](const nlohmann::json&, const ModelInfo&) {
            return Soundness{
                {Drawn::certain, Drawn::chain, Drawn::independent, Drawn::without_replacement, Drawn::marginals},
                "exact, path-identical",
                true};
          }};
}

}  // namespace foretoken
