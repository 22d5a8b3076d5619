#include <algorithm>
#include <vector>

#include "kernels/lane.h"
#include "tests/support/rule_mutant_entries.h"

namespace foretoken::test {
namespace {

struct RecursiveRule {
  RuleBug bug;
  bool has(RuleBug b) const { return bug == b; }

  template <class Lane> Verdict operator()(Lane& lane, const Trial& t) const {
    Verdict v;
    for (int node = 0;;) {
      auto r = lane.open(t.p(node), t.q(node));
      double left = 1, before = 1;
      std::vector<Token> gone;
      int chosen = -1, draws = 0, guesses = 0;
      if (has(RuleBug::absent_is_refused) && t.first[node] >= 0 && t.child(node, node) != t.first[node] &&
          !t.certain(t.first[node]))
        lane.reject_draw(r);
      for (const int c : family(t, node)) {
        if (accepted(lane, t, node, c, r, has(RuleBug::repeatless_left_one_late) ? before : left, draws)) {
          chosen = c;
          break;
        }
        before = left;
        if (repeatless(t, c) || has(RuleBug::independent_as_repeatless)) {
          gone.push_back(t.tokens[c]);
          left =
              has(RuleBug::repeatless_left_is_rounding) ? left - t.q(node)(t.tokens[c]) : mass_without(gone, t.q(node));
        }
        reject(lane, t, c, r, before, t.certain(c) ? ++guesses : ++draws, v.length + 1);
      }
      if (chosen < 0) return finish(lane, t, v, node, r, draws + guesses > 0);
      v.follow(node = chosen, t.tokens[chosen]);
    }
  }

 private:
  static double mass_without(const std::vector<Token>& gone, const Distribution& q) {
    double mass = 0;
    for (Token x = 0; x < q.vocab; ++x)
      if (std::ranges::find(gone, x) == gone.end()) mass += q(x);
    return mass;
  }
  std::vector<int> family(const Trial& t, int node) const {
    std::vector<int> all;
    for (int c = t.child(node, node); c >= 0; c = t.child(node, c)) all.push_back(c);
    if (has(RuleBug::last_sibling_first)) std::ranges::reverse(all);
    return all;
  }
  std::uint32_t named(int node) const { return std::uint32_t(has(RuleBug::names_of_eight_nodes) ? node % 8 : node); }

  template <class Lane, class R>
  bool accepted(Lane& lane, const Trial& t, int node, int c, const R& r, double left, int draws) const {
    const Token x = t.tokens[c];
    if (has(RuleBug::last_sibling_is_certain) && t.child(node, c) < 0 && t.child(node, node) != c) return true;
    const bool once = (repeatless(t, c) || has(RuleBug::independent_as_repeatless)) &&
                      !has(RuleBug::repeatless_not_renormalized) && !has(RuleBug::repeatless_as_independent);
    double ratio = t.certain(c) ? r(x) : r(x) / t.q(node)(x) * (once ? left : 1);
    if (has(RuleBug::guess_after_draws_of_p) && t.certain(c) && draws > 0) ratio = t.p(node)(x);
    if (has(RuleBug::squared_ratio)) ratio *= ratio;
    const int first = t.child(node, node), last = has(RuleBug::names_of_four_siblings) ? first + 4 : c;
    return lane.accept(ratio, {Role::accept, named(has(RuleBug::shared_uniform) ? first : std::min(c, last)), 0});
  }
  // Whether the refusal of this draw, or guess, changes nothing.
  bool forgets(bool guess, int number, int depth) const {
    if (guess)
      return (number == 2 && has(RuleBug::no_update_after_second_guess)) ||
             (number == 3 && has(RuleBug::no_update_after_third_guess)) ||
             (number >= 17 && has(RuleBug::no_update_from_17th_guess));
    return (number == 2 && has(RuleBug::no_update_after_second_draw)) ||
           (number == 3 && has(RuleBug::no_update_after_third_draw)) ||
           (number == 4 && has(RuleBug::no_update_after_fourth_draw)) ||
           (number == 2 && depth > 6 && has(RuleBug::no_update_deep)) ||
           (number >= 17 && has(RuleBug::no_update_from_17th_draw)) || (depth > 1 && has(RuleBug::first_family_alone));
  }
  template <class Lane, class R>
  void reject(Lane& lane, const Trial& t, int c, R& r, double left, int number, int depth) const {
    const bool guess = t.certain(c);
    if (forgets(guess, number, depth)) return;
    const double before = r.mass;
    if (guess && !has(RuleBug::guess_as_draw))
      lane.reject_guess(r, t.tokens[c]);
    else if ((repeatless(t, c) && !has(RuleBug::repeatless_as_independent)) || has(RuleBug::independent_as_repeatless))
      lane.reject_once(r, t.tokens[c], left);
    else
      lane.reject_draw(r);
    if (guess && has(RuleBug::guess_not_renormalized)) r.mass = before;
  }
  template <class Lane, class R>
  Verdict finish(Lane& lane, const Trial& t, Verdict& v, int node, const R& r, bool tried) const {
    DrawName name{tried ? Role::residual : Role::bonus, named(node), 0};
    if (has(RuleBug::residual_shares_uniform) && tried) name = {Role::accept, std::uint32_t(t.child(node, node)), 0};
    const int vocab = t.vocab, most = has(RuleBug::residual_of_256_tokens)   ? 256
                                      : has(RuleBug::residual_of_512_tokens) ? 512
                                                                             : vocab;
    if (has(RuleBug::bonus_of_parent) && !tried && node > 0)
      v.finish(lane.draw(t.p(t.parents[node]), name));
    else if (!tried)
      v.finish(lane.draw(r, name));
    else if (has(RuleBug::residual_without_middle))
      v.finish(lane.draw(cut(r, vocab, [vocab](Token x, double) { return x < 512 || x >= vocab - 256; }), name));
    else if (has(RuleBug::residual_without_rarities))
      v.finish(lane.draw(cut(r, vocab, [](Token, double p) { return p >= 1e-5; }), name));
    else if (most < vocab)
      v.finish(lane.draw(cut(r, vocab, [most](Token x, double) { return x < most; }), name));
    else
      v.finish(lane.draw(r, name));
    return v;
  }
  // What a residual has where keeps(token, probability) holds.
  template <class R, class F> static auto cut(const R& r, int vocab, F keeps) {
    double mass = 0;
    for (Token x = 0; x < vocab; ++x) mass += keeps(x, r(x)) ? r(x) : 0;
    return [r, keeps, mass](Token x) { return mass > 0 && keeps(x, r(x)) ? r(x) / mass : 0.0; };
  }
};

struct KSeqRule {
  RuleBug bug;
  bool has(RuleBug b) const { return bug == b; }

  template <class Lane> Verdict operator()(Lane& lane, const Trial& t) const {
    Verdict v;
    for (int node = 0;;) {
      std::vector<int> family;
      for (int c = t.child(node, node); c >= 0; c = t.child(node, c)) family.push_back(c);
      const int k = has(RuleBug::absent_are_counted) ? all_children(t, node) : int(family.size());
      const double rho = has(RuleBug::rho_is_one)    ? 1
                         : has(RuleBug::rho_below_k) ? std::max(1, k - 1)
                                                     : k,
                   beta = sum_of_offers(t, node, rho);
      int chosen = -1;
      for (const int c : family)
        if (chosen < 0 &&
            lane.accept(t.p(node)(t.tokens[c]) / (rho * t.q(node)(t.tokens[c])), {Role::accept, std::uint32_t(c), 0}))
          chosen = c;
      if (chosen < 0) {
        v.finish(rest(lane, t, node, rho, beta, k));
        return v;
      }
      v.follow(node = chosen, t.tokens[chosen]);
    }
  }

 private:
  static int all_children(const Trial& t, int node) {
    int n = 0;
    for (int c = t.first[node]; c >= 0; c = t.next[c]) ++n;
    return n;
  }
  static double offer(const Trial& t, int node, double rho, Token x) {
    return std::min(double(t.q(node)(x)), double(t.p(node)(x)) / rho);
  }
  double sum_of_offers(const Trial& t, int node, double rho) const {
    double beta = 0;
    for (Token x = 0; x < (has(RuleBug::beta_of_512_tokens) ? std::min(512, t.vocab) : t.vocab); ++x)
      beta += offer(t, node, rho, x);
    return beta;
  }
  template <class Lane> Token rest(Lane& lane, const Trial& t, int node, double rho, double beta, int k) const {
    const DrawName name{Role::residual, std::uint32_t(node), 0};
    double f = 0;
    for (int j = 0; j < k; ++j) f = f * (1 - beta) + 1;
    const auto above = [&](Token x) {
      const double taken = has(RuleBug::residual_of_recursion) ? double(t.q(node)(x)) : f * offer(t, node, rho, x);
      return std::max(0.0, t.p(node)(x) - (k > 0 ? taken : 0));
    };
    const double mass = lane.sum(above);
    return lane.draw([&](Token x) { return mass > 0 ? above(x) / mass : t.p(node)(x); }, name);
  }
};

}  // namespace

Entry<Verifier> recursive_rule(RuleBug bug) { return entry_of(RecursiveRule{bug}, {.takes = kEveryKind}); }
Entry<Verifier> k_seq_rule(RuleBug bug) {
  return entry_of(KSeqRule{bug}, {.takes = {Drawn::chain, Drawn::independent}});
}

}  // namespace foretoken::test
