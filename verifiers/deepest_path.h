// For lossy rules that test every drafted token by itself: the deepest path of tokens that pass is accepted (the first
// of equals, nodes in the order of their parents), and the next token is drawn from the target's distribution after it.
// This header must not know which test a rule applies.
#pragma once
#include <functional>

#include "framework/components/verifier.h"

namespace foretoken {

// `test(lane, raw)` is called once for every node that is reached and has children; what it returns is called with
// (lane, token) for each child.
template <class Lane, class Test> FORETOKEN_HD Verdict follow_deepest(Lane& lane, const Trial& t, const Test& test) {
  std::uint8_t levels[kMaxNodes];  // of accepted nodes, the root's is 1; 0: not accepted
  for (int n = 0; n < t.nodes; ++n) levels[n] = n == 0;
  int deepest = 0;
  for (int node = 0; node < t.nodes; ++node) {
    if (levels[node] == 0 || levels[node] > kMaxPath || t.child(node, node) < 0) continue;
    const auto passes = test(lane, t.raw(node));
    for (int c = t.child(node, node); c >= 0; c = t.child(node, c)) {
      if (!passes(lane, t.tokens[c])) continue;
      levels[c] = std::uint8_t(levels[node] + 1);
      if (levels[c] > levels[deepest]) deepest = c;
    }
  }
  std::int32_t path[kMaxPath];
  const int length = levels[deepest] - 1;
  for (int k = length - 1, n = deepest; k >= 0; --k, n = t.parents[n]) path[k] = n;
  Verdict v;
  for (int k = 0; k < length; ++k) v.follow(path[k], t.tokens[path[k]]);
  v.finish(lane.draw(t.p(deepest), {Role::bonus, std::uint32_t(deepest), 0}));
  return v;
}

// The distribution that such a rule induces. `passes(raw, token)`: the test on plain numbers.
EmittedLaw deepest_path_law(const Round& round,
                            const std::function<bool(const std::vector<double>& raw, Token)>& passes);

}  // namespace foretoken
