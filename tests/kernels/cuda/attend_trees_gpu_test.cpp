// Trees and long contexts on the GPU: a node has the bits of the row of the chain that it becomes, whatever is beside
// it in the batch, wherever chunks begin, and however many blocks share its context.
#include <gtest/gtest.h>

#include "tests/kernels/cuda/gpu.h"

namespace foretoken::testing {
namespace {

constexpr double kBf16Tolerance = 8e-3;
// A bound of the context so loose that the sums of its chunks do not fit: one block takes each tile.
constexpr int kUnbounded = 1 << 27;

Tensor fetched(const Tensor& t) {
  Tensor host = Tensor::host(t.shape(), t.dtype());
  gpu().copy(t, host);
  if (t.dtype() == DType::f32) return host;
  Tensor wide = Tensor::host(t.shape(), DType::f32);
  for (std::int64_t i = 0; i < wide.elements(); ++i) wide.data<float>()[i] = float(host.data<bf16>()[i]);
  return wide;
}
Tensor attend(const Tensor& q, const KvLayer& kv, Layout layout, int bound = 0) {
  layout.deepest = std::max(layout.deepest, bound);
  return fetched(gpu().attend(gpu().upload(q), kv, on_gpu(layout), 0.1f));
}

// A tree behind a prefix: its rows, and the slots of each node's path. Of the first nodes, `trunk` are a chain that is
// part of the prefix of the others, as the engine lays out the first path of a tree.
struct Tree {
  std::vector<ScenarioRow> rows;
  std::vector<std::vector<int>> paths;

  // The parent of node n is one of the `near` nodes before it, or the trunk's last.
  Tree(int owner, int prefix, int trunk, int nodes, int near, unsigned seed) {
    std::mt19937 engine(seed);
    for (int n = 0; n < trunk; ++n) {
      rows.push_back(chain_row(owner, prefix + n));
      paths.push_back(n == 0 ? std::vector<int>{} : paths.back());
      paths.back().push_back(prefix + n);
    }
    const int visible = prefix + trunk, words = (nodes - trunk + 63) / 64;
    for (int n = trunk; n < nodes; ++n) {
      const int parent = std::max(trunk - 1, n - 1 - int(engine() % unsigned(near)));
      paths.push_back(parent < 0 ? std::vector<int>{} : paths[std::size_t(parent)]);
      paths.back().push_back(prefix + n);
      ScenarioRow row{owner, prefix + n, prefix + int(paths.back().size()) - 1, visible,
                      std::vector<std::uint64_t>(std::size_t(words), 0)};
      for (int slot : paths.back())
        if (slot >= visible)
          row.ancestors[std::size_t((slot - visible) / 64)] |= std::uint64_t(1) << (slot - visible) % 64;
      rows.push_back(row);
    }
  }
};

struct Shape4 {
  int head_size = 128, group = 4, kv_heads = 2, page_rows = 16;
};

// Every node of `tree`, sequence 1 of two, beside the rows of sequence 0: the reference's values, the bits of one block
// a tile, of the node alone, and of its path as a chain.
void expect_chain_bits(const Shape4& c, const Tree& tree, int prefix, unsigned seed) {
  const int nodes = int(tree.rows.size()), words = int(tree.rows.back().ancestors.size());
  SCOPED_TRACE(::testing::Message() << nodes << " nodes behind " << prefix << ", heads of " << c.head_size << ", group "
                                    << c.group << ", seed " << seed);
  const std::unique_ptr<Backend> cpu = make_cpu_backend(2), reference = make_reference_backend();
  Cache cache(2, prefix + nodes, c.page_rows, c.kv_heads, c.head_size, DType::bf16, seed);
  fill(*cpu, cache, prefix + nodes, seed);
  const Tensor q = rounded(random_tensor({nodes, std::int64_t(c.kv_heads) * c.group * c.head_size}, seed));
  const KvLayer kv = on_gpu(cache.layers[0]);
  const Layout layout = layout_of(tree.rows, cache.tables, words);
  const Tensor y = attend(q, kv, layout), unsplit = attend(q, kv, layout, kUnbounded);
  ASSERT_TRUE(same_bits(y, unsplit));
  Tensor seen = Tensor::host(q.shape(), DType::f32);
  for (std::int64_t i = 0; i < seen.elements(); ++i) seen.data<float>()[i] = float(q.data<bf16>()[i]);
  const int last = nodes - 1, some = std::max(0, nodes - 4);
  EXPECT_LT(
      distance(y.rows(some, nodes - some),
               reference->attend(seen.rows(some, nodes - some), cache.layers[0],
                                 layout_of({tree.rows.begin() + some, tree.rows.end()}, cache.tables, words), 0.1f)),
      kBf16Tolerance);
  for (int n = 0; n<nodes; n += n + 1 + nodes / 6> last && n < last ? last - n : 1 + nodes / 6) {
    ASSERT_TRUE(
        same_row(attend(q.rows(n, 1), kv, layout_of({tree.rows[std::size_t(n)]}, cache.tables, words)), 0, y, n))
        << "node " << n << " alone";
    Cache compact(2, prefix + nodes, c.page_rows, c.kv_heads, c.head_size, DType::bf16, seed);
    std::memcpy(compact.pool.raw(), cache.pool.raw(), std::size_t(cache.pool.bytes()));
    const std::vector<int>& path = tree.paths[std::size_t(n)];
    std::vector<std::int32_t> from(path.begin(), path.end()), to;
    for (std::size_t i = 0; i < path.size(); ++i) to.push_back(prefix + int(i));
    move(*reference, compact, 1, from, to);
    const Layout chain = layout_of({chain_row(1, prefix + int(path.size()) - 1)}, compact.tables, 0);
    ASSERT_TRUE(same_row(attend(q.rows(n, 1), on_gpu(compact.layers[0]), chain), 0, y, n))
        << "node " << n << " as a chain";
  }
}

TEST(AttendTrees, nodes_have_the_bits_of_their_paths_around_every_kind_of_boundary) {
  unsigned seed = 0;
  for (const int head_size : {64, 128})
    for (const int prefix : {0, 37, 63, 64, 100, 127, 1000, 2040, 2240, 4090}) {
      const Shape4 c{.head_size = head_size, .group = 1 + int(seed % 8)};
      expect_chain_bits(c, Tree(1, prefix, int(seed % 4), 8 + int(seed * 7 % 57), 5, seed), prefix, seed);
      ++seed;
    }
}

TEST(AttendTrees, deep_and_wide_trees_of_256_nodes) {
  for (const int head_size : {64, 128})
    for (const int prefix : {63, 1900, 4070}) {
      expect_chain_bits({.head_size = head_size}, Tree(1, prefix, 1, 256, 3, 1), prefix, 1);      // some 128 levels
      expect_chain_bits({.head_size = head_size}, Tree(1, prefix, 1, 256, 200, 2), prefix, 2);    // some 8
      expect_chain_bits({.head_size = head_size}, Tree(1, prefix, 100, 256, 256, 3), prefix, 3);  // a long first path
    }
  expect_chain_bits({.head_size = 80, .group = 3}, Tree(1, 500, 1, 200, 9, 4), 500, 4);
  expect_chain_bits({.group = 12, .kv_heads = 1}, Tree(1, 500, 1, 100, 9, 5), 500, 5);
  expect_chain_bits({.head_size = 64, .page_rows = 5}, Tree(1, 130, 2, 100, 9, 6), 130, 6);
  expect_chain_bits({.page_rows = 64}, Tree(1, 130, 2, 100, 9, 7), 130, 7);
}

TEST(AttendTrees, behind_long_contexts) {
  for (const int head_size : {64, 128})
    for (const int prefix : {8200, 16370})
      expect_chain_bits({.head_size = head_size}, Tree(1, prefix, 1, 40, 6, 3), prefix, 3);
}

// A window that begins within the prefix, in its last step, or among a node's ancestors: the row of the chain has it
// too.
TEST(AttendTrees, windows) {
  constexpr int kPrefix = 200, kNodes = 90;
  for (const int head_size : {64, 128})
    for (const int window : {1, 3, 20, 70, 150, 1000}) {
      SCOPED_TRACE(::testing::Message() << "window " << window << ", heads of " << head_size);
      Cache cache(2, kPrefix + kNodes, 16, 2, head_size, DType::bf16, 3);
      fill(*make_cpu_backend(2), cache, kPrefix + kNodes, 3);
      Tree tree(1, kPrefix, 1, kNodes, 2, 3);
      std::vector<std::int32_t> first;
      for (std::size_t n = 0; n < tree.rows.size(); ++n) {  // as KvCache: no bits of ancestors before the window
        ScenarioRow& row = tree.rows[n];
        first.push_back(std::max(0, row.position + 1 - window));
        for (std::size_t i = 0; i < tree.paths[n].size(); ++i) {
          const int slot = tree.paths[n][i], bit = slot - row.visible;
          if (bit >= 0 && kPrefix + int(i) < first.back())
            row.ancestors[std::size_t(bit / 64)] &= ~(std::uint64_t(1) << bit % 64);
        }
      }
      const Tensor q = rounded(random_tensor({kNodes, std::int64_t(8) * head_size}, 3));
      Layout layout = layout_of(tree.rows, cache.tables, 2);
      layout.first = integers(first);
      const Tensor y = attend(q, on_gpu(cache.layers[0]), layout);
      ASSERT_TRUE(same_bits(y, attend(q, on_gpu(cache.layers[0]), layout, kUnbounded)));
      for (int n = 0; n < kNodes; n += 11) {
        Cache compact(2, kPrefix + kNodes, 16, 2, head_size, DType::bf16, 3);
        std::memcpy(compact.pool.raw(), cache.pool.raw(), std::size_t(cache.pool.bytes()));
        const std::vector<int>& path = tree.paths[std::size_t(n)];
        std::vector<std::int32_t> from(path.begin(), path.end()), to;
        for (std::size_t i = 0; i < path.size(); ++i) to.push_back(kPrefix + int(i));
        move(*make_reference_backend(), compact, 1, from, to);
        Layout chain = layout_of({chain_row(1, kPrefix + int(path.size()) - 1)}, compact.tables, 0);
        chain.first = integers({first[std::size_t(n)]});
        ASSERT_TRUE(same_row(attend(q.rows(n, 1), on_gpu(compact.layers[0]), chain), 0, y, n)) << "node " << n;
      }
    }
}

// Rows of chains and prompts, alone and shared by blocks, around every depth from which chunks are longer.
TEST(AttendTrees, chunks_of_every_length) {
  for (const int head_size : {64, 128}) {
    Cache cache(2, 16500, 16, 2, head_size, DType::bf16, 3);
    fill(*make_cpu_backend(2), cache, 16500, 3);
    const KvLayer kv = on_gpu(cache.layers[0]);
    for (const int begin : {2030, 2300, 4080, 8180, 16370}) {
      SCOPED_TRACE(::testing::Message() << "from " << begin << ", heads of " << head_size);
      std::vector<ScenarioRow> rows;
      for (int r = 0; r < 40; ++r) rows.push_back(chain_row(1, begin + r));
      const Tensor q = rounded(random_tensor({40, std::int64_t(8) * head_size}, 5));
      const Layout layout = layout_of(rows, cache.tables, 0);
      const Tensor y = attend(q, kv, layout);
      ASSERT_TRUE(same_bits(y, attend(q, kv, layout, kUnbounded))) << "one block a tile";
      for (int r = 0; r < 40; r += 3) {
        const Layout one = layout_of({rows[std::size_t(r)]}, cache.tables, 0);
        ASSERT_TRUE(same_row(attend(q.rows(r, 1), kv, one), 0, y, r)) << "row " << r;
        ASSERT_TRUE(same_row(attend(q.rows(r, 1), kv, one, kUnbounded), 0, y, r)) << "row " << r;
      }
    }
  }
}

struct Fused {
  Tensor y, pool;
};
Fused rope_attend(const Cache& cache, const Layout& layout, const Tensor& qkv, int heads) {
  KvLayer kv = on_gpu(cache.layers[0]);
  const std::int64_t nq = std::int64_t(heads) * kv.head_size, nkv = std::int64_t(kv.kv_heads) * kv.head_size;
  const Tensor x = gpu().upload(qkv), frequencies = gpu().upload(random_tensor({kv.head_size / 2}, 3));
  const Tensor y = gpu().rope_attend(x.columns(0, nq), x.columns(nq, nkv), x.columns(nq + nkv, nkv), kv, on_gpu(layout),
                                     frequencies, 0.1f);
  return {fetched(y), [&] {
            const Tensor host = Tensor::host(kv.pool.shape(), kv.pool.dtype());
            gpu().copy(kv.pool, host);
            return host;
          }()};
}

// A batch of single rows, a chain and a prompt, then trees: apart (Layout::straight) and together, in one call.
TEST(AttendTrees, rows_beside_trees_have_the_bits_that_they_have_alone) {
  for (const int head_size : {64, 128})
    for (const int prompt : {1, 8, 150}) {
      SCOPED_TRACE(::testing::Message() << "a prompt of " << prompt << ", heads of " << head_size);
      Cache cache(6, 700, 16, 2, head_size, DType::bf16, 3);
      fill(*make_cpu_backend(2), cache, 690, 3);
      std::vector<ScenarioRow> rows{chain_row(0, 599), chain_row(1, 5)};
      for (int r = 0; r < prompt; ++r) rows.push_back(chain_row(2, 300 + r));
      const std::int64_t straight = std::int64_t(rows.size());
      for (const auto& [owner, prefix, nodes] : {std::tuple{3, 515, 24}, {4, 60, 64}, {5, 0, 3}}) {
        const Tree tree(owner, prefix, 1, nodes, 6, unsigned(owner));
        rows.insert(rows.end(), tree.rows.begin(), tree.rows.end());
      }
      const Tensor qkv = rounded(random_tensor({std::int64_t(rows.size()), std::int64_t(12) * head_size}, 4));
      const Layout together = layout_of(rows, cache.tables, 1), apart = with_straight(together);
      ASSERT_EQ(apart.straight.sequences, 3);
      ASSERT_EQ(apart.straight.rows, straight);
      const Fused a = rope_attend(cache, together, qkv, 8), b = rope_attend(cache, apart, qkv, 8);
      EXPECT_TRUE(same_bits(a.y, b.y));
      EXPECT_EQ(std::memcmp(a.pool.raw(), b.pool.raw(), std::size_t(a.pool.bytes())), 0);
      const Tensor q = qkv.columns(0, 8 * head_size);
      const KvLayer kv = on_gpu(cache.layers[0]);
      EXPECT_TRUE(same_bits(attend(q, kv, together), attend(q, kv, apart)));
      Layout without = layout_of({rows.begin(), rows.begin() + straight}, cache.tables, 0);
      EXPECT_TRUE(same_bits(rope_attend(cache, without, qkv.rows(0, straight), 8).y, b.y.rows(0, straight)));
    }
}

}  // namespace
}  // namespace foretoken::testing
