// One round of one sequence as plain numbers: the tree, and the distributions at its nodes. What a lossy rule's
// distribution is stated on, for the conformance kit. This module must not know devices or verifiers.
#pragma once
#include <map>
#include <vector>

#include "framework/decode/draft_tree.h"

namespace foretoken {

struct Round {
  std::vector<std::int32_t> parents;  // [nodes]; parents[0] = -1
  std::vector<Token> tokens;          // [nodes]; the root's is not used, -1: absent
  std::vector<Drawn> drawn;           // [nodes]
  // [nodes][vocab]: after each node, the target's distribution, the same before warping (Trial::raw), and the
  // distribution from which its children were drawn (empty where none was).
  std::vector<std::vector<double>> p, raw, q;

  int nodes() const { return int(parents.size()); }
  // The children of a node in order, without absent ones.
  std::vector<int> children(int node) const {
    std::vector<int> found;
    for (int n = node + 1; n < nodes(); ++n)
      if (parents[std::size_t(n)] == node && tokens[std::size_t(n)] >= 0) found.push_back(n);
    return found;
  }
};

// The probability of each sequence of tokens that a round may emit: the accepted tokens, then the target's own.
using EmittedLaw = std::map<std::vector<Token>, double>;

}  // namespace foretoken
