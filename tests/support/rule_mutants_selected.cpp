#include <algorithm>
#include <cmath>

#include "kernels/lane.h"
#include "tests/support/rule_mutant_entries.h"

namespace foretoken::test {
namespace {

// Of i.i.d. siblings the child with the greatest p / q is selected, of equal ones the first. One level is judged: the
// selected child x is drawn from s(x) = q(x) (F(x)^k - G(x)^k) / (F(x) - G(x)), with F and G the mass of q where p / q
// is at most, or less than, that of x. It is accepted with min(1, p / s), else (p - s)+ is drawn from.
struct BestRule {
  RuleBug bug;
  bool has(RuleBug b) const { return bug == b; }

  template <class Lane> Verdict operator()(Lane& lane, const Trial& t) const {
    Verdict v;
    for (int node = 0;;) {
      int best = -1, k = 0;
      for (int c = t.child(node, node); c >= 0; c = t.child(node, c), ++k)
        if (best < 0 || ratio(t, node, t.tokens[c]) > ratio(t, node, t.tokens[best])) best = c;
      if (best < 0) return v.finish(lane.draw(t.p(node), {Role::bonus, std::uint32_t(node), 0})), v;
      const Token x = t.tokens[best];
      if (!lane.accept(t.p(node)(x) / selected(t, node, k, x), {Role::accept, std::uint32_t(best), 0}))
        return v.finish(rest(lane, t, node, k)), v;
      v.follow(node = best, x);
    }
  }

 private:
  static double ratio(const Trial& t, int node, Token x) { return t.p(node)(x) / t.q(node)(x); }
  double selected(const Trial& t, int node, int k, Token x) const {
    const double q = t.q(node)(x);
    if (has(RuleBug::selection_is_q) || q == 0) return q;
    double less = 0, equal = 0;
    for (Token y = 0; y < t.vocab; ++y) {
      if (t.q(node)(y) == 0) continue;
      if (ratio(t, node, y) < ratio(t, node, x)) less += t.q(node)(y);
      if (ratio(t, node, y) == ratio(t, node, x)) equal += t.q(node)(y);
    }
    if (has(RuleBug::selection_of_first)) return q * std::pow(less + equal, k - 1);
    return q * (std::pow(less + equal, k) - std::pow(less, k)) / equal;
  }
  template <class Lane> Token rest(Lane& lane, const Trial& t, int node, int k) const {
    const auto above = [&](Token y) { return std::max(0.0, t.p(node)(y) - selected(t, node, k, y)); };
    const double mass = lane.sum(above);
    return lane.draw([&](Token y) { return mass > 0 ? above(y) / mass : double(t.p(node)(y)); },
                     {Role::residual, std::uint32_t(node), 0});
  }
};

// The target draws its own token, by name or by the race of its position; the child that holds it is followed.
struct MatchRule {
  RuleBug bug;
  bool race;
  template <class Lane> Verdict operator()(Lane& lane, const Trial& t) const {
    Verdict v;
    for (int node = 0;;) {
      const std::uint32_t below = bug == RuleBug::position_of_the_root ? 0 : std::uint32_t(v.length),
                          named = bug == RuleBug::one_draw_for_all_nodes ? 0 : std::uint32_t(node);
      Token next = race ? lane.race(t.p(node), t.position + below) : lane.draw(t.p(node), {Role::bonus, named, 0});
      if (bug == RuleBug::last_of_equals && t.p(node).row.one_hot)
        for (Token x = next + 1; x < t.vocab; ++x)
          if (t.p(node).logits[x] == t.p(node).row.peak) next = x;
      const int match = t.match(node, next);
      if (match < 0) return v.finish(next), v;
      v.follow(node = match, next);
    }
  }
};

}  // namespace

Entry<Verifier> best_rule(RuleBug bug) {
  return entry_of(BestRule{bug}, {.takes = {Drawn::chain, Drawn::independent}, .acceptance = Acceptance::other});
}
Entry<Verifier> match_rule(RuleBug bug) {
  return entry_of(MatchRule{bug, false}, {.takes = kEveryKind, .acceptance = Acceptance::product});
}
Entry<Verifier> race_rule(RuleBug bug) { return entry_of(MatchRule{bug, true}, {.takes = kEveryKind, .race = true}); }

}  // namespace foretoken::test
