#include "drafters/tree_shape.h"

#include <algorithm>
#include <map>
#include <string>

#include "drafters/published_trees.h"
#include "framework/text/json_file.h"
#include "kernels/error.h"

namespace foretoken {
namespace {

using Path = std::vector<int>;

const char* const kForms =
    "write how many children the nodes of each depth have, as in [4, 2, 1], or one path of ranks for each node, as in "
    "[[0], [1], [0, 0]]";

[[noreturn]] void refuse(const nlohmann::json& list, const std::string& why) {
  throw Error("the shape " + shown(list) + " of a draft tree " + why);
}

void expect_size(const nlohmann::json& list, std::size_t nodes, std::size_t depth) {
  if (depth > std::size_t(kMaxPath))
    refuse(list, "is " + std::to_string(depth) + " levels deep; give it at most " + std::to_string(kMaxPath));
  if (nodes > std::size_t(kMaxNodes))
    refuse(list, "has more than " + std::to_string(kMaxNodes) + " nodes, the root included; leave some out");
}

int count_at(const nlohmann::json& list, std::size_t depth) {
  const nlohmann::json& n = list[depth];
  if (!n.is_number_integer() || n.get<double>() < 1)
    refuse(list, "gives the nodes of depth " + std::to_string(depth) + " " + shown(n) +
                     " children; give them at least 1, or end the list before");
  return int(std::min(n.get<double>(), double(kMaxNodes)));
}

// Every path of a list of children per depth.
std::vector<Path> product(const nlohmann::json& list) {
  std::vector<Path> paths, level{{}};
  expect_size(list, 1, list.size());
  for (std::size_t depth = 0; depth < list.size(); ++depth) {
    const int children = count_at(list, depth);
    expect_size(list, 1 + paths.size() + level.size() * std::size_t(children), depth + 1);
    std::vector<Path> next;
    for (const Path& above : level)
      for (int rank = 0; rank < children; ++rank) {
        next.push_back(above);
        next.back().push_back(rank);
      }
    paths.insert(paths.end(), next.begin(), next.end());
    level = std::move(next);
  }
  return paths;
}

Path path_of(const nlohmann::json& list, const nlohmann::json& entry) {
  Path path;
  if (entry.empty()) refuse(list, "lists [], the root, which every tree has; leave it out");
  expect_size(list, 1, entry.size());
  for (const nlohmann::json& rank : entry) {
    const std::optional<int> number = integer_in(rank, 0, kMaxNodes - 1);
    if (!number)
      refuse(list, "lists the node " + shown(entry) + ", whose ranks are not all integers from 0 to " +
                       std::to_string(kMaxNodes - 1) + "; " + kForms);
    path.push_back(*number);
  }
  return path;
}

std::vector<Path> listed_paths(const nlohmann::json& list) {
  std::vector<Path> paths;
  expect_size(list, 1 + list.size(), 0);
  for (const nlohmann::json& entry : list) paths.push_back(path_of(list, entry));
  return paths;
}

std::string text_of(Path path) { return nlohmann::json(path).dump(); }

}  // namespace

TreeShape TreeShape::read(const nlohmann::json& list) {
  if (list.is_string()) return read(published_tree(list.get<std::string>()));
  const bool numbers = std::ranges::all_of(list, [](const nlohmann::json& e) { return e.is_number(); }),
             lists = std::ranges::all_of(list, [](const nlohmann::json& e) { return e.is_array(); });
  if (!list.is_array() || !(numbers || lists)) refuse(list, std::string("is no list of one kind; ") + kForms);
  if (list.empty()) refuse(list, std::string("has no node below the root; ") + kForms);
  std::vector<Path> paths = numbers ? product(list) : listed_paths(list);
  std::ranges::sort(paths,
                    [](const Path& a, const Path& b) { return a.size() != b.size() ? a.size() < b.size() : a < b; });
  TreeShape shape;
  std::map<Path, int> number{{{}, 0}};
  for (const Path& path : paths) {
    Path before = path;
    before.pop_back();
    const auto parent = number.find(before);
    if (parent == number.end())
      refuse(list, "lists the node " + text_of(path) + " without its parent " + text_of(before) + "; add it");
    if (number.contains(path)) refuse(list, "lists the node " + text_of(path) + " twice; leave one out");
    const int rank = path.back();
    before.push_back(rank - 1);
    if (rank > 0 && !number.contains(before))
      refuse(list, "lists the node " + text_of(path) + " without its better sibling " + text_of(before) + "; add it");
    number[path] = int(shape.nodes_.size());
    shape.nodes_.push_back({parent->second, rank, int(path.size())});
  }
  return shape;
}

bool TreeShape::chain() const {
  return std::ranges::none_of(nodes_, [](const Node& n) { return n.rank > 0; });
}

TreeShape::Cut TreeShape::cut(const Budget& budget) const {
  const int most = budget.or_root().nodes, deepest = budget.or_root().depth;
  std::size_t kept = 1;
  while (kept < nodes_.size() && int(kept) < most && nodes_[kept].depth <= deepest) ++kept;
  std::vector<bool> fed(kept, false);
  for (std::size_t n = kept - 1; n > 0; --n) {
    fed[std::size_t(nodes_[n].parent)] = true;
    if (fed[n] && nodes_[n].rank > 0) fed[n - 1] = true;  // its sibling
  }
  Cut c;
  std::vector<int> index(kept, 0);
  const auto add = [&](std::size_t n) {
    index[n] = int(c.nodes.size());
    c.nodes.push_back({n == 0 ? -1 : index[std::size_t(nodes_[n].parent)], int(n)});
  };
  add(0);
  for (std::size_t n = 1; n < kept; ++n) {
    if (!fed[n]) continue;
    add(n);
    c.fed.resize(std::size_t(nodes_[n].depth) + 1);
    c.fed.back() = int(c.nodes.size());
  }
  for (std::size_t n = 1; n < kept; ++n)
    if (!fed[n]) add(n);
  c.children.resize(std::size_t(c.fed.back()));
  for (std::size_t n = 1; n < kept; ++n)
    c.children[std::size_t(index[std::size_t(nodes_[n].parent)])].push_back(index[n]);
  return c;
}

void TreeShape::Cut::end_at(std::span<const int> ends) {
  std::vector<bool> ended(nodes.size(), false);
  for (const int n : ends) ended[std::size_t(n)] = true;
  std::vector<int> index(nodes.size(), -1);
  Cut left;
  left.fed.assign(fed.size(), 0), left.nodes.reserve(nodes.size());
  for (std::size_t n = 0; n < nodes.size(); ++n) {
    const int parent = nodes[n].parent, above = parent < 0 ? -1 : index[std::size_t(parent)];
    if (parent >= 0 && (above < 0 || ended[std::size_t(parent)])) continue;
    index[n] = int(left.nodes.size());
    left.nodes.push_back({above, nodes[n].number});
    for (std::size_t depth = 0; depth < fed.size(); ++depth) left.fed[depth] += int(n) < fed[depth];
  }
  while (left.fed.size() > 1 && left.fed.back() == left.fed[left.fed.size() - 2]) left.fed.pop_back();
  left.children.resize(std::size_t(left.fed.back()));
  for (std::size_t n = 1; n < left.nodes.size(); ++n)
    left.children[std::size_t(left.nodes[n].parent)].push_back(int(n));
  *this = std::move(left);
}

}  // namespace foretoken
