// Typical acceptance: a drafted token is accepted if its probability exceeds min(epsilon, delta exp(-H)), H the entropy
// of the target's distribution; the deepest accepted path is emitted. Medusa: Cai et al. 2024 (arXiv 2401.10774), where
// both are those of temperature 1 before any cut. The token after the path is drawn from the target's warped
// distribution. Lossy: drafted tokens that are probable enough are emitted whatever the target would have drawn.
#include <cmath>

#include "verifiers/deepest_path.h"
#include "verifiers/verifiers.h"

namespace foretoken {
namespace {

struct TypicalAcceptance {
  double epsilon, delta;
  template <class Lane> FORETOKEN_HD Verdict operator()(Lane& lane, const Trial& t) const {
    return follow_deepest(lane, t, [rule = *this](Lane& l, const Distribution& raw) {
      const double minus_entropy = l.sum([raw](Token x) {
        const double p = raw(x);
        return p > 0 ? mul(p, log_exactly(p)) : 0.0;
      });
      const double typical = mul(rule.delta, double(exp_weight(float(minus_entropy))));
      const double least = typical < rule.epsilon ? typical : rule.epsilon;
      return [raw, least](Lane&, Token x) { return raw(x) > least; };
    });
  }
};

EmittedLaw induced(const Round& round, double epsilon, double delta) {
  return deepest_path_law(round, [=](const std::vector<double>& raw, Token token) {
    double entropy = 0;
    for (const double p : raw) entropy -= p > 0 ? p * std::log(p) : 0;
    return raw[std::size_t(token)] > std::min(epsilon, delta * std::exp(-entropy));
  });
}

}  // namespace

Entry<Verifier> typical_acceptance() {
  return {
      "accept what is probable enough for the target's entropy; lossy",
      "arXiv 2401.10774",
      {{"epsilon", "number", 0.09, "the highest probability that is asked for, 0 to 1", false, 0, 1},
       {"delta", "number", 0.3, "the probability asked for, in units of exp(-entropy), 0 to 100", false, 0, 100}},
      [](const nlohmann::json& o, Host&) {
        return std::make_unique<RuleVerifier<TypicalAcceptance>>(
            TypicalAcceptance{o.at("epsilon").get<double>(), o.at("delta").get<double>()});
      },
      [](const nlohmann::json& o, const ModelInfo&) {
        return Soundness{
            .takes = {Drawn::certain, Drawn::chain, Drawn::independent, Drawn::without_replacement, Drawn::marginals},
            .promise =
                "lossy: the deepest drafted path of tokens with p > min(epsilon, delta exp(-entropy)), then a "
                "token of the target",
            .acceptance = Acceptance::other,
            .raw = true,
            .induced = [epsilon = o.at("epsilon").get<double>(), delta = o.at("delta").get<double>()](
                           const Round& round) { return induced(round, epsilon, delta); }};
      },
      {nlohmann::json::object(), {{"epsilon", 0.25}, {"delta", 0.6}}}};
}

}  // namespace foretoken
