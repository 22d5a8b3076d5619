// Rows of a path that may be taken back (Sequence::verified): they are found again while the path grows, never
// confirmed or shared, and gone when the sequence goes on with other tokens.
#include <gtest/gtest.h>

#include "framework/cache/cached_model.h"
#include "tests/framework/cache/alone.h"
#include "tests/support/tiny_models.h"

namespace foretoken::test {
namespace {

struct SpeculativePath : ::testing::Test {
  std::unique_ptr<Backend> backend = make_reference_backend();
  KvShape shape{1, 1, 2, DType::f32};   // 16 bytes a position
  PagePool pool{*backend, 4 * 16, 16};  // pages of 4 positions
  KvCache cache{pool, shape};

  static Sequence sequence(std::vector<Token> tokens) {
    Sequence s;
    s.id = 1, s.prompt_length = int(tokens.size()), s.tokens = std::move(tokens);
    return s;
  }
  // The sequence with a path behind its tokens.
  static Sequence with(const Sequence& s, const std::vector<Token>& path) {
    Sequence copy = s;
    copy.verified = s.length();
    copy.tokens.insert(copy.tokens.end(), path.begin(), path.end());
    return copy;
  }
  int feed(KvCache& c, const Sequence& s, int parent, const std::vector<Token>& tokens) {
    EXPECT_TRUE(c.reserve(s, int(tokens.size())));
    const Tensor t = Tensor::host_copy<Token>(tokens, DType::i32);
    for (int i = 0; i < int(tokens.size()); ++i) parent = c.fed(s.id).append(parent, {t, {}}, i);
    return parent;
  }
  float& key(const KvCache& c, int slot) {
    const KvLayer& l = c.layers()[0];
    return reinterpret_cast<float*>(pool.memory().row<std::byte>(c.held(1).table[std::size_t(slot / 4)]) +
                                    l.keys)[slot % 4 * 2];
  }
};

TEST_F(SpeculativePath, keeps_its_rows_pending_as_a_chain) {
  const Sequence s = sequence({5, 6, 7});
  EXPECT_EQ(cache.settle(with(s, {})), 0);
  const int root = feed(cache, s, -1, {5, 6, 7});
  feed(cache, s, root, {9});
  const int taken = feed(cache, s, root, {8});  // row 4
  feed(cache, s, taken, {3});                   // row 5
  key(cache, 4) = 48, key(cache, 5) = 53;
  EXPECT_EQ(cache.settle(with(s, {8, 3, 1})), 5) << "two rows of the path, which the last token is not yet";
  cache.compact();
  EXPECT_EQ(key(cache, 3), 48);
  EXPECT_EQ(key(cache, 4), 53);
  const KvCache::Held& held = cache.held(1);
  EXPECT_EQ(held.confirmed, 2) << "the sequence's own tokens alone, without the last, as where there is no path";
  EXPECT_EQ(held.path, 3);
  EXPECT_EQ(held.rows(), 5);
  EXPECT_EQ(held.row_layout(1).slot, 3);
  EXPECT_EQ(held.row_layout(1).position, 3);
  EXPECT_EQ(held.row_layout(1).visible, 4) << "a chain sees all before it, and itself";
  cache.check();
  // The next round goes on behind it.
  const int next = feed(cache, s, held.path - 1, {1});
  EXPECT_EQ(cache.held(1).row_layout(next).position, 5);
  EXPECT_EQ(cache.held(1).row_layout(next).visible, 6);
  EXPECT_EQ(cache.settle(with(s, {8, 3, 1, 4})), 6);
}

TEST_F(SpeculativePath, is_taken_back_as_far_as_the_sequence_differs) {
  Sequence s = sequence({5, 6, 7});
  cache.settle(with(s, {}));
  feed(cache, s, feed(cache, s, -1, {5, 6, 7}), {8, 3, 1});
  EXPECT_EQ(cache.settle(with(s, {8, 3, 1, 2})), 6);
  EXPECT_EQ(cache.settle(with(s, {8, 3, 1, 2})), 6) << "again the same";
  EXPECT_EQ(cache.settle(with(s, {8, 4, 1, 2})), 4) << "another path of the same beginning";
  s.tokens = {5, 6, 7, 8, 2, 1};
  EXPECT_EQ(cache.settle(s), 4);
  EXPECT_EQ(cache.held(1).path, 0);
  EXPECT_EQ(cache.held(1).pending.size(), 0u);
  EXPECT_EQ(pool.in_use(), 1) << "pages held = ceil(4 / 4)";
}

// A round that is begun again feeds the sequence's last token once more, never to a page that others may have found.
TEST_F(SpeculativePath, leaves_the_last_token_of_the_sequence_unconfirmed) {
  const Sequence s = sequence({5, 6, 7, 8});
  cache.settle(with(s, {}));
  feed(cache, s, feed(cache, s, -1, {5, 6, 7, 8}), {3, 1});
  cache.settle(with(s, {3, 1, 2}));
  EXPECT_EQ(cache.held(1).confirmed, 3);
  EXPECT_EQ(cache.held(1).indexed, 0);
  EXPECT_EQ(cache.settle(s), 3);
}

// Else another request's pages could decide how a path goes on.
TEST_F(SpeculativePath, keeps_the_pages_that_were_reserved_for_it) {
  const Sequence s = sequence({5, 6, 7});
  cache.settle(s);
  ASSERT_TRUE(cache.reserve(s, 14));
  EXPECT_EQ(pool.in_use(), 4);
  cache.settle(with(s, {}));
  feed(cache, s, -1, {5, 6, 7});
  cache.settle(with(s, {8}));
  EXPECT_EQ(pool.in_use(), 4);
  cache.settle(s);
  EXPECT_EQ(pool.in_use(), 1);
}

TEST_F(SpeculativePath, is_never_found_by_another_sequence) {
  const Sequence s = sequence({5, 6, 7});
  cache.settle(with(s, {}));
  feed(cache, s, feed(cache, s, -1, {5, 6, 7}), {8, 3, 1, 2, 4});
  cache.settle(with(s, {8, 3, 1, 2, 4, 9}));
  Sequence other = sequence({5, 6, 7, 8, 3, 1, 2, 4, 9});
  other.id = 2;
  EXPECT_EQ(cache.settle(other), 0);
  cache.forget(s);
  other.id = 3;
  EXPECT_EQ(cache.settle(other), 0) << "the sequence ended without it";
}

// In a view, whose rows lie behind those of the other cache.
TEST_F(SpeculativePath, is_kept_by_a_view_until_the_other_cache_goes_on) {
  Sequence s = sequence({5, 6, 7});
  cache.settle(s);
  feed(cache, s, -1, {5, 6});
  EXPECT_EQ(cache.settle(s), 2);
  KvCache view(cache);
  EXPECT_EQ(view.settle(s), 2);
  const int root = feed(view, s, -1, {7});
  feed(view, s, root, {9});
  feed(view, s, root, {8});
  key(view, 4) = 48;
  EXPECT_EQ(view.settle(with(s, {8, 1})), 4);
  view.compact();
  EXPECT_EQ(key(view, 3), 48);
  EXPECT_EQ(view.held(1).confirmed, 2);
  view.check();
  EXPECT_EQ(view.settle(s), 2) << "the sequence itself";
  feed(view, s, -1, {7});
  s.tokens = {5, 6, 7, 8, 1};
  cache.settle(s);
  EXPECT_EQ(view.settle(with(s, {})), 2) << "what it knew is over";
  cache.forget(s), view.forget(s);
}

// The logits behind a path, fed in pieces with other branches between, are those of all tokens fed at once.
TEST(SpeculativePaths, give_the_logits_of_their_tokens) {
  const auto backend = make_reference_backend();
  const std::shared_ptr<Model> tiny = tiny_model(*backend, tiny_model_names().front());
  Alone whole(*backend, tiny, 4, 64), pieces(*backend, tiny, 4, 64);
  Sequence s;
  s.id = 1, s.tokens = {3, 1, 4, 1, 5}, s.prompt_length = 5;
  SequenceId fresh = 2;
  Sequence path = s;
  path.verified = 5;
  const auto extend = [&](Token refused, Token accepted, Token bonus) {
    const int unseen = int(pieces.model.unseen(path).size());
    EXPECT_EQ(unseen, path.length() == 5 ? 5 : 1);
    ASSERT_TRUE(pieces.model.reserve(path, unseen + 2));
    DraftTree tree = DraftTree::rooted(*backend, path.last(), 2);
    tree.guess(0, refused), tree.guess(0, accepted);
    const Segment all{&path, unseen - 1, &tree, 0};
    const Output out = pieces.model.run({&all, 1});
    path.tokens.push_back(accepted);
    const Output expected = whole.after(fresh++, path.tokens);
    for (std::int64_t x = 0; x < out.logits.dim(1); ++x)
      ASSERT_EQ(out.logits.row<float>(2)[x], expected.logits.row<float>(0)[x]) << path.length() << ", " << x;
    path.tokens.push_back(bonus);
  };
  extend(7, 9, 2), extend(8, 6, 5), extend(1, 3, 5);
  // The sequence took the path's first token and another one then; the next path is no continuation of the first.
  s.tokens.insert(s.tokens.end(), {9, 4});
  path = s, path.verified = 7;
  EXPECT_EQ(pieces.model.unseen(path).size(), 1u);
  EXPECT_EQ(pieces.model.cache().held(1).confirmed, 6);
}

}  // namespace
}  // namespace foretoken::test
