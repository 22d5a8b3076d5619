// The best shapes of draft trees by the dynamic program of Sequoia (Chen et al. 2024, arXiv 2402.12374, section 4.1):
// the child at place k of an accepted node is accepted with a known probability, here one for each level. This module
// must not know where the probabilities come from.
#pragma once
#include <vector>

namespace foretoken {

class BestTrees {
 public:
  // [level][place]: the probability that this child of an accepted node is the accepted one; level 0: below the root.
  // Places beyond the end have none, so no tree is wider or deeper than these lists.
  using Probabilities = std::vector<std::vector<double>>;
  // Trees of at most `most_nodes` nodes, the root included.
  BestTrees(Probabilities probabilities, int most_nodes);

  int levels() const { return int(probabilities_.size()); }
  // Tokens emitted per round by the best tree of at most so many nodes and levels: 1, and the probability of each node
  // below the root that it is accepted.
  double tau(int nodes, int levels) const { return value(0, levels)[std::size_t(nodes - 1)]; }
  // Its nodes below the root, as paths of places: the form that `shape` of draft_tree takes. Parents precede.
  std::vector<std::vector<int>> shape(int nodes, int levels) const;

 private:
  // [nodes - 1]: expected accepted nodes of the best subtree below an accepted node at `level`, itself included, with
  // at most `levels` more levels.
  const std::vector<double>& value(int level, int levels) const;
  // [place][nodes]: the same of the children from that place on, without their parent.
  std::vector<std::vector<double>> children(int level, int levels) const;
  void grow(const std::vector<int>& path, int nodes, int levels, std::vector<std::vector<int>>& paths) const;

  Probabilities probabilities_;
  int most_nodes_;
  std::vector<std::vector<std::vector<double>>> values_;  // [levels][level]
};

}  // namespace foretoken
