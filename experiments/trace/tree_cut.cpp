#include "experiments/trace/tree_cut.h"

#include <algorithm>

#include "kernels/error.h"

namespace foretoken {
namespace {

std::vector<RankPath> paths_of(const TracedRound& round) {
  std::vector<RankPath> paths(std::size_t(round.size()));
  std::vector<int> children(paths.size(), 0);
  for (int n = 1; n < round.size(); ++n) {
    const std::size_t parent = std::size_t(round.node(n).parent);
    paths[std::size_t(n)] = paths[parent];
    paths[std::size_t(n)].push_back(children[parent]++);
  }
  return paths;
}

bool shallower(const RankPath& a, const RankPath& b) { return a.size() != b.size() ? a.size() < b.size() : a < b; }

std::string text_of(const RankPath& path) { return nlohmann::json(path).dump(); }

}  // namespace

CutTree cut_of(const TracedRound& round, const TreeCut& cut) {
  const std::vector<RankPath> paths = paths_of(round);
  std::vector<int> order;
  for (int n = 1; n < round.size(); ++n) {
    const RankPath& path = paths[std::size_t(n)];
    if (int(path.size()) <= cut.depth && (cut.shape.empty() || cut.shape.contains(path))) order.push_back(n);
  }
  std::ranges::sort(order, [&](int a, int b) { return shallower(paths[std::size_t(a)], paths[std::size_t(b)]); });
  if (int(order.size()) > cut.nodes - 1) order.resize(std::size_t(std::max(0, cut.nodes - 1)));
  CutTree left;
  left.nodes = order;
  for (const int n : order) {
    const RankPath& path = paths[std::size_t(n)];
    left.level.push_back(int(path.size())), left.depth = std::max(left.depth, int(path.size()));
    left.chain &= path.back() == 0;
  }
  const auto within = std::ranges::count_if(paths, [&](const RankPath& p) { return int(p.size()) <= left.depth; });
  left.whole_levels = std::size_t(within) == order.size() + 1;
  return left;
}

TracedShape shape_of(const Trace& trace) {
  TracedShape shape;
  std::set<std::set<RankPath>> kinds;  // few, however many rounds there are
  for (const auto& step : trace.steps)
    for (const TracedRound& r : step.rounds) {
      const std::vector<RankPath> paths = paths_of(r);
      kinds.insert({paths.begin() + 1, paths.end()});
    }
  for (const auto& kind : kinds) shape.nodes.insert(kind.begin(), kind.end());
  for (const RankPath& path : shape.nodes) shape.depth = std::max(shape.depth, int(path.size()));
  for (const auto& kind : kinds) {
    std::size_t deepest = 0;
    for (const RankPath& path : kind) deepest = std::max(deepest, path.size());
    const auto down_to = std::ranges::count_if(shape.nodes, [&](const RankPath& p) { return p.size() <= deepest; });
    shape.fixed &= std::size_t(down_to) == kind.size();
  }
  shape.budget = trace.budget().value_or(Budget{int(shape.nodes.size()) + 1, shape.depth});
  return shape;
}

void expect_inside(const TracedShape& shape, const TreeCut& cut, const std::string& who) {
  if (cut.depth > shape.budget.depth && cut.depth != TreeCut::kAllLevels)
    throw Error(who + " asks for " + std::to_string(cut.depth) + " levels, but the drafts of this trace had at most " +
                std::to_string(shape.budget.depth) + "; record a trace with longer drafts");
  if (cut.nodes > shape.budget.nodes && cut.nodes != TreeCut::kAllNodes)
    throw Error(who + " asks for " + std::to_string(cut.nodes) + " nodes, but the drafts of this trace had at most " +
                std::to_string(shape.budget.nodes) + "; record a trace with larger trees");
  for (const RankPath& path : cut.shape)
    if (!shape.nodes.contains(path))
      throw Error(who + " asks for the node " + text_of(path) +
                  ", which the trees of this trace do not have; record a "
                  "trace with wider trees");
  const bool smaller = !cut.shape.empty() || cut.depth < shape.depth || cut.nodes < int(shape.nodes.size()) + 1;
  if (smaller && !shape.fixed)
    throw Error(who +
                " asks for a part of the trees, whose shapes vary in this trace, so that a smaller budget might "
                "have given other nodes; ask for the whole trees, or record a trace of a drafter of fixed shape");
}

}  // namespace foretoken
