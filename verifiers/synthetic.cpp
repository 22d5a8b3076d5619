// Synthetic acceptance: the first child of each node is accepted with a given probability, whatever its token. Not a
// decoder: it answers what a drafter with a given acceptance would be worth on a real engine, at real cost. The token
// after the path is drawn from the target's distribution.
#include "verifiers/verifiers.h"

namespace foretoken {
namespace {

struct Synthetic {
  double acceptance, decay;
  template <class Lane> FORETOKEN_HD Verdict operator()(Lane& lane, const Trial& t) const {
    Verdict v;
    double probability = acceptance;
    for (int node = 0, c;; node = c, probability = mul(probability, decay)) {
      c = v.length < kMaxPath ? t.child(node, node) : -1;
      if (c < 0 || !lane.accept(probability, {Role::accept, std::uint32_t(c), 0})) {
        v.finish(lane.draw(t.p(node), {Role::bonus, std::uint32_t(node), 0}));
        return v;
      }
      v.follow(c, t.tokens[c]);
    }
  }
};

EmittedLaw induced(const Round& round, double acceptance, double decay) {
  EmittedLaw law;
  std::vector<Token> path;
  double weight = 1;
  for (int node = 0;;) {
    const std::vector<int> below = round.children(node);
    const double accepted = below.empty() ? 0 : acceptance;
    const std::vector<double>& p = round.p[std::size_t(node)];
    for (std::size_t x = 0; x < p.size(); ++x) {
      path.push_back(Token(x));
      if (p[x] > 0 && accepted < 1) law[path] += weight * (1 - accepted) * p[x];
      path.pop_back();
    }
    if (below.empty()) return law;
    weight *= accepted, acceptance *= decay, node = below[0];
    path.push_back(round.tokens[std::size_t(node)]);
  }
}

}  // namespace

Entry<Verifier> synthetic() {
  return {
      "accepts by a given profile, not by tokens; for studies of cost alone",
      "",
      {{"acceptance", "number", 0.8, "probability that the first child of the root is accepted, 0 to 1", false, 0, 1},
       {"decay", "number", 1, "factor of it from level to level, 0 to 1", false, 0, 1}},
      [](const nlohmann::json& o, Host&) {
        return std::make_unique<RuleVerifier<Synthetic>>(
            Synthetic{o.at("acceptance").get<double>(), o.at("decay").get<double>()});
      },
      [](const nlohmann::json& o, const ModelInfo&) {
        return Soundness{
            .takes = {Drawn::certain, Drawn::chain, Drawn::independent, Drawn::without_replacement, Drawn::marginals},
            .promise =
                "lossy: the first drafted token of each level with a given probability, then a token of the "
                "target",
            .acceptance = Acceptance::other,
            .induced = [acceptance = o.at("acceptance").get<double>(), decay = o.at("decay").get<double>()](
                           const Round& round) { return induced(round, acceptance, decay); }};
      },
      {nlohmann::json::object(), {{"acceptance", 0.5}, {"decay", 0.75}}}};
}

}  // namespace foretoken
