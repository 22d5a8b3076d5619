// Greedy multi-path block verification: at each node the child with the greatest ratio p / q among its k i.i.d.
// siblings is selected, and the selected path is verified as a block against the distribution of the selection. Thomas
// and Pal 2026 (arXiv 2602.16961). Exact. The ratio is compared in steps of two, the first of equal siblings wins: so
// the distribution of the selected child is q(x) times a factor of its step, and no order of the vocabulary is needed.
// Among certain guesses the one most probable under p is selected; they are ignored where drawn siblings stand beside
// them.
#include "verifiers/joint_weight.h"
#include "verifiers/verifiers.h"

namespace foretoken {
namespace {

constexpr int kSteps = 8;

// How much the target prefers x to the draft: the number of thresholds 1/8, 1/4, ..., 8 that weight p / q reaches.
FORETOKEN_HD inline int step_of(double weighted_p, double q) {
  int step = 0;
  double threshold = mul(q, 0.125);
  for (int i = 0; i < kSteps - 1; ++i, threshold = mul(threshold, 2.0)) step += weighted_p >= threshold;
  return step;
}

// The distribution of the child that is selected among k siblings drawn from q.
struct Selection {
  Distribution p, q;
  double weight = 1;  // of the node
  double factor[kSteps];
  FORETOKEN_HD double operator()(Token x) const {
    const double qx = q(x);
    return mul(qx, factor[step_of(mul(weight, p(x)), qx)]);
  }
};
// What the selected child leaves of the node: (weight p - selection)+ over its sum.
struct RestOfSelection {
  Selection selected;
  double mass;
  FORETOKEN_HD double operator()(Token x) const {
    const double d = add(mul(selected.weight, selected.p(x)), -selected(x));
    return d > 0 ? d / mass : 0;
  }
};

// The children of a node among which one is selected.
struct Family {
  int drawn = 0, chosen = -1;
};

struct MultiPathBlock {
  template <class Lane> FORETOKEN_HD Verdict operator()(Lane& lane, const Trial& t) const {
    Verdict v;
    double weights[kMaxPath + 1];
    weights[0] = 1;
    for (int node = 0; v.length < kMaxPath;) {
      const double weight = weights[v.length];
      const int chosen = family(t, node, weight).chosen;
      if (chosen < 0) break;
      const Token x = t.tokens[chosen];
      const double p = t.p(node)(x), q = t.certain(chosen) ? 1 : selection(lane, t, node, weight)(x);
      v.follow(node = chosen, x);
      weights[v.length] = weight_below(weight, p / q);
    }
    for (;; --v.length) {
      const int node = v.length > 0 ? v.path[v.length - 1] : 0;
      if (finished(lane, t, v, node, weights[v.length])) return v;
    }
  }

 private:
  FORETOKEN_HD static Family family(const Trial& t, int node, double weight) {
    Family f;
    int best = -1, guess = -1;
    for (int c = t.child(node, node); c >= 0; c = t.child(node, c)) {
      const Token x = t.tokens[c];
      if (t.certain(c)) {
        if (guess < 0 || t.p(node)(x) > t.p(node)(t.tokens[guess])) guess = c;
        continue;
      }
      ++f.drawn;
      const int step = step_of(mul(weight, t.p(node)(x)), t.q(node)(x));
      if (step > best) best = step, f.chosen = c;
    }
    if (f.drawn == 0) f.chosen = guess;
    return f;
  }
  // Of k draws the greatest step is s with probability F(s)^k - F(s - 1)^k, F(s) the mass of q up to step s.
  template <class Lane> FORETOKEN_HD static Selection selection(Lane& lane, const Trial& t, int node, double weight) {
    Selection s{t.p(node), t.q(node), weight, {}};
    const int k = family(t, node, weight).drawn;
    double below = 0;
    for (int i = 0; i < kSteps; ++i) {
      const double upto = k == 1 || i == kSteps - 1 ? 1 : lane.sum([p = s.p, q = s.q, weight, i](Token x) {
        const double qx = q(x);
        return step_of(mul(weight, p(x)), qx) <= i ? qx : 0.0;
      });
      s.factor[i] = power_ratio(upto, below, k);
      below = upto;
    }
    return s;
  }
  // (a^k - b^k) / (a - b), without the cancellation.
  FORETOKEN_HD static double power_ratio(double a, double b, int k) {
    double sum = 0, of_b = 1;
    for (int j = 0; j < k; ++j) sum = add(mul(sum, a), of_b), of_b = mul(of_b, b);
    return sum;
  }
  // Ends the path at `node` or not; if so, draws the token after it.
  template <class Lane>
  FORETOKEN_HD static bool finished(Lane& lane, const Trial& t, Verdict& v, int node, double weight) {
    const DrawName ends{Role::accept, std::uint32_t(node), 0}, next{Role::residual, std::uint32_t(node), 0};
    const int chosen = family(t, node, weight).chosen;
    if (chosen < 0) {
      if (v.length > 0 && !lane.accept(weight, ends)) return false;
      v.finish(lane.draw(t.p(node), {Role::bonus, std::uint32_t(node), 0}));
      return true;
    }
    if (v.length > 0 && !(weight > 0)) return false;
    if (t.certain(chosen)) {
      auto r = lane.open(t.p(node), t.q(node));
      lane.reject_guess(r, t.tokens[chosen]);
      const double rest = r.rejected < 0 ? 0 : mul(weight, r.mass);
      if (v.length > 0 && !lane.accept(probability_of_ending(weight, rest), ends)) return false;
      v.finish(lane.draw(r, next));
      return true;
    }
    RestOfSelection rest{selection(lane, t, node, weight), 1};
    rest.mass = lane.sum(rest);
    if (v.length > 0 && !lane.accept(probability_of_ending(weight, rest.mass), ends)) return false;
    v.finish(rest.mass > 0 ? lane.draw(rest, next) : lane.draw(t.p(node), next));
    return true;
  }
};

}  // namespace

Entry<Verifier> multi_path_block() {
  return {"the best of several drafted paths, verified as a block; exact",
          "arXiv 2602.16961",
          {},
          [](const nlohmann::json&, Host&) { return std::make_unique<RuleVerifier<MultiPathBlock>>(); },
          [](const nlohmann::json&, const ModelInfo&) {
            return Soundness{.takes = {Drawn::certain, Drawn::chain, Drawn::independent, Drawn::marginals},
                             .acceptance = Acceptance::joint};
          }};
}

}  // namespace foretoken
