// Which rows a cache keeps and frees, and which rows its rows attend to.
#include "framework/cache/kv_cache.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "tests/support/sentence.h"

namespace foretoken::test {
namespace {

struct KvCacheTest : ::testing::Test {
  std::unique_ptr<Backend> backend = make_reference_backend();
  KvShape shape{1, 1, 2, DType::f32};  // 16 bytes a position
  PagePool pool{*backend, 4 * 16, 8};  // pages of 4 positions
  KvCache cache{pool, shape};

  static Sequence sequence(SequenceId id, std::vector<Token> tokens) {
    Sequence s;
    s.id = id;
    s.prompt_length = int(tokens.size());
    s.tokens = std::move(tokens);
    return s;
  }
  // Feeds a chain of tokens below the row `parent`; returns the last row.
  int chain(const Sequence& s, int parent, const std::vector<Token>& tokens) {
    EXPECT_TRUE(cache.reserve(s, int(tokens.size())));
    const Tensor t = Tensor::host_copy<Token>(tokens, DType::i32);
    for (int i = 0; i < int(tokens.size()); ++i) parent = cache.fed(s.id).append(parent, {t, {}}, i);
    return parent;
  }
  // Writes a value to a slot of the cache, by which moves are detected.
  float& key(const Sequence& s, int slot) { return key(cache, s, slot); }
  float& key(const KvCache& c, const Sequence& s, int slot) {
    const KvLayer& l = c.layers()[0];
    return reinterpret_cast<float*>(pool.memory().row<std::byte>(c.held(s.id).table[std::size_t(slot / 4)]) +
                                    l.keys)[slot % 4 * 2];
  }
};

TEST_F(KvCacheTest, the_last_token_is_always_unseen) {
  Sequence s = sequence(1, {5, 6, 7});
  EXPECT_EQ(cache.settle(s), 0);
  chain(s, -1, {5, 6, 7});
  EXPECT_EQ(cache.settle(s), 2);
  EXPECT_EQ(cache.held(1).table.size(), 1u);
}

TEST_F(KvCacheTest, keeps_the_accepted_pending_path_and_moves_it_together) {
  Sequence s = sequence(1, {5, 6});
  cache.settle(s);
  const int root = chain(s, -1, {5, 6});
  const int refused = chain(s, root, {9});
  chain(s, refused, {8});
  const int taken = chain(s, root, {7});  // row 4: slot 4
  chain(s, taken, {8});                   // row 5: slot 5
  key(s, 4) = 47, key(s, 5) = 58;
  s.tokens = {5, 6, 7, 8, 1};
  EXPECT_EQ(cache.settle(s), 4);
  cache.compact();
  EXPECT_EQ(key(s, 2), 47);
  EXPECT_EQ(key(s, 3), 58);
  EXPECT_EQ(cache.held(1).table.size(), 1u) << "pages held = ceil(4 / 4)";
  EXPECT_EQ(pool.in_use(), 1);
}

// A stop rule may cut a sequence below what was confirmed in earlier rounds.
TEST_F(KvCacheTest, a_sequence_that_was_cut_keeps_no_rows_beyond_its_tokens) {
  Sequence s = sequence(1, {1, 2, 3, 4, 5, 6});
  cache.settle(s);
  chain(s, -1, {1, 2, 3, 4, 5});
  EXPECT_EQ(cache.settle(s), 5);
  EXPECT_EQ(cache.held(1).table.size(), 2u);
  s.tokens.resize(3);
  EXPECT_EQ(cache.settle(s), 2);
  EXPECT_EQ(cache.held(1).table.size(), 1u);
}

// Of two sequences and two caches of one pool.
TEST_F(KvCacheTest, rows_move_when_the_pool_is_compacted_and_before_its_pages_are_used_again) {
  KvCache other(pool, shape);
  Sequence a = sequence(1, {5}), b = sequence(2, {6});
  const auto branch = [&](KvCache& c, Sequence& s, float value) {  // the second of two children is accepted
    c.settle(s);
    ASSERT_TRUE(c.reserve(s, 3));
    const Tensor t = Tensor::host_copy<Token>(std::vector<Token>{s.last(), 8, 9}, DType::i32);
    for (int i = 0; i < 3; ++i) c.fed(s.id).append(i == 0 ? -1 : 0, {t, {}}, i);
    key(c, s, 1) = 0, key(c, s, 2) = value;
  };
  branch(cache, a, 1), branch(cache, b, 2), branch(other, a, 3);
  a.tokens = {5, 9, 1}, b.tokens = {6, 9, 1};
  EXPECT_EQ(cache.settle(a), 2);
  EXPECT_EQ(cache.settle(b), 2);
  EXPECT_EQ(other.settle(a), 2);
  EXPECT_NE(key(cache, a, 1), 1) << "not yet";
  cache.compact();
  EXPECT_EQ(key(cache, a, 1), 1);
  EXPECT_EQ(key(cache, b, 1), 2);
  EXPECT_EQ(key(other, a, 1), 3);
  key(cache, a, 2) = 7;
  cache.compact();
  EXPECT_EQ(key(cache, a, 1), 1) << "what moved does not move again";
}

TEST_F(KvCacheTest, rows_of_a_chain_attend_to_a_prefix_and_nodes_of_a_tree_to_their_ancestors) {
  Sequence s = sequence(1, {5, 6, 7});
  cache.settle(s);
  const int root = chain(s, -1, {5, 6, 7});
  const int a = chain(s, root, {1}), b = chain(s, root, {2}), under_b = chain(s, b, {3}), under_a = chain(s, a, {4});
  const auto layout = [&](int row) { return cache.held(1).row_layout(row); };
  EXPECT_EQ(layout(root).visible, 3);
  EXPECT_EQ(layout(a).visible, 4) << "the first child continues the chain";
  EXPECT_EQ(layout(b).visible, 3);
  EXPECT_EQ(layout(b).position, 3);
  EXPECT_EQ(layout(under_b).position, 4);
  EXPECT_EQ(layout(a).words(), 0);
  EXPECT_EQ(layout(under_b).words(), 1);
  std::uint64_t bits = 0;
  cache.held(1).ancestors(under_b, 0, {&bits, 1});
  EXPECT_EQ(bits, 0b110u) << "b at slot 4 and itself at slot 5, from slot 3 on";
  bits = 0;
  EXPECT_EQ(layout(under_a).visible, 4);
  cache.held(1).ancestors(under_a, 0, {&bits, 1});
  EXPECT_EQ(bits, 0b100u) << "itself at slot 6, from slot 4 on";
}

TEST_F(KvCacheTest, a_token_that_was_unknown_when_its_row_was_fed_is_read_by_settle) {
  Sequence s = sequence(1, {5, 6});
  cache.settle(s);
  int row = chain(s, -1, {5, 6});
  ASSERT_TRUE(cache.reserve(s, 2));
  std::weak_ptr<void> memory;
  {
    const Tensor drawn = Tensor::host_copy<Token>(std::vector<Token>{-2, -2}, DType::i32);
    for (int i = 0; i < 2; ++i) row = cache.fed(1).append(row, {drawn, {}}, i);
    *drawn.row<Token>(0) = 7, *drawn.row<Token>(1) = 8;
    memory = drawn.owner();
  }
  EXPECT_FALSE(memory.expired()) << "pending rows keep the memory of their tokens";
  s.tokens = {5, 6, 7, 9, 1};
  EXPECT_EQ(cache.settle(s), 3) << "7 was accepted, 8 was not";
  EXPECT_TRUE(memory.expired());
}

TEST_F(KvCacheTest, a_child_of_a_rejected_row_is_rejected_even_if_its_token_matches) {
  Sequence s = sequence(1, {5});
  cache.settle(s);
  const int root = chain(s, -1, {5});
  const int refused = chain(s, root, {9});
  chain(s, refused, {8});
  s.tokens = {5, 7, 8, 1};
  EXPECT_EQ(cache.settle(s), 1);
}

TEST_F(KvCacheTest, full_pages_are_reused_by_the_next_sequence_with_the_same_prefix) {
  Sequence s = sequence(1, {1, 2, 3, 4, 5, 6, 7, 8, 9});
  cache.settle(s);
  chain(s, -1, s.tokens);
  s.tokens.push_back(1);
  cache.forget(s);
  EXPECT_EQ(pool.in_use(), 0);
  EXPECT_EQ(cache.settle(sequence(2, {1, 2, 3, 4, 5, 6, 7, 8})), 4) << "the second page would hold the last token";
  EXPECT_EQ(cache.settle(sequence(3, {1, 2, 3, 4, 5, 6, 7, 8, 9, 9})), 8);
  EXPECT_EQ(cache.settle(sequence(4, {1, 2, 3, 5, 5, 6, 7, 8, 9, 9})), 0);
  EXPECT_EQ(pool.in_use(), 2) << "shared, not copied";
  cache.check();
}

TEST_F(KvCacheTest, a_reservation_that_fails_takes_nothing) {
  const Sequence s = sequence(1, {1});
  cache.settle(s);
  EXPECT_FALSE(cache.reserve(s, 33));
  EXPECT_EQ(pool.in_use(), 0);
  EXPECT_TRUE(cache.reserve(s, 32));
}

TEST_F(KvCacheTest, a_destroyed_cache_leaves_the_pool_usable) {
  {
    KvCache other(pool, shape);
    Sequence s = sequence(1, {1, 2, 3, 4, 5});
    other.settle(s);
    ASSERT_TRUE(other.reserve(s, 5));
    const Tensor t = Tensor::host_copy<Token>(s.tokens, DType::i32);
    for (int i = 0; i < 5; ++i) other.fed(1).append(i - 1, {t, {}}, i);
    s.tokens.push_back(6);
    other.forget(s);
  }
  for (int i = 0; i < 8; ++i) EXPECT_TRUE(pool.take());
}

// Keys and values of each layer have disjoint memory, row by row, and a page holds as many rows as fit.
TEST(KvCacheLayers, LayersOfAnyShapesLieSideBySide) {
  const auto backend = make_reference_backend();
  const KvShape shape{std::vector<LayerShape>{{1, 2, DType::f32}, {2, 4, DType::bf16}, {1, 6, DType::f32}}};
  EXPECT_EQ(shape.bytes_per_row(), 2 * (8 + 16 + 24));
  PagePool pool(*backend, 3 * shape.bytes_per_row() + 5, 2);
  KvCache cache(pool, shape);
  EXPECT_EQ(cache.page_rows(), 3);
  ASSERT_EQ(cache.layers().size(), 3u);
  std::int64_t at = 0;
  for (std::size_t l = 0; l < 3; ++l) {
    const KvLayer& layer = cache.layers()[l];
    EXPECT_EQ(layer.keys, at);
    EXPECT_EQ(layer.values, at += layer.page_rows * shape.layers[l].bytes_per_row() / 2);
    at += layer.page_rows * shape.layers[l].bytes_per_row() / 2;
    EXPECT_EQ(layer.head_size, shape.layers[l].head_size);
    EXPECT_EQ(layer.dtype, shape.layers[l].dtype);
  }
  EXPECT_EQ(at, 3 * shape.bytes_per_row());
}

// The scales of codes are behind the numbers of all layers, so that those stay aligned, whatever the number of rows.
TEST(KvCacheLayers, ScalesLieBehindTheNumbers) {
  const auto backend = make_reference_backend();
  for (const int rows : {1, 3, 16}) {
    const KvShape shape{std::vector<LayerShape>{{1, 16, DType::i8}, {2, 4, DType::f32}, {3, 32, DType::e4m3}}};
    EXPECT_EQ(shape.bytes_per_row(), 2 * (16 + 4 + 32 + 96 + 12));
    EXPECT_EQ(shape.page_bytes(rows) % 16, 0);
    EXPECT_LT(shape.page_bytes(rows), (rows + 1) * shape.bytes_per_row());
    PagePool pool(*backend, shape.page_bytes(rows), 2);
    const KvCache cache(pool, shape);
    EXPECT_EQ(cache.page_rows(), rows);
    std::vector<char> used(std::size_t(pool.page_bytes()), 0);
    for (const KvLayer& layer : cache.layers()) {
      EXPECT_EQ(layer.keys % 16 + layer.values % 16 + layer.key_scales % 4 + layer.value_scales % 4, 0);
      for (const KvPlane& plane : KvPlanes(layer))
        for (std::int64_t i = 0; i < plane.bytes * layer.kv_heads * rows; ++i)
          EXPECT_EQ(used.at(std::size_t(plane.begin + i))++, 0) << "two planes share byte " << plane.begin + i;
    }
    EXPECT_EQ(std::ranges::count(used, 1), rows * shape.bytes_per_row());
  }
}

TEST(KvCacheLayers, BoundsLieBehindAllOthers) {
  const auto backend = make_reference_backend();
  for (const int rows : {1, 3, 5, 16})
    for (const DType dtype : {DType::i8, DType::bf16, DType::f32}) {
      ModelInfo info;
      info.width = 26, info.kv = KvShape{3, 2, dtype == DType::i8 ? 16 : 20, dtype};
      const std::vector<Tap> taps{1};
      const KvShape shape = with_taps(info, taps, true);
      PagePool pool(*backend, shape.page_bytes(rows), 2);
      const KvCache cache(pool, shape);
      EXPECT_EQ(cache.page_rows(), rows);
      std::vector<char> used(std::size_t(pool.page_bytes()), 0);
      const auto take = [&](std::int64_t begin, std::int64_t bytes) {
        for (std::int64_t i = 0; i < bytes; ++i) EXPECT_EQ(used.at(std::size_t(begin + i))++, 0) << begin + i;
      };
      for (const KvLayer& layer : cache.layers()) {
        for (const KvPlane& plane : KvPlanes(layer)) take(plane.begin, plane.bytes * layer.kv_heads * rows);
        const bool tap = &layer == &cache.layers().back();
        EXPECT_EQ(layer.bounds == 0, tap) << "states have none";
        if (!tap) take(layer.bounds, 2 * layer.kv_heads * layer.head_size * size_of(bounds_type(dtype)));
        EXPECT_EQ(layer.bounds % 4, 0);
      }
    }
}

// A draft's cache in pages that were made for 16 positions of a target. Pages of few rows are not made smaller.
TEST(KvCacheLayers, PagesOfManyRowsAreWholeBoxesOfEight) {
  const auto backend = make_reference_backend();
  for (const auto& [room, rows] : {std::pair{1, 1}, {7, 7}, {15, 15}, {16, 16}, {33, 32}, {62, 56}, {120, 120}}) {
    const KvShape shape(2, 3, 32, DType::i8);
    PagePool pool(*backend, (room + 1) * shape.bytes_per_row() - 16, 2);
    const KvCache cache(pool, shape);
    EXPECT_EQ(cache.page_rows(), rows);
    for (const KvLayer& layer : cache.layers()) {
      EXPECT_EQ(layer.page_rows, rows);
      // Of pages of whole boxes, scales are copied 16 bytes at a time.
      EXPECT_TRUE(rows < 16 || (layer.key_scales | layer.value_scales) % 16 == 0) << rows;
    }
  }
}

TEST(KvCacheLayers, CodesNeedHeadsOfWholeVectors) {
  for (const DType dtype : {DType::i8, DType::e4m3}) {
    EXPECT_NO_THROW(KvShape(2, 1, 48, dtype).expect_heads("any"));
    const std::string said = test::sentence_of([&] { KvShape(2, 1, 24, dtype).expect_heads("small"); });
    for (const char* word : {"small", "24", "16", "kv_dtype"}) EXPECT_NE(said.find(word), std::string::npos) << said;
  }
  EXPECT_NO_THROW(KvShape(2, 1, 24, DType::bf16).expect_heads("any"));
}

TEST(KvCacheLayers, EqualLayersAreTheSameAsAListOfThem) {
  const KvShape shape{3, 2, 8, DType::bf16, 5};
  EXPECT_EQ(shape.layers, std::vector<LayerShape>(3, LayerShape{2, 8, DType::bf16, 5}));
  EXPECT_EQ(shape.window("any"), 5);
  EXPECT_FALSE(shape.has_layers_without_window());
  KvShape mixed = shape;
  mixed.layers[1].window = 0;
  EXPECT_EQ(mixed.window("any"), 5);
  EXPECT_TRUE(mixed.has_layers_without_window());
  mixed.layers[2].window = 6;
  EXPECT_THROW(mixed.window("any"), Error);
  EXPECT_EQ(shape.bytes_per_row(), 3 * 2 * 2 * 8 * 2);
}

// A round of a view in which settle() is not called for it, after the other cache gave back a page.
TEST_F(KvCacheTest, a_view_that_was_not_settled_has_no_pages_of_an_earlier_round) {
  KvCache view(cache);
  Sequence s = sequence(1, {5, 6, 7, 8, 9, 10});
  cache.settle(s);
  chain(s, -1, s.tokens);
  EXPECT_TRUE(cache.reserve(s, 4));  // a third page
  view.settle(s);
  EXPECT_TRUE(view.reserve(s, 1));
  EXPECT_EQ(view.held(1).table.size(), 3u);
  cache.settle(s);  // gives it back
  const auto run = [&] { view.expect_reserved(1, 1, "part"); };
  EXPECT_TRUE(says(sentence_of(run), "the model part", "an earlier round", "CachedModel::unseen"));
  EXPECT_TRUE(view.reserve(s, 1));
  EXPECT_EQ(view.held(1).table, cache.held(1).table);
  EXPECT_EQ(view.held(1).confirmed, 5);
  EXPECT_EQ(sentence_of(run), "");
  cache.forget(s);
  EXPECT_TRUE(says(sentence_of(run), "an earlier round"));
  EXPECT_TRUE(view.reserve(s, 1)) << "pages of its own";
  view.forget(s), view.check(), cache.check();
  EXPECT_EQ(pool.available(), 8);
}

}  // namespace
}  // namespace foretoken::test
