// The rollback of the Big Little Decoder: a drafted token x is kept unless -log p(x) exceeds a threshold, p the
// target's distribution at temperature 1; the first token that fails is rolled back and the target's own token is
// emitted. Kim et al. 2023 (arXiv 2302.07863); its fallback, where the little model is not confident, is a matter of
// Budget::confidence. Lossy: drafted tokens that the target does not find too improbable are emitted.
#include <cmath>

#include "verifiers/deepest_path.h"
#include "verifiers/verifiers.h"

namespace foretoken {
namespace {

struct BigLittle {
  double rollback;
  template <class Lane> FORETOKEN_HD Verdict operator()(Lane& lane, const Trial& t) const {
    return follow_deepest(lane, t, [most = rollback](Lane&, const Distribution& raw) {
      return [raw, most](Lane&, Token x) {
        const double p = raw(x);
        return p > 0 && -log_exactly(p) <= most;
      };
    });
  }
};

}  // namespace

Entry<Verifier> big_little() {
  return {
      "keep what the target does not find too improbable; lossy",
      "arXiv 2302.07863",
      {{"rollback", "number", 3, "the greatest -log p(x) of a token that is kept, nats, 0 to 100", false, 0, 100}},
      [](const nlohmann::json& o, Host&) {
        return std::make_unique<RuleVerifier<BigLittle>>(BigLittle{o.at("rollback").get<double>()});
      },
      [](const nlohmann::json& o, const ModelInfo&) {
        return Soundness{
            .takes = {Drawn::certain, Drawn::chain, Drawn::independent, Drawn::without_replacement, Drawn::marginals},
            .promise =
                "lossy: the deepest drafted path of tokens with -log p <= rollback, then a token of the "
                "target",
            .acceptance = Acceptance::other,
            .raw = true,
            .induced = [most = o.at("rollback").get<double>()](const Round& round) {
              return deepest_path_law(round, [=](const std::vector<double>& raw, Token token) {
                return raw[std::size_t(token)] > 0 && -std::log(raw[std::size_t(token)]) <= most;
              });
            }};
      },
      {nlohmann::json::object(), {{"rollback", 1.5}}}};
}

}  // namespace foretoken
