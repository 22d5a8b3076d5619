#include "experiments/report/best_trees.h"

#include <algorithm>
#include <utility>

namespace foretoken {

BestTrees::BestTrees(Probabilities probabilities, int most_nodes)
    : probabilities_(std::move(probabilities)), most_nodes_(most_nodes) {
  values_.resize(probabilities_.size() + 1);
  for (int more = 0; more <= levels(); ++more)
    for (int level = 0; level + more <= levels(); ++level) {
      const std::vector<double> below =
          more == 0 ? std::vector<double>(std::size_t(most_nodes_), 0.0) : std::move(children(level, more).front());
      std::vector<double>& best = values_[std::size_t(more)].emplace_back();
      for (int n = 0; n < most_nodes_; ++n) best.push_back(1 + below[std::size_t(n)]);
    }
}

const std::vector<double>& BestTrees::value(int level, int levels) const {
  return values_[std::size_t(levels)][std::size_t(level)];
}

std::vector<std::vector<double>> BestTrees::children(int level, int levels) const {
  const std::vector<double>&p = probabilities_[std::size_t(level)], &below = value(level + 1, levels - 1);
  std::vector<std::vector<double>> best(p.size() + 1, std::vector<double>(std::size_t(most_nodes_), 0.0));
  for (std::size_t place = p.size(); place-- > 0;)
    for (std::size_t nodes = 1; nodes < std::size_t(most_nodes_); ++nodes)
      for (std::size_t own = 1; own <= nodes; ++own)
        best[place][nodes] = std::max(best[place][nodes], p[place] * below[own - 1] + best[place + 1][nodes - own]);
  return best;
}

void BestTrees::grow(const std::vector<int>& path, int nodes, int levels, std::vector<std::vector<int>>& paths) const {
  if (levels == 0) return;
  const int level = int(path.size());
  const std::vector<double>&p = probabilities_[std::size_t(level)], &below = value(level + 1, levels - 1);
  const auto best = children(level, levels);
  std::size_t left = std::size_t(nodes) - 1;
  for (std::size_t place = 0; place < p.size() && best[place][left] > 0; ++place) {
    std::size_t own = 1;  // the fewest nodes that reach the best
    while (p[place] * below[own - 1] + best[place + 1][left - own] < best[place][left]) ++own;
    std::vector<int> child = path;
    child.push_back(int(place));
    paths.push_back(child);
    grow(child, int(own), levels - 1, paths);
    left -= own;
  }
}

std::vector<std::vector<int>> BestTrees::shape(int nodes, int levels) const {
  std::vector<std::vector<int>> paths;
  grow({}, nodes, levels, paths);
  return paths;
}

}  // namespace foretoken
