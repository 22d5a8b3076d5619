// What a step reports of a verified tree: its nodes and levels without absent ones.
#include "framework/engine/tree_report.h"

#include <gtest/gtest.h>

namespace foretoken::test {
namespace {

TEST(TreeReport, nodes_below_an_absent_one_are_absent_too) {
  // 0 > 1 (absent) > 2 > 3 > 4, and 0 > 5 > 6
  const std::vector<std::int32_t> parents{-1, 0, 1, 2, 3, 0, 5}, path{5};
  const std::vector<Token> tokens{7, -1, 3, 2, 1, 4, 4};
  SequenceReport report;
  std::vector<int> depth;
  report_tree(report, parents, tokens, path, 2, depth);
  EXPECT_EQ(report.drafted, 2);
  EXPECT_EQ(report.depth, 2);
  EXPECT_EQ(report.accepted, 1);
  EXPECT_TRUE(report.rejected) << "the child of the accepted node";
  ASSERT_EQ(report.levels.size(), 2u);
  EXPECT_EQ(report.levels[0].children, 1);
  EXPECT_EQ(report.levels[0].accepted, 0);
  EXPECT_EQ(report.levels[1].children, 1);
  EXPECT_EQ(report.levels[1].accepted, -1);
}

TEST(TreeReport, the_accepted_child_has_its_place_among_many) {
  std::vector<std::int32_t> parents(40, 0);
  parents[0] = -1;
  const std::vector<Token> tokens(40, 3);
  std::vector<int> depth;
  for (std::int32_t accepted = 1; accepted < 40; ++accepted) {
    SequenceReport report;
    report_tree(report, parents, tokens, {&accepted, 1}, 2, depth);
    ASSERT_EQ(report.levels.size(), 1u);
    EXPECT_EQ(report.levels[0].children, 39);
    EXPECT_EQ(report.levels[0].accepted, accepted - 1);
    EXPECT_FALSE(report.rejected);
  }
}

// A chain of four, of which the verifier accepted three.
TEST(TreeReport, what_lies_behind_the_end_of_the_output_was_not_tested) {
  const std::vector<std::int32_t> parents{-1, 0, 1, 2, 3}, path{1, 2, 3};
  const std::vector<Token> tokens{7, 1, 2, 3, 4};
  std::vector<int> depth;
  for (int kept = 0; kept <= 4; ++kept) {
    SequenceReport report;
    report_tree(report, parents, tokens, path, kept, depth);
    EXPECT_EQ(report.drafted, 4);
    EXPECT_EQ(report.accepted, std::min(kept, 3)) << kept;
    EXPECT_EQ(report.rejected, kept == 4) << "the fourth was tested only if the token behind the third was kept";
    EXPECT_EQ(int(report.levels.size()), report.tested()) << kept;
  }
}

}  // namespace
}  // namespace foretoken::test
