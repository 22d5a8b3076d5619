// The best shape of a draft tree from stored results: `foretoken tree-shape`. It joins measured acceptance, measured
// step times and the program for the best tree.
#pragma once
#include <string>
#include <vector>

#include "experiments/report/result.h"

namespace foretoken {

struct TreeShapeOptions {
  int nodes = 0;                     // the most nodes of a tree, the root included
  std::vector<std::string> where{};  // POINTER=VALUE: only runs that have this value there
  std::string format = "terminal";   // terminal, markdown, csv, json
  int width = 118;
};

// Tables and a part of a run document with the tree that is predicted to emit the most tokens per second; without step
// times the one that emits the most tokens per round. Results without runs of trees of a fixed shape, runs that differ
// in more than shape and policy, too few rounds, or lines of before these counts are an Error.
std::string tree_shape(const std::vector<Result>& results, const TreeShapeOptions& options);

}  // namespace foretoken
