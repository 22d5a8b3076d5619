// Computed on the lanes of the verifiers. Compiled by nvcc where there is a CUDA device.
#include "experiments/trace/node_numbers.h"

#include <algorithm>

namespace foretoken {
namespace {

struct Numbers {
  const Trial* trials;
  const Verdict* verdicts;
  NodeNumbers* numbers;  // of all trials, in the order of their rows of p

  template <class Lane> FORETOKEN_HD void operator()(Lane& lane, int i) const {
    const Trial t = trials[i].near(lane);
    NodeNumbers* const of = numbers + (trials[i].p_rows - trials[0].p_rows);
    for (int n = 0; n < t.nodes; ++n)
      if (t.child(n, n) >= 0) family(lane, t, n, of);
    const Verdict& v = verdicts[i];
    if (v.next < 0 || v.next >= t.vocab || v.length < 0 || v.length > kMaxPath) return;
    const int last = v.length > 0 ? v.path[v.length - 1] : 0;
    if (last < 0 || last >= t.nodes) return;  // expect_verdict refuses it
    lane.each(1, [&](int) {
      of[last].p_next = t.p(last)(v.next);
      if (t.q_logits[last]) of[last].q_next = t.q(last)(v.next);
    });
  }

 private:
  // The children of node n, as recursive rejection tries them.
  template <class Lane> FORETOKEN_HD static void family(Lane& lane, const Trial& t, int n, NodeNumbers* of) {
    auto r = lane.open(t.p(n), t.q(n));
    double left = 1;  // the mass of q without the earlier siblings, where they were drawn without replacement
    bool drawn = false;
    for (int c = t.child(n, n); c >= 0; c = t.child(n, c)) {
      const Token x = t.tokens[c];
      const bool guess = t.certain(c), once = Drawn(t.drawn[c]) == Drawn::without_replacement;
      const double p = t.p(n)(x), q = guess ? 1 : t.q(n)(x);
      const double ratio = once ? mul(r(x), left) / q : r(x) / q;
      lane.each(1, [&](int) { of[c].p = p, of[c].q = q, of[c].accept = ratio < 1 ? ratio : 1; });
      drawn |= !guess;
      if (guess)
        lane.reject_guess(r, x);
      else if (once)
        lane.reject_once(r, x, left), left = t.mass_after(lane, n, c);
      else
        lane.reject_draw(r);
    }
    if (!drawn) return;
    const Distribution p = t.p(n), q = t.q(n);
    const double overlap = lane.sum([p, q](Token x) {
      const double a = p(x), b = q(x);
      return a < b ? a : b;
    });
    lane.each(1, [&](int) { of[n].overlap = overlap; });
  }
};

}  // namespace

std::vector<NodeNumbers> node_numbers(Backend& backend, const Trials& trials, const Tensor& verdicts) {
  std::vector<NodeNumbers> found(std::size_t(trials.p().rows.dim(0)));
  const Shape shape{std::int64_t(found.size()), std::int64_t(sizeof(NodeNumbers))};
  const Tensor host = Tensor::host(shape, DType::u8);
  std::copy(found.begin(), found.end(), host.data<NodeNumbers>());
  const Tensor numbers = backend.upload(host);
  launch(backend, trials.count(), trials.draws(), trials.vocab(),
         Numbers{trials.trials(), verdicts.data<const Verdict>(), numbers.data<NodeNumbers>()});
  backend.fetch(numbers, host);
  backend.synchronize();
  std::copy_n(host.data<NodeNumbers>(), found.size(), found.begin());
  return found;
}

namespace {

struct OneToken {
  bool race;
  template <class Lane> FORETOKEN_HD Verdict operator()(Lane& lane, const Trial& t) const {
    Verdict v;
    if (race)
      v.finish(lane.race(t.p(0), t.position));
    else  // by the same arithmetic and name as the token after a bare root
      v.finish(lane.draw(lane.open(t.p(0), t.p(0)), {Role::bonus, 0, 0}));
    return v;
  }
};

}  // namespace

std::unique_ptr<Verifier> one_token(bool race) { return std::make_unique<RuleVerifier<OneToken>>(OneToken{race}); }

}  // namespace foretoken
