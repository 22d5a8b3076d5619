// Draft trees in tests of attention: their rows as a cache lays them out, and the path of each node as a chain.
#pragma once
#include "kernels/host_backend.h"
#include "tests/kernels/scenario.h"

namespace foretoken::test {

// A tree behind a prefix of sequence `owner`; node n is in slot prefix + n.
struct Tree {
  int owner = 0, prefix = 0;
  std::vector<ScenarioRow> rows{};
  std::vector<std::vector<int>> paths{};  // of each node: the slots behind the prefix, down to its own

  int nodes() const { return int(rows.size()); }
  int slots() const { return paths.empty() ? prefix : paths.back().back() + 1; }
  int words() const {
    std::size_t most = 0;
    for (const ScenarioRow& row : rows) most = std::max(most, row.ancestors.size());
    return int(most);
  }

  // A node below node `parent` (-1: the prefix), whose prefix has `visible` slots.
  void add(int parent, int visible) {
    const int slot = prefix + nodes();
    paths.push_back(parent < 0 ? std::vector<int>{} : paths[std::size_t(parent)]);
    paths.back().push_back(slot);
    ScenarioRow row{owner, slot, prefix + int(paths.back().size()) - 1, visible,
                    std::vector<std::uint64_t>(std::size_t(slot + 1 - visible + 63) / 64)};
    for (const int s : paths.back())
      if (s >= visible) row.ancestors[std::size_t(s - visible) / 64] |= std::uint64_t(1) << (s - visible) % 64;
    rows.push_back(row);
  }
  // The same with the prefix that KvCache::Held::append gives it: the trunk of its path is a part of it.
  void append(int parent) {
    const int slot = prefix + nodes(), above = parent < 0 ? prefix : rows[std::size_t(parent)].visible;
    add(parent, parent == nodes() - 1 && above == slot ? slot + 1 : above);
  }

  // Rows [begin, begin + count). Of a window, as KvCache: bits of ancestors before it are not set.
  Layout layout(const Tensor& tables, int window = 0, int begin = 0, int count = -1) const {
    std::vector<ScenarioRow> some(rows.begin() + begin, count < 0 ? rows.end() : rows.begin() + begin + count);
    for (std::size_t r = 0; window > 0 && r < some.size(); ++r) {
      const std::vector<int>& path = paths[std::size_t(begin) + r];
      for (int i = 0; i < int(path.size()) - window; ++i)
        if (const int bit = path[std::size_t(i)] - some[r].visible; bit >= 0)
          some[r].ancestors[std::size_t(bit) / 64] &= ~(std::uint64_t(1) << bit % 64);
    }
    const Layout all = layout_of(some, tables, words());
    return window > 0 ? windowed(all, window) : all;
  }
  // Node n as the last row of its path, in a cache of as_chain().
  Layout chain(int n, const Tensor& tables, int window = 0) const {
    const Layout one = layout_of({chain_row(owner, rows[std::size_t(n)].position)}, tables, 0);
    return window > 0 ? windowed(one, window) : one;
  }
  // A copy of `cache` in which the path of node n is moved to the slots of a chain.
  Cache as_chain(int n, const Cache& cache) const {
    Cache moved = cache;
    moved.pool = copy_of(cache.pool);
    for (KvLayer& kv : moved.layers) kv.pool = moved.pool;
    const std::vector<std::int32_t> from(paths[std::size_t(n)].begin(), paths[std::size_t(n)].end());
    std::vector<std::int32_t> to;
    for (std::size_t i = 0; i < from.size(); ++i) to.push_back(prefix + int(i));
    move(*make_reference_backend(), moved, owner, from, to);
    return moved;
  }
};

// The parent of each node is any earlier node or the prefix.
inline Tree random_tree(int owner, int prefix, int nodes, std::mt19937& engine) {
  Tree tree{owner, prefix};
  for (int n = 0; n < nodes; ++n) tree.add(int(engine() % unsigned(n + 1)) - 1, prefix);
  return tree;
}

}  // namespace foretoken::test
