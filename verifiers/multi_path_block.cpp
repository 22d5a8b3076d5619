// Greedy multi-path block verification: at each node the child with the greatest ratio p / q among its i.i.d. siblings
// is selected, and the selected path is verified as a block against the distribution of the selection. Thomas and Pal
// 2026 (arXiv 2602.16961). Exact. Two differences from the paper: the ratio is compared in steps of two and the first
// of equal siblings wins, so that the distribution of the selected child is q(x) times a factor of its step, and no
// order of the vocabulary is needed; and as many siblings take part as overlap most with p, since of a draft that is
// close to the target the best of many is accepted less often than the first. Among certain guesses the one most
// probable under p is selected; they are ignored where drawn siblings stand beside them.
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

// The distribution of the child that is selected among the first `among` siblings.
struct Selection {
  Distribution p, q;
  double weight = 1;  // of the node
  double factor[kSteps];
  int among = 1;
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

struct MultiPathBlock {
  template <class Lane> FORETOKEN_HD Verdict operator()(Lane& lane, const Trial& t) const {
    Verdict v;
    double weights[kMaxPath + 1];
    weights[0] = 1;
    for (int node = 0; v.length < kMaxPath;) {
      const double weight = weights[v.length];
      int chosen = best_guess(t, node);
      double q = 1;
      if (const int drawn = drawn_children(t, node)) {
        const Selection selected = selection(lane, t, node, weight, drawn);
        chosen = best_draw(t, node, selected);
        q = selected(t.tokens[chosen]);
      }
      if (chosen < 0) break;
      const double p = t.p(node)(t.tokens[chosen]);
      v.follow(node = chosen, t.tokens[chosen]);
      weights[v.length] = weight_below(weight, p / q);
    }
    for (;; --v.length) {
      const int node = v.length > 0 ? v.path[v.length - 1] : 0;
      if (finished(lane, t, v, node, weights[v.length])) return v;
    }
  }

 private:
  FORETOKEN_HD static int drawn_children(const Trial& t, int node) {
    int drawn = 0;
    for (int c = t.child(node, node); c >= 0; c = t.child(node, c)) drawn += !t.certain(c);
    return drawn;
  }
  FORETOKEN_HD static int best_guess(const Trial& t, int node) {
    int best = -1;
    for (int c = t.child(node, node); c >= 0; c = t.child(node, c))
      if (t.certain(c) && (best < 0 || t.p(node)(t.tokens[c]) > t.p(node)(t.tokens[best]))) best = c;
    return best;
  }
  FORETOKEN_HD static int best_draw(const Trial& t, int node, const Selection& s) {
    int best = -1, highest = -1, left = s.among;
    for (int c = t.child(node, node); c >= 0 && left > 0; c = t.child(node, c)) {
      if (t.certain(c)) continue;
      --left;
      const int step = step_of(mul(s.weight, s.p(t.tokens[c])), s.q(t.tokens[c]));
      if (step > highest) highest = step, best = c;
    }
    return best;
  }
  // Of m draws the greatest step is s with probability F(s)^m - F(s - 1)^m, F(s) the mass of q up to step s. The number
  // m of siblings that take part is 1, 2, 4, ... or k: that with the greatest overlap with the node's weight of p.
  template <class Lane>
  FORETOKEN_HD static Selection selection(Lane& lane, const Trial& t, int node, double weight, int k) {
    Selection best{t.p(node), t.q(node), weight, {}, 1};
    for (double& f : best.factor) f = 1;
    if (k == 1) return best;
    double upto[kSteps];
    for (int i = 0; i < kSteps; ++i)
      upto[i] = i == kSteps - 1 ? 1 : lane.sum([p = best.p, q = best.q, weight, i](Token x) {
        const double qx = q(x);
        return step_of(mul(weight, p(x)), qx) <= i ? qx : 0.0;
      });
    double greatest = overlap(lane, best);
    for (int m = 2;; m = 2 * m < k ? 2 * m : k) {
      Selection s = best;
      s.among = m;
      for (int i = 0; i < kSteps; ++i) s.factor[i] = power_ratio(upto[i], i > 0 ? upto[i - 1] : 0, m);
      if (const double mine = overlap(lane, s); mine > greatest) greatest = mine, best = s;
      if (m == k) return best;
    }
  }
  template <class Lane> FORETOKEN_HD static double overlap(Lane& lane, const Selection& s) {
    return lane.sum([s](Token x) {
      const double a = mul(s.weight, s.p(x)), b = s(x);
      return a < b ? a : b;
    });
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
    const int drawn = drawn_children(t, node), guess = best_guess(t, node);
    if (drawn == 0 && guess < 0) {
      if (v.length > 0 && !lane.accept(weight, ends)) return false;
      v.finish(lane.draw(t.p(node), {Role::bonus, std::uint32_t(node), 0}));
      return true;
    }
    if (v.length > 0 && !(weight > 0)) return false;
    if (drawn == 0) {
      auto r = lane.open(t.p(node), t.q(node));
      lane.reject_guess(r, t.tokens[guess]);
      const double rest = r.rejected < 0 ? 0 : mul(weight, r.mass);
      if (v.length > 0 && !lane.accept(probability_of_ending(weight, rest), ends)) return false;
      v.finish(lane.draw(r, next));
      return true;
    }
    RestOfSelection rest{selection(lane, t, node, weight, drawn), 1};
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
