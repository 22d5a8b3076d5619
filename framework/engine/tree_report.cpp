#include "framework/engine/tree_report.h"

#include <algorithm>

namespace foretoken {
namespace {

// The depth of each node: -1 where it or a node above it is absent.
void find_depths(std::span<const std::int32_t> parents, std::span<const Token> tokens, std::vector<int>& depth) {
  depth.assign(parents.size(), 0);
  for (std::size_t n = 1; n < depth.size(); ++n) {
    const int parent = depth[std::size_t(parents[n])];
    depth[n] = parent < 0 || tokens[n] < 0 ? -1 : parent + 1;
  }
}

// The levels at which children of the accepted path were tested.
std::vector<TestedLevel> tested_levels(std::span<const std::int32_t> parents, std::span<const std::int32_t> path,
                                       const std::vector<int>& depth) {
  if (parents.size() == 1) return {};
  std::vector<TestedLevel> levels(path.size() + 1);
  const auto on_path = [&](int node) {  // the nodes of a path have the depths 0, 1, 2, ...
    const int d = depth[std::size_t(node)];
    return d >= 0 && d <= int(path.size()) && node == (d == 0 ? 0 : path[std::size_t(d) - 1]);
  };
  for (std::size_t n = 1; n < parents.size(); ++n) {
    if (depth[n] <= 0 || !on_path(parents[n])) continue;
    TestedLevel& level = levels[std::size_t(depth[n]) - 1];
    if (on_path(int(n))) level.accepted = level.children;
    ++level.children;
  }
  if (levels.back().children == 0) levels.pop_back();
  return levels;
}

}  // namespace

void report_tree(SequenceReport& report, std::span<const std::int32_t> parents, std::span<const Token> tokens,
                 std::span<const std::int32_t> path, int kept, std::vector<int>& depth) {
  find_depths(parents, tokens, depth);
  report.drafted = int(std::ranges::count_if(depth, [](int d) { return d > 0; }));
  report.depth = *std::ranges::max_element(depth);
  report.levels = tested_levels(parents, path, depth);
  // Where the output ended within the path, nothing behind its end was used: those levels count as not tested.
  if (kept <= int(path.size())) report.levels.resize(std::size_t(kept));
  report.accepted = std::min(kept, int(path.size())), report.rejected = int(report.levels.size()) > report.accepted;
}

}  // namespace foretoken
