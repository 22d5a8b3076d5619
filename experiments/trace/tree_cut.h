// A part of the drafted trees of a trace: what a shorter draft, a smaller budget or another shape would have drafted.
// This module must not know verifiers or times.
#pragma once
#include <set>
#include <string>
#include <vector>

#include "experiments/trace/trace.h"

namespace foretoken {

// A node as the ranks from the root down to it: {0, 2} is the third child of the first child.
using RankPath = std::vector<int>;

struct TreeCut {
  static constexpr int kAllLevels = kMaxPath + 1, kAllNodes = kMaxNodes + 1;
  // As of a Budget: levels first, then nodes in breadth-first order, the root among them.
  int depth = kAllLevels, nodes = kAllNodes;
  std::set<RankPath> shape{};  // nodes that are kept; empty: all
};

// The part of one recorded tree that a cut leaves.
struct CutTree {
  std::vector<int> nodes;  // their numbers in the recorded tree, parents before children, without the root
  std::vector<int> level;  // of each
  int depth = 0;
  bool chain = true;         // no node has siblings
  bool whole_levels = true;  // every node of each level is there
  int rows() const { return int(nodes.size()) + 1; }
};
CutTree cut_of(const TracedRound& round, const TreeCut& cut);

// What the trees of a trace have in common.
struct TracedShape {
  std::set<RankPath> nodes;  // of any tree
  int depth = 0;
  Budget budget;  // of the policy that drafted them, or what they have where that is not known
  // Whether every tree has all of these nodes down to its own depth. Else the shape depends on more than the depth, and
  // a smaller budget might have given other nodes.
  bool fixed = true;
};
TracedShape shape_of(const Trace& trace);

// Throws Error, one sentence, where a cut asks for more than the budget allowed, or what it leaves is not known.
void expect_inside(const TracedShape& shape, const TreeCut& cut, const std::string& who);

}  // namespace foretoken
