// Trees and long contexts on the GPU: a node has the bits of the row of the chain that it becomes, whatever is beside
// it in the batch, wherever chunks begin, and however many blocks share its context.
#include <gtest/gtest.h>

#include "kernels/cuda/attention/plans.h"
#include "kernels/cuda/attention/routes.h"
#include "tests/kernels/cuda/gpu.h"
#include "tests/kernels/trees.h"

namespace foretoken::test {
namespace {

constexpr double kTreeTolerance = 8e-3;
constexpr int kShared = 1000;  // a prefix from which on the prompt route shares contexts

Tensor attend(const Tensor& q, const KvLayer& kv, const Layout& layout) {
  return fetched_wide(gpu().attend(gpu().upload(q), kv, on_gpu(layout), 0.1f));
}
AttendPlan plan_of(const Tensor& q, const KvLayer& kv, const Layout& layout) {
  return attend_plan(gpu(), gpu().upload(q), kv, on_gpu(layout));
}
// The same by one block for each tile.
Tensor attend_unsplit(const Tensor& q, const KvLayer& kv, Layout layout) {
  layout.deepest = kUnbounded;
  EXPECT_EQ(plan_of(q, kv, layout).splits, 1);
  return attend(q, kv, layout);
}

// Of the first nodes, `trunk` are a chain that is part of the prefix of the others, as the engine lays out the first
// path of a tree. The parent of another node is one of the `near` nodes before it, or the trunk's last.
Tree near_tree(int prefix, int trunk, int nodes, int near, unsigned seed, int owner = 1) {
  std::mt19937 engine(seed);
  Tree tree{owner, prefix};
  for (int n = 0; n < trunk; ++n) tree.add(n - 1, prefix + n + 1);
  for (int n = trunk; n < nodes; ++n)
    tree.add(std::max(trunk - 1, n - 1 - int(engine() % unsigned(near))), prefix + trunk);
  return tree;
}

struct Shape4 {
  int head_size = 128, group = 4, kv_heads = 2, page_rows = 16;
  DType cache = DType::bf16;
  int window = 0;
};

// The last nodes have the reference's values.
void expect_values(const Shape4& c, const Tree& tree, const Cache& cache, const Tensor& q, const Tensor& y) {
  const int some = std::min(tree.nodes(), 4), from = tree.nodes() - some;
  const Tensor seen = Tensor::host({some, q.dim(1)}, DType::f32);
  for (std::int64_t i = 0; i < seen.elements(); ++i) seen.data<float>()[i] = float(q.row<bf16>(from)[i]);
  const Layout layout = tree.layout(cache.tables, c.window, from, some);
  EXPECT_LT(distance(y.rows(from, some), make_reference_backend()->attend(seen, cache.layers[0], layout, 0.1f)),
            kTreeTolerance);
}

// The nodes of `tree`, a part of sequence 1 of two: values, the bits of one block a tile, of a node alone, and of its
// path as a chain. Returns the plan of all together.
AttendPlan expect_chain_bits(const Shape4& c, const Tree& tree, unsigned seed) {
  const int nodes = tree.nodes(), last = nodes - 1;
  SCOPED_TRACE(::testing::Message() << nodes << " nodes behind " << tree.prefix << ", heads of " << c.head_size
                                    << ", group " << c.group << ", " << name_of(c.cache) << ", window " << c.window
                                    << ", seed " << seed);
  Cache cache(2, tree.slots(), c.page_rows, c.kv_heads, c.head_size, c.cache, seed);
  fill(*make_cpu_backend(2), cache, tree.slots(), seed);
  const Tensor q = rounded(random_tensor({nodes, std::int64_t(c.kv_heads) * c.group * c.head_size}, seed));
  const KvLayer kv = on_gpu(cache.layers[0]);
  const Layout layout = tree.layout(cache.tables, c.window);
  const AttendPlan plan = plan_of(q, kv, layout);
  EXPECT_TRUE(plan.route != AttendRoute::prompt || tree.prefix < kShared || plan.splits > 1) << "nothing is split";
  const Tensor y = attend(q, kv, layout);
  EXPECT_TRUE(same_bits(y, attend_unsplit(q, kv, layout)));
  expect_values(c, tree, cache, q, y);
  for (int n = 0; n < nodes; n = n < last ? std::min(n + 1 + nodes / 6, last) : nodes) {
    const Tensor one = q.rows(n, 1);
    EXPECT_TRUE(same_row(attend(one, kv, tree.layout(cache.tables, c.window, n, 1)), 0, y, n)) << "node " << n;
    const Cache moved = tree.as_chain(n, cache);
    EXPECT_TRUE(same_row(attend(one, on_gpu(moved.layers[0]), tree.chain(n, moved.tables, c.window)), 0, y, n))
        << "node " << n << " as a chain";
  }
  return plan;
}

TEST(AttendTrees, nodes_have_the_bits_of_their_paths_around_every_kind_of_boundary) {
  unsigned seed = 0;
  for (const int head_size : {64, 128})
    for (const int prefix : {0, 37, 63, 64, 100, 127, 1000, 2040, 2240, 4090}) {
      const Shape4 c{.head_size = head_size, .group = 1 + int(seed % 8)};
      expect_chain_bits(c, near_tree(prefix, int(seed % 4), 8 + int(seed * 7 % 57), 5, seed), seed);
      ++seed;
    }
}

TEST(AttendTrees, deep_and_wide_trees_of_256_nodes) {
  for (const int head_size : {64, 128})
    for (const int prefix : {63, 1900, 4070}) {
      expect_chain_bits({.head_size = head_size}, near_tree(prefix, 1, 256, 3, 1), 1);      // some 128 levels
      expect_chain_bits({.head_size = head_size}, near_tree(prefix, 1, 256, 200, 2), 2);    // some 8
      expect_chain_bits({.head_size = head_size}, near_tree(prefix, 100, 256, 256, 3), 3);  // a long first path
    }
  expect_chain_bits({.head_size = 80, .group = 3}, near_tree(500, 1, 200, 9, 4), 4);
  expect_chain_bits({.group = 12, .kv_heads = 1}, near_tree(500, 1, 100, 9, 5), 5);
  expect_chain_bits({.head_size = 64, .page_rows = 5}, near_tree(130, 2, 100, 9, 6), 6);
  expect_chain_bits({.page_rows = 64}, near_tree(130, 2, 100, 9, 7), 7);
}

TEST(AttendTrees, behind_long_contexts) {
  for (const int head_size : {64, 128})
    for (const int prefix : {8200, 16370})
      expect_chain_bits({.head_size = head_size}, near_tree(prefix, 1, 40, 6, 3), 3);
}

// Branches that leave the first path at different nodes, as the engine lays them out: prefixes of different lengths in
// one tile.
TEST(AttendTrees, branches_of_unlike_prefixes) {
  for (const int head_size : {64, 128})
    for (const int group : {1, 4})
      for (const int prefix : {37, 60, 100, 120, 1000, 2040}) {
        std::mt19937 engine{unsigned(prefix)};
        Tree tree{1, prefix};
        for (int n = 0; n < 60; ++n) tree.append(n - 1);
        for (int n = 60; n < 120; ++n) tree.append(n % 2 == 0 ? int(engine() % 60) : n - 1);
        expect_chain_bits({.head_size = head_size, .group = group}, tree, unsigned(prefix));
      }
}

// Two rows of one tile as far apart as a layout allows: their own steps fill the ring.
TEST(AttendTrees, rows_whose_own_steps_fill_the_ring) {
  for (const int prefix : {62, 1342}) {
    Tree tree{1, prefix};
    for (int n = 0; n < 64; ++n) tree.append(n - 1);
    tree.append(0);
    while (tree.rows.back().slot + 1 < tree.rows.back().visible + 64 * kMostTreeWords)
      tree.append(std::max(63, tree.nodes() - 1 - tree.nodes() % 3));
    ASSERT_EQ(tree.rows.back().visible - tree.rows[64].visible, kMostVisibleApart);
    tree.rows = {tree.rows[64], tree.rows.back()}, tree.paths = {tree.paths[64], tree.paths.back()};
    for (const int head_size : {64, 128}) expect_chain_bits({.head_size = head_size}, tree, 3);
  }
}

// More nodes than a draft tree keeps, which a draft model may be fed: the tiles route.
TEST(AttendTrees, of_five_words) {
  for (const int head_size : {64, 128})
    for (const int prefix : {250, 2040}) {
      std::mt19937 engine(5);
      Tree tree{1, prefix};
      for (int n = 0; n < 316; ++n) tree.append(n == 0 ? -1 : std::max(0, n - 1 - int(engine() % 40)));
      ASSERT_EQ(tree.words(), kMostTreeWords + 1);
      EXPECT_EQ(expect_chain_bits({.head_size = head_size}, tree, 5).route, AttendRoute::tiles);
    }
}

// A window that begins within the prefix, in its last step, or among a node's ancestors: the row of the chain has it
// too.
TEST(AttendTrees, windows) {
  for (const int head_size : {64, 128})
    for (const int window : {1, 3, 20, 70, 150, 1000})
      expect_chain_bits({.head_size = head_size, .window = window}, near_tree(200, 1, 90, 2, 3), 3);
}

// The same on the routes of tiles.
TEST(AttendTrees, windows_of_wide_heads_and_of_codes) {
  for (const auto& [cache, head_size] :
       {std::pair{DType::bf16, 256}, {DType::i8, 64}, {DType::i8, 256}, {DType::e4m3, 64}, {DType::e4m3, 128}})
    for (const int window : {3, 70})
      expect_chain_bits({.head_size = head_size, .cache = cache, .window = window}, near_tree(200, 1, 200, 2, 3), 3);
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
      const AttendPlan plan = plan_of(q, kv, layout);
      EXPECT_TRUE(plan.route != AttendRoute::prompt || plan.splits > 1) << "nothing is split";
      const Tensor y = attend(q, kv, layout);
      ASSERT_TRUE(same_bits(y, attend_unsplit(q, kv, layout))) << "one block a tile";
      for (int r = 0; r < 40; r += 3) {
        const Layout one = layout_of({rows[std::size_t(r)]}, cache.tables, 0);
        ASSERT_TRUE(same_row(attend(q.rows(r, 1), kv, one), 0, y, r)) << "row " << r;
        ASSERT_TRUE(same_row(attend_unsplit(q.rows(r, 1), kv, one), 0, y, r)) << "row " << r;
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
  return {fetched_wide(y), [&] {
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
        const Tree tree = near_tree(prefix, 1, nodes, 6, unsigned(owner), owner);
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
}  // namespace foretoken::test
