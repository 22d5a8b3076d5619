#include <algorithm>
#include <numeric>

#include "kernels/lane.h"
#include "tests/support/rule_mutant_entries.h"

namespace foretoken::test {
namespace {

struct BlockRule {
  RuleBug bug;
  bool has(RuleBug b) const { return bug == b; }

  template <class Lane> Verdict operator()(Lane& lane, const Trial& t) const {
    std::vector<int> path{0};
    std::vector<double> weights{1};
    for (int c; (c = t.child(path.back(), path.back())) >= 0; path.push_back(c)) {
      const int node = path.back();
      const Token x = t.tokens[c];
      const double ratio = t.p(node)(x) / (t.certain(c) ? 1 : t.q(node)(x)), before = weights.back();
      const bool alone = (has(RuleBug::weight_forgotten_beyond_six) && path.size() == 7) ||
                         (has(RuleBug::weight_forgotten_beyond_twelve) && path.size() == 13) ||
                         (has(RuleBug::last_level_token_wise) && t.child(c, c) < 0);
      const bool kept = has(RuleBug::guesses_keep_the_weight) && t.certain(c);
      const double w = kept ? before : (alone ? 1 : before) * ratio;
      weights.push_back(has(RuleBug::weight_not_capped) ? w : std::min(1.0, w));
    }
    std::size_t end = 0;
    if (has(RuleBug::from_the_root_down))
      while (end + 1 < path.size() && ends(lane, t, path, weights, end + 1)) ++end;
    else
      for (end = path.size() - 1; end > 0 && !ends(lane, t, path, weights, end);) --end;
    Verdict v;
    for (std::size_t k = 1; k <= end; ++k) v.follow(path[k], t.tokens[path[k]]);
    v.finish(next(lane, t, path, weights, end));
    return v;
  }

 private:
  template <class Lane> bool ends(Lane& lane, const Trial& t, const std::vector<int>& path,
                                  const std::vector<double>& weights, std::size_t k) const {
    const std::uint32_t named = std::uint32_t(has(RuleBug::one_uniform_for_all_levels) ? path.back() : path[k]);
    double h = weights[k];
    if (k + 1 < path.size() && !has(RuleBug::inner_nodes_end_with_weight)) {
      const bool whole = has(RuleBug::rest_of_whole_p) && t.certain(path[k + 1]);
      const double rest = lane.sum([&](Token x) { return above(t, path[k], path[k + 1], whole ? 1 : weights[k], x); });
      h = rest > 0 ? rest / (rest + 1 - weights[k]) : 0;
    }
    return lane.accept(h, {Role::accept, named, 0});
  }
  static double above(const Trial& t, int node, int child, double weight, Token x) {
    const double q = t.certain(child) ? (x == t.tokens[child] ? 1 : 0) : t.q(node)(x);
    return std::max(0.0, weight * t.p(node)(x) - q);
  }
  template <class Lane> Token next(Lane& lane, const Trial& t, const std::vector<int>& path,
                                   const std::vector<double>& weights, std::size_t end) const {
    const int node = path[end];
    if (end + 1 == path.size()) return lane.draw(t.p(node), {Role::bonus, std::uint32_t(node), 0});
    const double weight = has(RuleBug::residual_without_weight) ? 1 : weights[end];
    const auto rest = [&](Token x) { return above(t, node, path[end + 1], weight, x); };
    const double mass = lane.sum(rest);
    return lane.draw([&](Token x) { return mass > 0 ? rest(x) / mass : t.p(node)(x); },
                     {Role::residual, std::uint32_t(node), 0});
  }
};

// By plain vectors and recursion.
struct TraversalRule {
  RuleBug bug;
  bool has(RuleBug b) const { return bug == b; }
  struct State {
    std::vector<double> r, q;
    double weight;
  };

  template <class Lane> Verdict operator()(Lane& lane, const Trial& t) const {
    Verdict v;
    std::vector<int> path;
    (void)visit(lane, t, 0, 1, path, v);
    return v;
  }

 private:
  static std::vector<double> values(const Distribution& d) {
    std::vector<double> p;
    for (Token x = 0; x < d.vocab; ++x) p.push_back(d(x));
    return p;
  }
  // Whether the path ends in the subtree of `node`.
  template <class Lane>
  bool visit(Lane& lane, const Trial& t, int node, double weight, std::vector<int>& path, Verdict& v) const {
    State s{values(t.p(node)), values(t.q(node)), weight};
    bool tried = false;
    const bool of_p = has(RuleBug::second_subtree_of_p) || (has(RuleBug::deep_siblings_of_p) && path.size() >= 6);
    for (int c = t.child(node, node); c >= 0; c = t.child(node, c), tried = true) {
      const std::size_t x = std::size_t(t.tokens[c]);
      const double p = of_p ? t.p(node)(Token(x)) : s.r[x];
      path.push_back(c);
      if (visit(lane, t, c, std::min(1.0, s.weight * p / (t.certain(c) ? 1 : s.q[x])), path, v)) return true;
      path.pop_back();
      take_out(t, node, c, s);
    }
    if (node != 0 && !lane.accept(s.weight, {Role::accept, std::uint32_t(node), 0})) return false;
    for (const int n : path) v.follow(n, t.tokens[n]);
    v.finish(lane.draw([&](Token x) { return s.r[std::size_t(x)]; },
                       {tried ? Role::residual : Role::bonus, std::uint32_t(node), 0}));
    return true;
  }
  void take_out(const Trial& t, int node, int c, State& s) const {
    const std::size_t at = std::size_t(t.tokens[c]);
    const double weight = has(RuleBug::rejection_without_weight) ? 1 : s.weight;
    double rest = 0;
    std::vector<double> above;
    for (std::size_t x = 0; x < s.r.size(); ++x) {
      above.push_back(std::max(0.0, weight * s.r[x] - (t.certain(c) ? (x == at ? 1 : 0) : s.q[x])));
      rest += above.back();
    }
    if (rest > 0)
      for (std::size_t x = 0; x < s.r.size(); ++x) s.r[x] = above[x] / rest;
    const bool keeps =
        has(RuleBug::weight_kept_after_rejection) || (has(RuleBug::weight_kept_below_root) && t.parents[node] > 0);
    if (node != 0 && !keeps) s.weight = rest > 0 ? rest / (rest + 1 - s.weight) : 0;
    if (!repeatless(t, c) || has(RuleBug::traversal_ignores_repeats)) return;
    if (has(RuleBug::left_of_first_sibling) && t.child(node, node) != c) return;
    const double rounding = 1 - s.q[at];
    s.q[at] = 0;
    const double left = has(RuleBug::left_is_rounding) ? rounding : std::accumulate(s.q.begin(), s.q.end(), 0.0);
    for (double& q : s.q) q = left > 0 ? q / left : 0;
  }
};

}  // namespace

Entry<Verifier> block_rule(RuleBug bug) { return entry_of(BlockRule{bug}, {.takes = kEveryKind}); }
Entry<Verifier> traversal_rule(RuleBug bug) { return entry_of(TraversalRule{bug}, {.takes = kEveryKind}); }

}  // namespace foretoken::test
