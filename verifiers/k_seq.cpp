// K-SEQ: k siblings drawn i.i.d. from q are tried in turn, each accepted with min(1, p(x) / (rho q(x))) for one rho of
// the family. With beta = sum_x min(q(x), p(x) / rho), one of them is accepted with probability 1 - (1 - beta)^k, and
// the rule is exact for every rho with (1 - (1 - beta)^k) / beta <= rho; the least such rho accepts most. SpecTr: Sun
// et al. 2023 (arXiv 2310.15141). Certain guesses of a family are tried first; p is then their residual. One drawn
// child is accepted as by speculative sampling.
#include <array>

#include "verifiers/verifiers.h"

namespace foretoken {
namespace {

// sum_{j < k} (1 - beta)^j, which is (1 - (1 - beta)^k) / beta without the cancellation.
FORETOKEN_HD inline double tries(double beta, int k) {
  double sum = 0;
  for (int j = 0; j < k; ++j) sum = add(mul(sum, add(1.0, -beta)), 1.0);
  return sum;
}

constexpr int kValues = 4, kPasses = 6;  // of the search for rho

// For several rho: rho times what a token of the family emits at the most, min(rho q, r).
struct Offered {
  double rho[kValues];
  FORETOKEN_HD std::array<double, kValues> operator()(double r, double q) const {
    std::array<double, kValues> offered;
    for (int i = 0; i < kValues; ++i) {
      const double most = mul(rho[i], q);
      offered[std::size_t(i)] = most < r ? most : r;
    }
    return offered;
  }
};

// The residual after all drawn siblings were rejected, without its normalizer: r - share min(rho q, r), share the part
// tries / rho of it that they emit.
struct RestOfFamily {
  double rho, share;
  FORETOKEN_HD double operator()(double r, double q) const {
    const double most = mul(rho, q), rest = add(r, -mul(share, most < r ? most : r));
    return rest > 0 ? rest : 0;
  }
};

// A rho in [1, k] for which the rule is exact, at most (k - 1) / 2^12 above the least one, and its beta.
struct Ratio {
  double rho, beta;
};
// k > 1. Each pass over the vocabulary divides the interval into four: its upper end is exact, and so is every rho
// above the least one.
template <class Lane, class R, class Q> FORETOKEN_HD Ratio least_ratio(Lane& lane, const R& r, const Q& q, int k) {
  Ratio least{double(k), 0};  // exact for every beta
  double low = 1, step = mul(double(k - 1), 0.25);
  for (int pass = 0; pass < kPasses; ++pass, step = mul(step, 0.25)) {
    Offered of;
    for (int i = 0; i < kValues; ++i) of.rho[i] = add(low, mul(step, double(i + 1)));  // without rounding
    const std::array<double, kValues> sums = lane.template sums<kValues>(combined(r, q, of));
    for (int i = 0; i < kValues; ++i) {
      const Ratio here{of.rho[i], sums[std::size_t(i)] / of.rho[i]};
      if (i == kValues - 1 || tries(here.beta, k) <= here.rho) {
        least = here;
        break;
      }
      low = here.rho;
    }
  }
  return least;
}

struct KSeq {
  template <class Lane> FORETOKEN_HD Verdict operator()(Lane& lane, const Trial& t) const {
    Verdict v;
    for (int node = 0;;) {
      auto r = lane.open(t.p(node), OneHot{-1});  // only guesses are taken out of it
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
        const Ratio ratio = drawn > 1 ? least_ratio(lane, r, q, drawn) : Ratio{1, 1};  // of one child: beta is not read
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
    const RestOfFamily rest{ratio.rho, tries(ratio.beta, k) / ratio.rho};
    const DrawName name{Role::residual, std::uint32_t(node), 0};
    const Token x = lane.draw_weighted(combined(r, q, rest), name);
    return x >= 0 ? x : lane.draw(r, name);  // no mass: rejected by rounding alone
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
