// Views of fewer pages: their logits are those of attention over all pages with the left-out positions masked, bit for
// bit on the reference backend, whatever the model's window, the cache's type and the shape of the draft tree.
#include <set>

#include <gtest/gtest.h>

#include "framework/cache/cached_model.h"
#include "kernels/error.h"
#include "kernels/reference/reference_backend.h"
#include "tests/support/tiny_models.h"

namespace foretoken::test {
namespace {

// Attends to all slots that a layout says, but for some: every slot that remains is an ancestor's bit. Selects, where
// `taken` has some, these of the candidates for each kv head.
class Masking final : public ReferenceBackend {
 public:
  std::set<int> masked;
  std::vector<std::vector<int>> taken;  // by kv head
  std::vector<std::vector<std::int32_t>> bounded;
  void bound_pages(std::span<const KvLayer> layers, std::span<const std::int32_t> pages) override {
    bounded.emplace_back(pages.begin(), pages.end());
    ReferenceBackend::bound_pages(layers, pages);
  }
  Tensor select_pages(const Tensor& q, const KvLayer& kv, const Layout& layout) override {
    const Tensor tables = ReferenceBackend::select_pages(q, kv, layout);
    for (std::size_t h = 0; h < taken.size(); ++h)
      for (std::size_t i = 0; i < taken[h].size(); ++i)
        tables.row<std::int32_t>(std::int64_t(h))[i] = layout.selection.candidates.data<std::int32_t>()[taken[h][i]];
    return tables;
  }
  Tensor attend(const Tensor& q, const KvLayer& kv, const Layout& layout, const AttentionRules& rules) override {
    Layout l = layout;
    l.words = (layout.table_width * kv.page_rows + 63) / 64;
    l.visible = Tensor::host({l.rows}, DType::i32), l.ancestors = Tensor::host({l.rows, l.words}, DType::u64),
    l.first = {};
    std::ranges::fill(l.visible.values<std::int32_t>(), 0);
    std::ranges::fill(l.ancestors.values<std::uint64_t>(), 0);
    for (int r = 0; r < l.rows; ++r) {
      const auto see = [&](int slot) {
        if (!masked.contains(slot)) l.ancestors.row<std::uint64_t>(r)[slot / 64] |= std::uint64_t(1) << slot % 64;
      };
      const int visible = layout.visible.data<std::int32_t>()[r];
      for (int s = layout.first ? layout.first.data<std::int32_t>()[r] : 0; s < visible; ++s) see(s);
      for (int bit = 0; bit < 64 * layout.words; ++bit)
        if (layout.ancestors.row<std::uint64_t>(r)[bit / 64] >> bit % 64 & 1u) see(visible + bit);
    }
    return ReferenceBackend::attend(q, kv, l, rules);
  }
};

constexpr int kPageRows = 4;

struct Case {
  std::string model, kv_dtype;
  int length;
  std::vector<int> pages;
};

Sequence sequence_of(int length) {
  Sequence s;
  s.id = 1, s.prompt_length = length;
  for (int i = 0; i < length; ++i) s.tokens.push_back(Token(i * 7 % 90 + 1));
  return s;
}

// The logits of a root with two children and a grandchild below each.
Tensor logits_of(Backend& backend, CachedModel& view, const Sequence& s) {
  EXPECT_EQ(view.unseen(s).size(), 1u);
  EXPECT_TRUE(view.reserve(s, 5));
  DraftTree tree = DraftTree::rooted(backend, s.last(), 4);
  const int a = tree.guess(0, 11), b = tree.guess(0, 12);
  tree.guess(a, 13), tree.guess(b, 14);
  const Segment all{&s, 0, &tree, 0};
  return view.run({&all, 1}).logits;
}

// As many pages as there are, up to `most`; each layer and kv head selects them.
PageChoice selected(int most) {
  return {[most](const Sequence&, int confirmed, int page_rows) {
            std::vector<int> pages;
            for (int p = 0; p < std::min(most, confirmed / page_rows); ++p) pages.push_back(p);
            return pages;
          },
          true};
}

// A target that has read all but the last token of a sequence.
struct Read {
  Masking backend;
  std::shared_ptr<Model> model;
  PagePool pool;
  CachedModel target;
  Read(const std::string& name, const std::string& kv_dtype, const Sequence& s)
      : model(tiny_model(backend, name, "auto", kv_dtype)),
        pool(backend, with_taps(model->info(), {}, true).page_bytes(kPageRows), 64),
        target(backend, model, pool, false, {}, true) {
    (void)target.unseen(s);
    EXPECT_TRUE(target.reserve(s, s.length()));
    const Segment prompt{&s, s.length() - 1};
    (void)target.run({&prompt, 1});
    (void)target.unseen(s);
  }
};

bool equal(const Tensor& a, const Tensor& b) {
  return a.shape() == b.shape() && std::memcmp(a.raw(), b.raw(), std::size_t(a.bytes())) == 0;
}

void compare(const Case& c) {
  SCOPED_TRACE(::testing::Message() << c.model << ", " << c.kv_dtype << ", length " << c.length << ", "
                                    << c.pages.size() << " pages");
  Masking backend;
  const std::shared_ptr<Model> model = tiny_model(backend, c.model, "auto", c.kv_dtype);
  PagePool pool(backend, model->info().kv.page_bytes(kPageRows), 64);
  CachedModel target(backend, model, pool, false);
  const Sequence s = sequence_of(c.length);
  (void)target.unseen(s);
  ASSERT_TRUE(target.reserve(s, c.length));
  const Segment prompt{&s, c.length - 1};
  (void)target.run({&prompt, 1});
  (void)target.unseen(s);
  ASSERT_TRUE(target.reserve(s, 3)) << "fewer rows than the view has";

  const int full = (c.length - 1) / kPageRows;
  for (int p = 0; p < full * kPageRows; ++p)
    if (std::ranges::find(c.pages, p / kPageRows) == c.pages.end()) backend.masked.insert(p);
  const std::size_t left_out = backend.masked.size();
  CachedModel whole(backend, part_of(model, {}), target.cache());
  const Tensor masked = logits_of(backend, whole, s);
  backend.masked.clear();
  CachedModel thin(backend, part_of(model, {}), target.cache(), [&](const Sequence&, int confirmed, int page_rows) {
    EXPECT_EQ(confirmed, c.length - 1);
    EXPECT_EQ(page_rows, kPageRows);
    return c.pages;
  });
  const Tensor logits = logits_of(backend, thin, s);
  ASSERT_EQ(logits.shape(), masked.shape());
  EXPECT_EQ(std::memcmp(logits.raw(), masked.raw(), std::size_t(logits.bytes())), 0);
  EXPECT_EQ(thin.books()->totals().left_out, double(left_out));
  EXPECT_EQ(whole.books()->totals().left_out, 0);
  const Tensor all = logits_of(backend, whole, s);
  const bool same = std::memcmp(all.raw(), masked.raw(), std::size_t(all.bytes())) == 0;
  const bool has_window = model->info().kv.window(c.model) > 0;
  EXPECT_TRUE(has_window || same == (left_out == 0)) << "otherwise this tests nothing";
  thin.cache().check(), whole.cache().check(), target.cache().check();
  thin.forget(s), whole.forget(s), target.forget(s);
  EXPECT_EQ(pool.available(), 64);
}

TEST(ThinViews, ReadWhatMaskedAttentionReads) {
  for (const char* kv_dtype : {"f32", "bf16", "int8", "fp8"})
    for (const std::vector<int>& pages : {std::vector<int>{0, 6}, {}, {2, 3, 5}, {0, 1, 2, 3, 4, 5, 6, 7}})
      compare({"llama2", kv_dtype, 35, pages});
  compare({"qwen3", "f32", 33, {1}});      // no rows in the last page
  compare({"llama3", "f32", 32, {0, 1}});  // three rows in it
}

// A window of nine positions that begins in a page that is left out, in one that is not, and behind all.
TEST(ThinViews, KeepTheWindowOfTheModel) {
  for (int length = 30; length < 36; ++length)
    for (const std::vector<int>& pages : {std::vector<int>{0}, {5}, {6}, {0, 5, 6}, {}, {0, 1, 2, 3, 4, 5, 6}})
      for (const char* model : {"mistral", "gemma2", "gemma3"})  // in the latter two some layers have it
        compare({model, "f32", length, pages});
}

// Where all layers and heads select the same pages, the view is that of these pages; where there are no more than it
// selects, that of all. Heads that select different pages give other logits.
TEST(ThinViews, SelectInEveryLayerAndHead) {
  const Sequence s = sequence_of(35);
  for (const char* kv_dtype : {"f32", "bf16", "int8", "fp8"}) {
    Read read("llama2", kv_dtype, s);
    const int kv_heads = read.model->info().kv.layers.front().kv_heads;
    ASSERT_GT(kv_heads, 1);
    CachedModel thin(read.backend, part_of(read.model, {}), read.target.cache(), selected(2));
    CachedModel fixed(read.backend, part_of(read.model, {}), read.target.cache(),
                      [](const Sequence&, int, int) { return std::vector<int>{1, 6}; });
    read.backend.taken.assign(std::size_t(kv_heads), {1, 6});
    const Tensor right = logits_of(read.backend, fixed, s);
    EXPECT_TRUE(equal(logits_of(read.backend, thin, s), right)) << kv_dtype;
    read.backend.taken.back() = {0, 5};
    EXPECT_FALSE(equal(logits_of(read.backend, thin, s), right));
    read.backend.taken.clear();
    CachedModel whole(read.backend, part_of(read.model, {}), read.target.cache()),
        all(read.backend, part_of(read.model, {}), read.target.cache(), selected(8));
    EXPECT_TRUE(equal(logits_of(read.backend, all, s), logits_of(read.backend, whole, s))) << kv_dtype;
    EXPECT_EQ(thin.books()->totals().left_out, 2 * 6 * kPageRows);
    thin.cache().check();
  }
}

// A root selects the same pages whatever nodes are below it, as it must where these are judged by its logits; a level
// that is fed behind it selects for itself.
TEST(ThinViews, SelectByTheRootAndNotByNodesBelowIt) {
  const Sequence s = sequence_of(35);
  Read read("llama2", "f32", s);
  CachedModel thin(read.backend, part_of(read.model, {}), read.target.cache(), selected(2));
  const auto of_root = [&](const std::vector<Token>& below) {
    EXPECT_EQ(thin.unseen(s).size(), 1u);
    EXPECT_TRUE(thin.reserve(s, 1 + int(below.size())));
    DraftTree tree = DraftTree::rooted(read.backend, s.last(), 32);
    for (const Token t : below) tree.guess(0, t);
    const Segment all{&s, 0, &tree, 0};
    return thin.run({&all, 1}).logits.rows(0, 1);
  };
  const Tensor alone = of_root({});
  std::vector<Token> below;
  for (Token t = 1; t < 20; ++t) below.push_back(t * 4);
  EXPECT_TRUE(equal(of_root(below), alone));
}

// Bounds are computed once for each page, when its rows are confirmed, and again for a sequence that was forgotten.
TEST(ThinViews, BoundEachPageOnce) {
  Sequence s = sequence_of(35);
  Read read("llama2", "f32", s);
  CachedModel thin(read.backend, part_of(read.model, {}), read.target.cache(), selected(2));
  (void)logits_of(read.backend, thin, s);
  const std::vector<PageId>& table = read.target.cache().held(s.id).table;
  const auto pages = [&](int begin, int end) {
    std::vector<std::int32_t> all(table.begin() + begin, table.begin() + end);
    std::ranges::sort(all);
    return all;
  };
  std::vector<std::vector<std::int32_t>> right{pages(0, 8)};
  EXPECT_EQ(read.backend.bounded, right);
  (void)logits_of(read.backend, thin, s);
  EXPECT_EQ(read.backend.bounded, right);
  for (int i = 0; i < 6; ++i) s.tokens.push_back(Token(i + 1));
  ASSERT_TRUE(read.target.reserve(s, 6));
  const Segment more{&s, 6};
  (void)read.target.run({&more, 1});
  (void)read.target.unseen(s);
  (void)logits_of(read.backend, thin, s);
  right.push_back(pages(8, 10));
  EXPECT_EQ(read.backend.bounded, right);
  thin.forget(s);
  (void)logits_of(read.backend, thin, s);
  right.push_back(pages(0, 10));
  EXPECT_EQ(read.backend.bounded, right);
}

// Another sequence with the id of one that ended, whose view was not told.
TEST(ThinViews, BoundThePagesOfRowsThatBeganAnew) {
  const Sequence s = sequence_of(35);
  Read read("llama2", "f32", s);
  CachedModel thin(read.backend, part_of(read.model, {}), read.target.cache(), selected(2));
  (void)logits_of(read.backend, thin, s);
  read.target.forget(s);
  Sequence other = sequence_of(35);
  std::ranges::reverse(other.tokens);
  (void)read.target.unseen(other);
  ASSERT_TRUE(read.target.reserve(other, 35));
  const Segment prompt{&other, 34};
  (void)read.target.run({&prompt, 1});
  (void)read.target.unseen(other);
  (void)logits_of(read.backend, thin, other);
  ASSERT_EQ(read.backend.bounded.size(), 2u);
  const std::vector<PageId>& table = read.target.cache().held(other.id).table;
  EXPECT_EQ(std::set(read.backend.bounded[1].begin(), read.backend.bounded[1].end()),
            std::set(table.begin(), table.begin() + 8));
}

TEST(ThinViews, GiveNoMasses) {
  const Sequence s = sequence_of(35);
  Read read("llama2", "f32", s);
  CachedModel thin(read.backend, part_of(read.model, {}), read.target.cache(), selected(2));
  const Segment none{&s, 1};
  EXPECT_THROW((void)thin.mass({&none, 1}), Error);
}

TEST(ThinViews, SelectNothingWithinTheWindowOfAModel) {
  const Sequence s = sequence_of(35);
  Read read("mistral", "f32", s);
  EXPECT_THROW(CachedModel(read.backend, part_of(read.model, {}), read.target.cache(), selected(2)), Error);
}

// A draft of more rows than pages are reserved, then another round after the sequence grew.
TEST(ThinViews, ChooseAnewInEveryRound) {
  ReferenceBackend backend;
  const std::shared_ptr<Model> model = tiny_model(backend, "llama2");
  PagePool pool(backend, model->info().kv.page_bytes(kPageRows), 16);
  KvCache target(pool, model->info().kv, false);
  int asked = 0;
  KvCache view(target, [&](const Sequence&, int confirmed, int page_rows) {
    ++asked;
    return std::vector<int>{confirmed / page_rows - 1};
  });
  Sequence s = sequence_of(14);
  EXPECT_EQ(view.settle(s), 0) << "nothing is viewed yet";
  target.settle(s);
  ASSERT_TRUE(target.reserve(s, 14));
  const Tensor tokens = Tensor::host_copy<Token>(s.tokens, DType::i32);
  for (int i = 0; i < 14; ++i) target.fed(1).append(i - 1, {tokens, {}}, i);
  EXPECT_EQ(target.settle(s), 13);
  EXPECT_EQ(view.settle(s), 13);
  EXPECT_EQ(asked, 1);
  const KvCache::Held& held = view.held(1);
  EXPECT_EQ(held.left_out, 8);
  EXPECT_EQ(held.table, (std::vector<PageId>{target.held(1).table[2], target.held(1).table[3]}));
  ASSERT_TRUE(view.reserve(s, 9));
  EXPECT_EQ(held.table.size(), 4u) << "5 slots, and 9 rows";
  const int row = view.fed(1).append(-1, {tokens, {}}, 13);
  const KvCache::RowLayout l = held.row_layout(row);
  EXPECT_EQ(l.slot, 5);
  EXPECT_EQ(l.position, 13);
  EXPECT_EQ(l.visible, 6);
  view.check();
  for (const auto& [position, slot] : {std::pair(0, 0), {7, 0}, {8, 0}, {9, 1}, {11, 3}, {12, 4}, {13, 5}})
    EXPECT_EQ(held.slot_from(position, kPageRows), slot) << position;
  EXPECT_EQ(view.settle(s), 13);
  EXPECT_EQ(pool.in_use(), 4) << "its own pages went back";
}

}  // namespace
}  // namespace foretoken::test
