// Rules for children that no verifier of the project has yet, for proofs on the host and for comparison on the GPU.
#pragma once
#include <array>
#include <cstring>

#include "framework/components/verifier.h"

namespace foretoken::test {

// Siblings drawn in order without repeats (Sequoia, arXiv 2402.12374): the q of each lacks the siblings before it.
// kForgetful: a biased rule, which treats them as drawn independently.
template <bool kForgetful> struct WithoutReplacement {
  template <class Lane> FORETOKEN_HD Verdict operator()(Lane& lane, const Trial& t) const {
    Verdict v;
    for (int node = 0;;) {
      auto r = lane.open(t.p(node), t.q(node));
      const Distribution q = t.q(node);
      double left = 1;
      int chosen = -1;
      for (int c = t.child(node, node); c >= 0 && chosen < 0; c = t.child(node, c)) {
        const Token x = t.tokens[c];
        if (lane.accept(r(x) * left / q(x), {Role::accept, std::uint32_t(c), 0})) {
          chosen = c;
        } else if (kForgetful) {
          lane.reject_draw(r);
        } else {
          lane.reject_once(r, x, left);
          left -= q(x);
        }
      }
      if (chosen < 0) {
        v.finish(lane.draw(r, {Role::residual, std::uint32_t(node), 0}));
        return v;
      }
      v.follow(node = chosen, t.tokens[chosen]);
    }
  }
};

// A whole chain verified together (block verification, arXiv 2403.10444): needs a scaled residual and sums over the
// vocabulary.
struct Block {
  template <class Lane> FORETOKEN_HD Verdict operator()(Lane& lane, const Trial& t) const {
    double keep = 1, keep_at_best = 1;
    int best = 0;
    const int last = t.nodes - 1;
    for (int i = 1; i <= last; ++i) {
      const Token x = t.tokens[i];
      const double ratio = keep * t.p(i - 1)(x) / t.q(i - 1)(x);
      keep = ratio < 1 ? ratio : 1;
      double h = keep;
      if (i < last) {
        const Distribution p = t.p(i), q = t.q(i);
        const auto sums = lane.template sums<2>([&](Token y) {
          const double d = keep * p(y) - q(y);
          return std::array<double, 2>{d > 0 ? d : 0.0, d < 0 ? -d : 0.0};
        });
        const double rest = sums[0] + 1 - keep;  // = sums[1] but for rounding
        h = rest > 0 ? sums[0] / rest : 1;
      }
      if (lane.accept(h, {Role::accept, std::uint32_t(i), 0})) best = i, keep_at_best = keep;
    }
    Verdict v;
    for (int i = 1; i <= best; ++i) v.follow(i, t.tokens[i]);
    auto r = lane.open(t.p(best), t.q(best));
    if (best < last) {
      r.scale = keep_at_best;
      lane.reject_draw(r);
    }
    v.finish(lane.draw(r, {best < last ? Role::residual : Role::bonus, std::uint32_t(best), 0}));
    return v;
  }
};

// Every operation on combined distributions, as a rule would mix them; the verdict's tokens are the bits of the sums,
// then a token of the residual and one drawn by weights.
struct Combining {
  struct Above {
    double factor;
    FORETOKEN_HD double operator()(double r, double q) const {
      const double d = add(r, -mul(factor, q));
      return d > 0 ? d : 0;
    }
  };
  struct Four {
    FORETOKEN_HD std::array<double, 4> operator()(double r, double q) const {
      return {r < q ? r : q, Above{0.75}(r, q), r, mul(q, q)};
    }
  };
  template <class Lane> FORETOKEN_HD Verdict operator()(Lane& lane, const Trial& t) const {
    const Distribution q = t.q(0);
    auto r = lane.open(t.p(0), q);
    lane.reject_guess(r, t.tokens[1]);
    Verdict v;
    keep(v, lane.template sums<4>(combined(r, q, Four{})));
    lane.reject_draw(r);  // its running sums are kept until the next draw, but for sums() between
    keep(v, lane.template sums<4>(combined(r, q, Four{})));
    keep(v, std::array<double, 1>{lane.sum(combined(r, OneHot{t.tokens[1]}, Above{0.5}))});
    v.follow(-1, lane.draw(r, {Role::residual, 0, 0}));
    v.follow(-1, lane.draw_weighted(combined(r, q, Above{1e9}), {Role::residual, 2, 0}));
    v.finish(lane.draw_weighted(combined(t.p(0), q, Above{0.75}), {Role::residual, 1, 0}));
    return v;
  }

 private:
  template <std::size_t N> FORETOKEN_HD static void keep(Verdict& v, const std::array<double, N>& sums) {
    for (std::size_t k = 0; k < N; ++k) {
      Token words[2];
      memcpy(words, &sums[k], sizeof words);
      v.follow(-1, words[0]), v.follow(-1, words[1]);  // no node: only what is emitted counts here
    }
  }
};

// Rejects more guesses than any tree has nodes.
struct Refusing {
  template <class Lane> FORETOKEN_HD Verdict operator()(Lane& lane, const Trial& t) const {
    auto r = lane.open(t.p(0), t.q(0));
    for (int i = 0; i <= kMostGuesses; ++i) lane.reject_guess(r, t.tokens[1]);
    Verdict v;
    v.finish(0);
    return v;
  }
};

}  // namespace foretoken::test
