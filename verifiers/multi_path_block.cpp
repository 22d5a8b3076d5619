// Greedy multi-path block verification: at each node the child with the greatest ratio p / q among its i.i.d. siblings
// is selected, and the selected path is verified as a block against the distribution of the selection. Thomas and Pal
// 2026 (arXiv 2602.16961). Exact. Two differences from the paper: the ratio is compared in steps of two and the first
// of equal siblings wins, so that the distribution of the selected child is q(x) times a factor of its step, and no
// order of the vocabulary is needed; and as many siblings take part as overlap most with p, since of a draft that is
// close to the target the best of many is accepted less often than the first. Among certain guesses the one most
// probable under p is selected; they are ignored where drawn siblings stand beside them.
#include <array>

#include "verifiers/joint_weight.h"
#include "verifiers/verifiers.h"

namespace foretoken {
namespace {

constexpr int kSteps = 8;

// How much the target prefers x to the draft: the number of thresholds q/8, q/4, ..., 8q that weight p reaches.
FORETOKEN_HD inline int step_of(double weighted_p, double q) {
  int step = 0;
  double threshold = mul(q, 0.125);
  for (int i = 0; i < kSteps - 1; ++i, threshold = mul(threshold, 2.0)) step += weighted_p >= threshold;
  return step;
}

// The distribution of the child that is selected among the first `among` siblings of a node of this weight: q(x) times
// the factor of its step. `rest`: the mass of what it leaves of the node, -1 where it is not known.
struct Selection {
  double weight, rest;
  double factor[kSteps];
  int among;
  FORETOKEN_HD double operator()(double p, double q) const {
    const double weighted = mul(weight, p);
    double f = factor[0], threshold = mul(q, 0.125);
    for (int i = 1; i < kSteps; ++i, threshold = mul(threshold, 2.0)) f = weighted >= threshold ? factor[i] : f;
    return mul(q, f);
  }
};
FORETOKEN_HD inline double positive(double v) { return v > 0 ? v : 0; }
// What the selected child leaves of the node: (weight p - selection)+.
struct RestOfSelection {
  Selection selected;
  FORETOKEN_HD double operator()(double p, double q) const {
    return positive(add(mul(selected.weight, p), -selected(p, q)));
  }
};
constexpr int kAtOnce = 3;  // selections whose rests one pass adds up
struct RestsOfSelections {
  double weight;
  double factor[kAtOnce][kSteps];
  FORETOKEN_HD std::array<double, kAtOnce> operator()(double p, double q) const {
    const double weighted = mul(weight, p);
    double f[kAtOnce], threshold = mul(q, 0.125);
    for (int i = 0; i < kAtOnce; ++i) f[i] = factor[i][0];
    for (int s = 1; s < kSteps; ++s, threshold = mul(threshold, 2.0)) {
      const bool reached = weighted >= threshold;
      for (int i = 0; i < kAtOnce; ++i) f[i] = reached ? factor[i][s] : f[i];
    }
    std::array<double, kAtOnce> rests;
    for (int i = 0; i < kAtOnce; ++i) rests[std::size_t(i)] = positive(add(weighted, -mul(q, f[i])));
    return rests;
  }
};
// The masses of q up to each of four steps, of which the first ends at `threshold` times q; the fourth of the upper
// steps would be all of q, so the rest that one sibling leaves is in its place.
template <bool kUpper> struct MassesOfSteps {
  double weight, threshold;
  FORETOKEN_HD std::array<double, 4> operator()(double p, double q) const {
    const double weighted = mul(weight, p);
    std::array<double, 4> upto;
    double end = mul(q, threshold);
    for (int i = 0; i < 4 - kUpper; ++i, end = mul(end, 2.0)) upto[std::size_t(i)] = weighted < end ? q : 0;
    if (kUpper) upto[3] = positive(add(weighted, -q));
    return upto;
  }
};

struct MultiPathBlock {
  template <class Lane> FORETOKEN_HD Verdict operator()(Lane& lane, const Trial& t) const {
    Verdict v;
    double weights[kMaxPath + 1], rests[kMaxPath + 1];  // rests: -1 where it is not known yet
    weights[0] = 1, rests[0] = -1;
    for (int node = 0; v.length < kMaxPath;) {
      const double weight = weights[v.length];
      int chosen = best_guess(t, node);
      double q = 1;
      if (const int drawn = drawn_children(t, node)) {
        const Selection selected = selection(lane, t, node, weight, drawn);
        rests[v.length] = selected.rest;
        chosen = best_draw(t, node, selected);
        q = selected(t.p(node)(t.tokens[chosen]), t.q(node)(t.tokens[chosen]));
      }
      if (chosen < 0) break;
      const double p = t.p(node)(t.tokens[chosen]);
      v.follow(node = chosen, t.tokens[chosen]);
      weights[v.length] = weight_below(weight, p / q), rests[v.length] = -1;
    }
    for (;; --v.length) {
      const int node = v.length > 0 ? v.path[v.length - 1] : 0;
      if (finished(lane, t, v, node, weights[v.length], rests[v.length])) return v;
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
      const int step = step_of(mul(s.weight, t.p(node)(t.tokens[c])), t.q(node)(t.tokens[c]));
      if (step > highest) highest = step, best = c;
    }
    return best;
  }
  // Of m draws the greatest step is s with probability F(s)^m - F(s - 1)^m, F(s) the mass of q up to step s. The number
  // m of siblings that take part is 1, 2, 4, ... or k: that which leaves least of the node's weight of p, and so has
  // the greatest overlap with it. k == 1 makes no pass over the vocabulary.
  template <class Lane>
  FORETOKEN_HD static Selection selection(Lane& lane, const Trial& t, int node, double weight, int k) {
    Selection best{weight, -1, {}, 1};
    for (double& f : best.factor) f = 1;
    if (k == 1) return best;
    const Distribution p = t.p(node), q = t.q(node);
    const auto lower = lane.template sums<4>(combined(p, q, MassesOfSteps<false>{weight, 0.125}));
    const auto upper = lane.template sums<4>(combined(p, q, MassesOfSteps<true>{weight, 2}));
    const double upto[kSteps] = {lower[0], lower[1], lower[2], lower[3], upper[0], upper[1], upper[2], 1};
    best.rest = upper[3];
    for (int m = 2, last = 1; last < k;) {
      RestsOfSelections of{weight, {}};
      int among[kAtOnce];
      for (int i = 0; i < kAtOnce; ++i, last = m, m = 2 * m < k ? 2 * m : k) {
        among[i] = m;
        for (int s = 0; s < kSteps; ++s) of.factor[i][s] = power_ratio(upto[s], s > 0 ? upto[s - 1] : 0, m);
      }
      const auto rests = lane.template sums<kAtOnce>(combined(p, q, of));
      for (int i = 0; i < kAtOnce; ++i) {
        if (!(rests[std::size_t(i)] < best.rest)) continue;
        best.rest = rests[std::size_t(i)], best.among = among[i];
        for (int s = 0; s < kSteps; ++s) best.factor[s] = of.factor[i][s];
      }
    }
    return best;
  }
  // (a^k - b^k) / (a - b), without the cancellation.
  FORETOKEN_HD static double power_ratio(double a, double b, int k) {
    double sum = 0, of_b = 1;
    for (int j = 0; j < k; ++j) sum = add(mul(sum, a), of_b), of_b = mul(of_b, b);
    return sum;
  }
  // Ends the path at `node` or not; if so, draws the token after it. `known`: Selection::rest.
  template <class Lane>
  FORETOKEN_HD static bool finished(Lane& lane, const Trial& t, Verdict& v, int node, double weight, double known) {
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
    const bool judged = v.length == 0 || known >= 0;
    if (v.length > 0 && judged && !lane.accept(probability_of_ending(weight, known), ends)) return false;
    const auto rest = combined(t.p(node), t.q(node), RestOfSelection{selection(lane, t, node, weight, drawn)});
    if (!judged && !lane.accept(probability_of_ending(weight, lane.sum(rest)), ends)) return false;
    const Token x = lane.draw_weighted(rest, next);
    v.finish(x >= 0 ? x : lane.draw(t.p(node), next));
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
