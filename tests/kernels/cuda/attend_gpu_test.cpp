// attend on the GPU against the reference: every size of head and group, ragged sequences, trees, windows, padding
// rows; and a row has the same bits alone, among others, as a node of a tree, and as the row of the chain that the node
// becomes.
#include <gtest/gtest.h>

#include "kernels/error.h"
#include "tests/kernels/cuda/gpu.h"
#include "tests/kernels/trees.h"

namespace foretoken::test {
namespace {

// Weights of the softmax are rounded to bf16 (2^-9) before they are multiplied by the values, and so is the result
// where q is bf16.
constexpr double kBf16Tolerance = 8e-3, kF32Tolerance = 5e-6;

// kv is on the GPU, everything else on the host; the output is f32 for any type of q.
Tensor attend(const Tensor& q, const KvLayer& kv, const Layout& layout, float scale) {
  const Tensor y = gpu().attend(gpu().upload(q), kv, on_gpu(layout), scale);
  EXPECT_EQ(y.dtype(), q.dtype());
  return fetched_wide(y);
}

struct Case {
  int head_size = 64, group = 4, kv_heads = 2, page_rows = 16;
  DType cache = DType::bf16, queries = DType::f32;
  int window = 0;
};

// Rows of four sequences, one of which has none: part of a prompt, single rows, a chain across a chunk boundary.
std::vector<ScenarioRow> some_rows() {
  std::vector<ScenarioRow> rows;
  for (int slot = 0; slot < 45; ++slot) rows.push_back(chain_row(0, 236 + slot));
  for (int slot : {3, 869, 300}) rows.push_back(chain_row(1, slot));
  for (int slot = 505; slot < 517; ++slot) rows.push_back(chain_row(3, slot));
  return rows;
}

void compare(const Case& c, unsigned seed) {
  SCOPED_TRACE(::testing::Message() << "head " << c.head_size << ", group " << c.group << ", page_rows " << c.page_rows
                                    << ", cache " << name_of(c.cache) << ", window " << c.window);
  const std::unique_ptr<Backend> reference = make_reference_backend();
  Cache cache(4, 900, c.page_rows, c.kv_heads, c.head_size, c.cache, seed);
  fill(*reference, cache, 880, seed);
  const std::vector<ScenarioRow> rows = some_rows();
  const auto layout_for = [&](const std::vector<ScenarioRow>& some) {
    const Layout layout = layout_of(some, cache.tables, 0);
    return c.window > 0 ? windowed(layout, c.window) : layout;
  };
  const Layout layout = layout_for(rows);
  const Tensor q =
      random_tensor({std::int64_t(rows.size()), std::int64_t(c.kv_heads) * c.group * c.head_size}, seed + 5);
  const Tensor given = c.queries == DType::bf16 ? rounded(q) : q,
               seen = c.cache != DType::f32 || c.queries == DType::bf16 ? through_bf16(q) : q;
  const float scale = 1 / std::sqrt(float(c.head_size));
  const KvLayer kv = on_gpu(cache.layers[1]);
  const Tensor y = attend(given, kv, layout, scale);
  EXPECT_LT(distance(y, reference->attend(seen, cache.layers[1], layout, scale)),
            c.cache != DType::f32 || c.queries == DType::bf16 ? kBf16Tolerance : kF32Tolerance);
  for (std::size_t r = 0; r < rows.size(); ++r) {
    Layout one = layout_for({rows[r]});
    one.deepest += int(r % 3) * 700;  // a looser bound splits the context differently
    ASSERT_TRUE(same_row(attend(given.rows(std::int64_t(r), 1), kv, one, scale), 0, y, std::int64_t(r))) << "row " << r;
  }
}

TEST(Attend, HeadSizes) {
  for (int size : {8, 32, 48, 64, 80, 96, 128, 256, 288}) compare({.head_size = size}, unsigned(size));
  compare({.head_size = 20}, 7);
}

TEST(Attend, Groups) {
  for (int group = 1; group <= 8; ++group)
    compare({.group = group, .queries = group % 2 ? DType::bf16 : DType::f32}, unsigned(group));
  compare({.head_size = 128, .group = 12, .kv_heads = 1}, 12);
}

TEST(Attend, Pages) {
  for (int page_rows : {1, 5, 7, 16, 24, 48, 64, 96})
    compare({.head_size = 128, .page_rows = page_rows, .queries = DType::bf16}, unsigned(page_rows));
}

TEST(Attend, Windows) {
  for (int window : {1, 33, 100, 300, 2000}) {
    compare({.head_size = 64, .window = window}, unsigned(window));
    compare({.head_size = 128, .group = 1, .page_rows = 8, .cache = DType::f32, .window = window}, unsigned(window));
  }
}

TEST(Attend, SinglePrecision) {
  for (int size : {20, 64, 128}) compare({.head_size = size, .cache = DType::f32}, unsigned(size));
  compare({.cache = DType::f32, .queries = DType::bf16}, 3);
}

TEST(Attend, Codes) {
  for (const DType cache : {DType::i8, DType::e4m3}) {
    for (int size : {16, 32, 48, 64, 80, 128, 144, 256, 272})
      compare({.head_size = size, .cache = cache}, unsigned(size));
    compare({.head_size = 20, .cache = cache}, 7);
    for (int group : {1, 3, 8}) compare({.group = group, .cache = cache, .queries = DType::bf16}, unsigned(group));
    for (int page_rows : {1, 5, 16, 64})
      compare({.head_size = 128, .page_rows = page_rows, .cache = cache, .queries = DType::bf16}, unsigned(page_rows));
    for (int window : {1, 33, 300}) compare({.head_size = 128, .cache = cache, .window = window}, unsigned(window));
  }
}

void compare_tree(int head_size, DType dtype, unsigned seed) {
  SCOPED_TRACE(::testing::Message() << "head " << head_size << ", seed " << seed << ", cache " << name_of(dtype));
  std::mt19937 engine(seed);
  const std::unique_ptr<Backend> reference = make_reference_backend();
  const int nodes = seed % 2 == 0 ? 3 + int(engine() % 40) : 64 + int(engine() % 60);
  const int group = 1 + int(engine() % 8), prefix = seed % 3 == 0 ? 250 : int(engine() % 130);
  Cache cache(2, prefix + nodes, 16, 2, head_size, dtype, seed);
  fill(*reference, cache, prefix + nodes, seed);
  const Tree tree = random_tree(1, prefix, nodes, engine);
  const Tensor q = random_tensor({nodes, std::int64_t(2) * group * head_size}, seed);
  const Layout layout = tree.layout(cache.tables);
  const KvLayer kv = on_gpu(cache.layers[0]);
  const Tensor y = attend(q, kv, layout, 0.125f);
  const bool half = dtype != DType::f32;
  EXPECT_LT(distance(y, reference->attend(half ? through_bf16(q) : q, cache.layers[0], layout, 0.125f)),
            half ? kBf16Tolerance : kF32Tolerance);
  for (int n = 0; n < nodes; n += 1 + nodes / 12) {
    const Tensor one = q.rows(n, 1);
    ASSERT_TRUE(same_row(attend(one, kv, tree.layout(cache.tables, 0, n, 1), 0.125f), 0, y, n)) << "node " << n;
    const Cache moved = tree.as_chain(n, cache);
    ASSERT_TRUE(same_row(attend(one, on_gpu(moved.layers[0]), tree.chain(n, moved.tables), 0.125f), 0, y, n))
        << "node " << n << " as a chain";
  }
}

TEST(Attend, TreesAreChains) {
  unsigned seed = 0;
  for (int head_size : {64, 128, 80, 256, 32}) {
    for (int i = 0; i < 4; ++i) compare_tree(head_size, DType::bf16, ++seed);
  }
  for (int i = 0; i < 4; ++i) compare_tree(64, DType::f32, ++seed);
  for (const DType cache : {DType::i8, DType::e4m3})
    for (int head_size : {64, 128, 256, 20})
      for (int i = 0; i < 4; ++i) compare_tree(head_size, cache, ++seed);
}

// A step as built by the engine: a prompt, a tree, decode rows and padding rows whose page has arbitrary contents.
TEST(Attend, MixedStepWithPadding) {
  std::mt19937 engine(5);
  const std::unique_ptr<Backend> reference = make_reference_backend();
  Cache cache(4, 640, 16, 2, 128, DType::bf16, 9);
  fill(*reference, cache, 600, 9);
  std::vector<ScenarioRow> rows;
  for (int slot = 0; slot < 150; ++slot) rows.push_back(chain_row(0, 400 + slot));
  const Tree tree = random_tree(1, 515, 24, engine);
  rows.insert(rows.end(), tree.rows.begin(), tree.rows.end());
  rows.push_back(chain_row(2, 599));
  const std::int64_t real = std::int64_t(rows.size());
  while (rows.size() % 64) rows.push_back({3, 0, 0, 1, {}});
  const Tensor q = random_tensor({std::int64_t(rows.size()), 8 * 128}, 4);
  std::memset(cache.pool.row<std::byte>(cache.tables.row<std::int32_t>(3)[0]), 0xff, std::size_t(cache.pool.dim(1)));
  for (std::int64_t i = 0; i < cache.tables.dim(1); ++i)
    cache.tables.row<std::int32_t>(3)[i] = cache.tables.row<std::int32_t>(3)[0];
  Layout layout = layout_of(rows, cache.tables, 1);
  layout.longest = 256, layout.deepest = 1024;
  const KvLayer kv = on_gpu(cache.layers[0]);
  const Tensor y = attend(q, kv, layout, 0.1f);
  const std::vector<ScenarioRow> known(rows.begin(), rows.begin() + real);
  EXPECT_LT(distance(y.rows(0, real), reference->attend(through_bf16(q).rows(0, real), cache.layers[0],
                                                        layout_of(known, cache.tables, 1), 0.1f)),
            kBf16Tolerance);
  for (std::int64_t r = 0; r < real; r += 7)
    ASSERT_TRUE(same_row(attend(q.rows(r, 1), kv, layout_of({rows[std::size_t(r)]}, cache.tables, 1), 0.1f), 0, y, r))
        << "row " << r;
}

// More tiles of prompts than a GPU runs at once, of sequences of all lengths; run twice, with the same result.
TEST(Attend, LongPrompts) {
  for (const int head_size : {64, 128}) {
    const std::unique_ptr<Backend> reference = make_reference_backend();
    Cache cache(4, 900, 16, 8, head_size, DType::bf16, 3);
    fill(*reference, cache, 900, 3);
    std::vector<ScenarioRow> rows;
    for (const auto& [begin, end] : {std::pair{0, 620}, std::pair{5, 6}, std::pair{640, 860}, std::pair{250, 330}})
      for (int slot = begin; slot < end; ++slot)
        rows.push_back(chain_row(begin == 0 ? 0 : begin == 5 ? 1 : begin == 640 ? 2 : 3, slot));
    const Tensor q = rounded(random_tensor({std::int64_t(rows.size()), std::int64_t(32) * head_size}, 4));
    const KvLayer kv = on_gpu(cache.layers[1]);
    const Layout layout = layout_of(rows, cache.tables, 0);
    const Tensor y = attend(q, kv, layout, 0.1f), again = attend(q, kv, layout, 0.1f);
    for (std::int64_t r = 0; r < y.dim(0); ++r)
      ASSERT_TRUE(same_row(again, r, y, r)) << "head " << head_size << ", row " << r;
    for (std::int64_t r = 0; r < y.dim(0); r += 11)
      ASSERT_TRUE(same_row(attend(q.rows(r, 1), kv, layout_of({rows[std::size_t(r)]}, cache.tables, 0), 0.1f), 0, y, r))
          << "head " << head_size << ", row " << r;
  }
}

TEST(Attend, RefusesWhatItCannotRead) {
  Cache cache(1, 16, 16, 2, 64, DType::bf16);
  Layout layout = layout_of({chain_row(0, 0)}, cache.tables, 0);
  const KvLayer kv = on_gpu(cache.layers[0]);
  EXPECT_THROW(attend(random_tensor({2, 128}, 1), kv, layout, 1), Error);
  EXPECT_THROW(attend(random_tensor({1, 96}, 1), kv, layout, 1), Error);
  layout.begins = {};
  EXPECT_THROW(gpu().attend(gpu().upload(random_tensor({1, 128}, 1)), kv, layout, 1), Error);
}

}  // namespace
}  // namespace foretoken::test
