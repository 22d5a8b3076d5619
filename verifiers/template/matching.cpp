// A verifier to copy: token matching. At each node a token is drawn from the target's distribution, independently of
// the draft. A child that equals it is accepted; if there is none, the drawn token is emitted. This is exact for every
// drafter, since each emitted token is drawn from the target's distribution. Its acceptance rate is sum_x p(x) q(x),
// less than that of speculative sampling. Called naive sampling in SpecInfer: Miao et al. 2023 (arXiv 2305.09781).
#include <foretoken/plugin.h>

namespace foretoken {
namespace {

struct Matching {
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

Entry<Verifier> matching() {
  return {"the target's own token, drawn independently of the draft; exact",
          "arXiv 2305.09781",
          {},
          [](const nlohmann::json&, Host&) { return std::make_unique<RuleVerifier<Matching>>(); },
          [](const nlohmann::json&, const ModelInfo&) {
            const std::vector<Drawn> all{Drawn::certain, Drawn::chain, Drawn::independent, Drawn::without_replacement,
                                         Drawn::marginals};
            return Soundness{.takes = all, .promise = "exact", .acceptance = Acceptance::product};
          }};
}

}  // namespace foretoken

extern "C" const char* foretoken_abi() { return foretoken::kAbi; }
extern "C" void foretoken_plugin(foretoken::Registries& registries) {
  registries.verifiers.add("matching", foretoken::matching());
}
