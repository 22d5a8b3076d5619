// The layout of a forward, from rows alone.
#include "framework/cache/layout_builder.h"

#include <gtest/gtest.h>

#include "kernels/reference/reference_backend.h"

namespace foretoken::test {
namespace {

// Pads sizes to multiples of four.
class Fours final : public ReferenceBackend {
 public:
  int padded(int n) const override { return (n + 3) / 4 * 4; }
};

struct Layouts : testing::Test {
  Fours fours;
  ReferenceBackend plain;
  std::vector<PageId> first{7, 8}, second{9};

  static std::vector<int> ints(const Tensor& t) {
    return {t.values<std::int32_t>().begin(), t.values<std::int32_t>().end()};
  }
  // Bit `row` of each row's ancestors.
  static void own_bit(int, int row, std::span<std::uint64_t> words) { words[0] |= std::uint64_t(1) << row; }
  static LayoutBuilder::Row row(int at, int visible, Token token = 1) {
    return {.slot = at, .position = at, .visible = visible, .known = token};
  }
};

TEST_F(Layouts, TablesThatBranchComeLastAndEachPartIsPadded) {
  LayoutBuilder b(fours, /*windows=*/false, /*trash=*/99);
  b.clear();
  b.open(first);  // a tree of a root with two children
  b.add(row(4, 5, 10)), b.want();
  b.add(row(5, 5, 11)), b.want();
  b.add(row(6, 5, 12)), b.want();
  b.open(second);  // a chain
  b.add(row(2, 3, 20)), b.want();
  const LayoutBuilder::Extent& e = b.arrange();
  EXPECT_EQ(e.rows, 8);
  EXPECT_EQ(e.straight.rows, 1);
  EXPECT_EQ(e.straight.padded_rows, 4);
  EXPECT_EQ(e.rest.padded_rows, 4);
  EXPECT_EQ(e.words, 1);
  EXPECT_EQ(e.wanted, 4);
  EXPECT_FALSE(e.all_wanted) << "padding stands among them";

  Staging staging(fours);
  const LayoutBuilder::Staged s = b.stage(staging, 0, own_bit);
  EXPECT_EQ(ints(s.known), (std::vector<int>{20, -1, -1, -1, 10, 11, 12, -1}));
  EXPECT_EQ(ints(s.wanted), (std::vector<int>{4, 5, 6, 0})) << "in the order in which they were added";
  EXPECT_EQ(ints(s.layout.positions), (std::vector<int>{2, 0, 0, 0, 4, 5, 6, 0}));
  const auto owner = ints(s.layout.owner), begins = ints(s.layout.begins), tables = ints(s.layout.tables);
  EXPECT_EQ(int(begins.size()), e.tables + 1);
  for (int t = 0; t < e.tables; ++t)
    for (int r = begins[std::size_t(t)]; r < begins[std::size_t(t) + 1]; ++r) EXPECT_EQ(owner[std::size_t(r)], t);
  EXPECT_EQ(begins.back(), e.rows);
  const auto page = [&](int r, int i) { return tables[std::size_t(owner[std::size_t(r)] * e.width + i)]; };
  EXPECT_EQ(page(0, 0), 9);
  EXPECT_EQ(page(0, 1), 99);
  EXPECT_EQ(page(4, 0), 7);
  EXPECT_EQ(page(6, 1), 8);
  EXPECT_EQ(page(7, 0), 99) << "padding has the trash page";
  EXPECT_EQ(*s.layout.ancestors.row<std::uint64_t>(6), 4u) << "row 2 of its table";
  EXPECT_EQ(*s.layout.ancestors.row<std::uint64_t>(7), 0u);
  EXPECT_EQ(s.layout.straight.rows, 4);
  EXPECT_EQ(s.layout.straight.deepest, 4);
  EXPECT_EQ(s.layout.deepest, 8);
  EXPECT_FALSE(s.layout.first) << "no window";
}

TEST_F(Layouts, CandidatesComeInTheOrderOfTheTables) {
  LayoutBuilder b(fours, false, 99);
  b.clear();
  const std::vector<PageId> many{1, 2, 3, 4, 5}, few{6, 5};
  b.open(first, many, 2);  // a tree
  b.add(row(4, 5, 10)), b.add(row(5, 5, 11)), b.add(row(6, 5, 12));
  b.open(second, few, 1);  // a chain
  b.add(row(2, 3, 20));
  const LayoutBuilder::Extent& e = b.arrange();
  EXPECT_EQ(e.candidates, 8);
  Staging staging(fours);
  const Layout l = b.stage(staging, 0, own_bit).layout;
  const auto owner = ints(l.owner), counts = ints(l.selection.counts), chosen = ints(l.selection.chosen);
  ASSERT_EQ(l.selection.width, 8);
  ASSERT_EQ(l.selection.candidates.shape(), Shape({e.tables, 8}));
  const auto of_row = [&](int r) {
    const std::int32_t* const p = l.selection.candidates.row<std::int32_t>(owner[std::size_t(r)]);
    return std::vector<int>(p, p + 8);
  };
  EXPECT_EQ(of_row(0), (std::vector<int>{6, 5, 99, 99, 99, 99, 99, 99}));
  EXPECT_EQ(of_row(4), (std::vector<int>{1, 2, 3, 4, 5, 99, 99, 99}));
  for (int t = 0; t < e.tables; ++t) {
    const std::size_t i = std::size_t(t);
    EXPECT_EQ(counts[i], t == owner[0] ? 2 : t == owner[4] ? 5 : 0);
    EXPECT_EQ(chosen[i], t == owner[0] ? 1 : t == owner[4] ? 2 : 0);
  }
}

TEST_F(Layouts, AllRowsWantedInOrderNeedNoGather) {
  LayoutBuilder b(plain, false, 99);
  b.clear();
  b.open(second);
  b.add(row(2, 3)), b.want();
  b.add(row(3, 4)), b.want();
  EXPECT_TRUE(b.arrange().all_wanted);
  b.open(first);
  b.add(row(0, 1));
  EXPECT_FALSE(b.arrange().all_wanted) << "one row is not wanted";
}

TEST_F(Layouts, JoinedRowsSeeOneAnother) {
  LayoutBuilder b(plain, false, 99);
  b.clear();
  b.open(second);
  b.add(row(2, 3)), b.add(row(3, 4)), b.add(row(4, 5));
  b.join(2);
  b.arrange();
  Staging staging(plain);
  const auto s = b.stage(staging, 0, own_bit);
  EXPECT_EQ(ints(s.layout.visible), (std::vector<int>{3, 5, 5}));
  EXPECT_TRUE(s.layout.mutual);
  b.clear();
  b.open(second), b.add(row(2, 3)), b.arrange();
  EXPECT_FALSE(b.stage(staging, 0, own_bit).layout.mutual) << "of the next forward";
}

TEST_F(Layouts, AWindowHidesWhatIsBeforeIt) {
  LayoutBuilder b(plain, /*windows=*/true, 99);
  b.clear();
  b.open(first);
  LayoutBuilder::Row far = row(5, 6);
  far.first = 3;
  b.add(row(1, 2)), b.add(far);
  b.arrange();
  Staging staging(plain);
  EXPECT_EQ(ints(b.stage(staging, 0, own_bit).layout.first), (std::vector<int>{0, 3}));
}

// Of a model whose layers have a window in part.
TEST_F(Layouts, LayersWithoutAWindowHaveAllAncestors) {
  LayoutBuilder b(plain, /*windows=*/true, 99);
  b.clear();
  b.open(first);
  LayoutBuilder::Row node = row(5, 3);
  node.first = 4;
  b.add(node);
  b.arrange();
  Staging staging(plain);
  const auto near = [](int, int, std::span<std::uint64_t> words) { words[0] = 0b100; };
  const auto all = [](int, int, std::span<std::uint64_t> words) { words[0] = 0b110; };
  const Layout layout = b.stage(staging, 0, near, all).layout, whole = without_window(layout);
  EXPECT_EQ(*layout.ancestors.row<std::uint64_t>(0), 0b100u);
  EXPECT_EQ(*whole.ancestors.row<std::uint64_t>(0), 0b110u);
  EXPECT_TRUE(layout.first && !whole.first);
  EXPECT_FALSE(b.stage(staging, 0, near).layout.all_ancestors) << "of a model whose layers are alike";
}

TEST_F(Layouts, FeaturesFollowTheirRows) {
  const std::uint64_t a[] = {1, 2}, c[] = {3, 4};
  LayoutBuilder b(fours, false, 99);
  b.clear();
  b.open(first);  // branches, so that it comes last
  b.add({.slot = 3, .position = 3, .visible = 3, .inputs = a});
  b.open(second);
  b.add({.slot = 0, .position = 0, .visible = 1, .inputs = c});
  b.arrange();
  Staging staging(fours);
  const Tensor features = b.stage(staging, 2, own_bit).features;
  EXPECT_EQ(features.row<std::uint64_t>(0)[1], 4u);
  EXPECT_EQ(features.row<std::uint64_t>(4)[0], 1u);
  EXPECT_EQ(features.row<std::uint64_t>(1)[0], 0u) << "padding has none";
}

}  // namespace
}  // namespace foretoken::test
