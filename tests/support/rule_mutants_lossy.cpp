#include <algorithm>

#include "kernels/lane.h"
#include "tests/support/rule_mutant_entries.h"

namespace foretoken::test {
namespace {

// Keeps the first child that p gives at least so much.
struct KeptAbove {
  RuleBug bug;
  double least;
  template <class Lane> Verdict operator()(Lane& lane, const Trial& t) const {
    Verdict v;
    for (int node = 0;;) {
      int kept = -1;
      for (int c = t.child(node, node); c >= 0 && kept < 0; c = t.child(node, c)) {
        const double p = (bug == RuleBug::threshold_of_warped ? t.p(node) : t.raw(node))(t.tokens[c]);
        if ((p >= (bug == RuleBug::option_ignored ? 0.3 : least)) != (bug == RuleBug::threshold_reversed)) kept = c;
      }
      if (kept < 0) {
        v.finish(lane.draw(t.p(node), {Role::bonus, std::uint32_t(node), 0}));
        return v;
      }
      v.follow(node = kept, t.tokens[kept]);
    }
  }
};
EmittedLaw kept_above(const Round& round, double least) {
  std::vector<Token> path;
  int node = 0;
  for (int kept = 0; kept >= 0;) {
    kept = -1;
    for (const int c : round.children(node))
      if (kept < 0 && round.raw[std::size_t(node)][std::size_t(round.tokens[std::size_t(c)])] >= least) kept = c;
    if (kept >= 0) path.push_back(round.tokens[std::size_t(node = kept)]);
  }
  EmittedLaw law;
  for (std::size_t x = 0; x < round.p[std::size_t(node)].size(); ++x) {
    path.push_back(Token(x));
    if (round.p[std::size_t(node)][x] > 0) law[path] = round.p[std::size_t(node)][x];
    path.pop_back();
  }
  return law;
}

// Accepts the first child of level k with .8 * .5^(k - 1).
struct ProfileRule {
  RuleBug bug;
  template <class Lane> Verdict operator()(Lane& lane, const Trial& t) const {
    Verdict v;
    double a = 0.8;
    for (int node = 0, c;; node = c, a *= bug == RuleBug::decay_forgotten ? 1 : 0.5) {
      c = t.child(node, node);
      if (c < 0 || !lane.accept(a, {Role::accept, std::uint32_t(c), 0})) {
        v.finish(lane.draw(t.p(node), {Role::bonus, std::uint32_t(node), 0}));
        return v;
      }
      v.follow(c, t.tokens[c]);
    }
  }
};
EmittedLaw profile(const Round& round) {
  EmittedLaw law;
  std::vector<Token> path;
  double weight = 1, a = 0.8;
  for (int node = 0;; a *= 0.5) {
    const std::vector<int> below = round.children(node);
    const double accepted = below.empty() ? 0 : a;
    for (std::size_t x = 0; x < round.p[std::size_t(node)].size(); ++x) {
      path.push_back(Token(x));
      if (round.p[std::size_t(node)][x] > 0) law[path] += weight * (1 - accepted) * round.p[std::size_t(node)][x];
      path.pop_back();
    }
    if (below.empty()) return law;
    weight *= a, node = below[0], path.push_back(round.tokens[std::size_t(node)]);
  }
}

}  // namespace

Entry<Verifier> kept_above_rule(RuleBug bug) {
  return {"",
          "",
          {{"least", "number", 0.3, "", false, 0, 1}},
          [=](const nlohmann::json& o, Host&) {
            return std::make_unique<RuleVerifier<KeptAbove>>(KeptAbove{bug, o.at("least").get<double>()});
          },
          [](const nlohmann::json& o, const ModelInfo&) {
            return Soundness{.takes = kEveryKind,
                             .promise = "lossy: the first child with p >= least",
                             .raw = true,
                             .induced = [least = o.at("least").get<double>()](const Round& round) {
                               return kept_above(round, least);
                             }};
          }};
}
Entry<Verifier> profile_rule(RuleBug bug) {
  return entry_of(
      ProfileRule{bug},
      {.takes = kEveryKind, .promise = "lossy: the first child with a given probability", .induced = profile});
}

}  // namespace foretoken::test
