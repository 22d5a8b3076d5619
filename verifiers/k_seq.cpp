// K-SEQ: k siblings drawn i.i.d. from q are tried in turn, each accepted with min(1, p(x) / (rho q(x))) for one rho of
// the family. With beta = sum_x min(q(x), p(x) / rho), one of them is accepted with probability 1 - (1 - beta)^k, and
// the rule is exact for every rho with (1 - (1 - beta)^k) / beta <= rho; the least such rho accepts most. SpecTr: Sun
// et al. 2023 (arXiv 2310.15141). Certain guesses of a family are tried first; p is then their residual. One drawn
// child is accepted as by speculative sampling.
#include "verifiers/verifiers.h"

namespace foretoken {
namespace {

// sum_{j < k} (1 - beta)^j, which is (1 - (1 - beta)^k) / beta without the cancellation.
FORETOKEN_HD inline double tries(double beta, int k) {
  double sum = 0;
  for (int j = 0; j < k; ++j) sum = add(mul(sum, add(1.0, -beta)), 1.0);
  return sum;
}

// What a token of the family emits at the most: min(q, r / rho).
template <class R, class Q> struct Offered {
  R r;
  Q q;
  double rho;
  FORETOKEN_HD double operator()(Token x) const {
    const double a = q(x), b = double(r(x)) / rho;
    return a < b ? a : b;
  }
};

// The residual after all drawn siblings were rejected: (r - f min(q, r / rho)) / mass.
template <class R, class Q> struct RestOfFamily {
  Offered<R, Q> offered;
  double f, mass;
  FORETOKEN_HD double operator()(Token x) const {
    const double d = add(offered.r(x), -mul(f, offered(x)));
    return d > 0 ? d / mass : 0;
  }
};

// A rho in [1, k] for which the rule is exact, at most (k - 1) / 2^12 above the least one, and its beta.
struct Ratio {
  double rho = 1, beta = 0;
};
template <class Lane, class R, class Q> FORETOKEN_HD Ratio least_ratio(Lane& lane, const R& r, const Q& q, int k) {
  constexpr int kHalvings = 12;
  const auto at = [&](double rho) { return Ratio{rho, lane.sum(Offered<R, Q>{r, q, rho})}; };
  Ratio least = at(double(k));  // exact for every beta
  double low = 1;
  for (int i = 0; i < kHalvings && k > 1; ++i) {
    const Ratio middle = at(mul(0.5, add(low, least.rho)));
    if (tries(middle.beta, k) <= middle.rho)
      least = middle;
    else
      low = middle.rho;
  }
  return least;
}

struct KSeq {
  template <class Lane> FORETOKEN_HD Verdict operator()(Lane& lane, const Trial& t) const {
    Verdict v;
    for (int node = 0;;) {
      auto r = lane.open(t.p(node), t.q(node));
      int drawn = 0, chosen = -1;
      bool tried = false;
      for (int c = t.child(node, node); c >= 0 && chosen < 0; c = t.child(node, c)) {
        drawn += !t.certain(c), tried = true;
        if (!t.certain(c)) continue;
        if (lane.accept(r(t.tokens[c]), {Role::accept, std::uint32_t(c), 0}))
          chosen = c;
        else
          lane.reject_guess(r, t.tokens[c]);
      }
      if (chosen < 0 && drawn > 0) {
        const auto q = t.q(node);
        const Ratio ratio = least_ratio(lane, r, q, drawn);
        for (int c = t.child(node, node); c >= 0 && chosen < 0; c = t.child(node, c))
          if (!t.certain(c) &&
              lane.accept(r(t.tokens[c]) / mul(ratio.rho, q(t.tokens[c])), {Role::accept, std::uint32_t(c), 0}))
            chosen = c;
        if (chosen < 0) {
          v.finish(rest(lane, r, q, ratio, drawn, node));
          return v;
        }
      }
      if (chosen < 0) {
        v.finish(lane.draw(r, {tried ? Role::residual : Role::bonus, std::uint32_t(node), 0}));
        return v;
      }
      v.follow(node = chosen, t.tokens[chosen]);
    }
  }

 private:
  template <class Lane, class R, class Q>
  FORETOKEN_HD static Token rest(Lane& lane, const R& r, const Q& q, const Ratio& ratio, int k, int node) {
    RestOfFamily<R, Q> rest{{r, q, ratio.rho}, tries(ratio.beta, k), 1};
    rest.mass = lane.sum(rest);
    const DrawName name{Role::residual, std::uint32_t(node), 0};
    return rest.mass > 0 ? lane.draw(rest, name) : lane.draw(r, name);  // no mass: rejected by rounding alone
  }
};

}  // namespace

Entry<Verifier> k_seq() {
  return {"i.i.d. siblings accepted with min(1, p / (rho q)), one rho for all; exact",
          "arXiv 2310.15141",
          {},
          [](const nlohmann::json&, Host&) { return std::make_unique<RuleVerifier<KSeq>>(); },
          [](const nlohmann::json&, const ModelInfo&) {
            return Soundness{.takes = {Drawn::certain, Drawn::chain, Drawn::independent, Drawn::marginals},
                             .acceptance = Acceptance::k_seq};
          }};
}

}  // namespace foretoken
