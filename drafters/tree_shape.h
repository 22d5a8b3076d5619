// The fixed shape of a draft tree, as users write it and as a drafter grows it. This module must not know tokens,
// distributions or models.
#pragma once
#include <span>
#include <vector>

#include <nlohmann/json.hpp>

#include "framework/decode/draft_tree.h"

namespace foretoken {

class TreeShape {
 public:
  // A node: child number `rank` (from 0, the best) of `parent`.
  struct Node {
    int parent = -1, rank = 0, depth = 0;
  };

  // Reads the name of a published tree (published_tree), or a list of one of two forms. Numbers: every node of depth d
  // has list[d] children; [4, 2, 1] has 4 + 8 + 8 nodes below the root. Paths: one for each node below the root, the
  // ranks from the root down to it, in any order;
  // [[0], [1], [0, 0]]. So Medusa (arXiv 2401.10774: medusa_choices) and EAGLE (2401.15077: tree choices) publish their
  // shapes. Throws Error for anything else, for a path whose parent or whose sibling of the rank before is missing, and
  // for more than kMaxNodes nodes (the root included) or kMaxPath levels.
  static TreeShape read(const nlohmann::json& list);

  // Breadth first: by depth, then by parent, then by rank. nodes()[0] is the root.
  const std::vector<Node>& nodes() const { return nodes_; }
  bool chain() const;                                                         // whether no node has siblings
  Budget whole() const { return {int(nodes_.size()), nodes_.back().depth}; }  // the least that cuts nothing

  // The part of the shape that a budget allows, in the order in which a model drafts it. The budget's levels come
  // first; of their nodes the first in breadth-first order, so that the best ranks stay.
  struct Cut {
    struct Node {
      int parent = -1;
      int number = 0;  // of the node in nodes(): names its draw, so that a cut changes no draw of what it leaves
    };
    // A parent is before its children, and siblings are in the order of their ranks. First, level by level, are the
    // nodes that the model is fed: those that have children or a later sibling that has. Then come the other leaves.
    std::vector<Node> nodes;
    std::vector<int> fed{1};  // nodes [fed[d - 1], fed[d]) are the fed nodes of depth d; [0, fed[0]) is the root
    std::vector<std::vector<int>> children;  // [fed.back()]: of each fed node, by rank

    // Takes away all that hangs below these nodes, which are fed. Fed nodes above, and of the first of their levels,
    // keep their places.
    void end_at(std::span<const int> ends);
  };
  Cut cut(const Budget& budget) const;

 private:
  std::vector<Node> nodes_{{}};
};

}  // namespace foretoken
