// Outputs side by side, counted by hand.
#include <gtest/gtest.h>

#include "experiments/quality/predictions.h"

namespace foretoken {
namespace {

TEST(OutputFigures, CountEqualOutputsAndCommonPrefixes) {
  const Outputs reference = {{1, 2, 3, 4}, {5, 6}, {7, 8, 9}, {1}};
  const Outputs model = {{1, 2, 9, 4}, {5, 6}, {7, 8, 9, 10}, {2}};  // 2 in common, 2, 3, 0
  const OutputFigures f = figures_of(model, reference);
  EXPECT_EQ(f.prompts, 4);
  EXPECT_DOUBLE_EQ(f.equal.value, 0.25);
  EXPECT_DOUBLE_EQ(f.prefix.value, 7.0 / 4);
  EXPECT_DOUBLE_EQ(f.prefix_share.value, 7.0 / 10);
  EXPECT_NEAR(f.equal.low, 0.0063, 5e-5);  // Clopper and Pearson, 1 of 4
  EXPECT_NEAR(f.equal.high, 0.8059, 5e-5);
}

TEST(OutputFigures, OfEqualOutputs) {
  const Outputs reference(20, {1, 2, 3});
  const OutputFigures f = figures_of(reference, reference);
  EXPECT_EQ(f.equal.value, 1);
  EXPECT_NEAR(f.equal.low, 0.8316, 5e-5);  // 0.025^(1/20)
  EXPECT_EQ(f.prefix.value, 3);
  EXPECT_EQ(f.prefix_share.value, 1);
  EXPECT_FALSE(f.prefix.bounded() || f.prefix_share.bounded()) << "equal outputs do not say how others vary";
}

// Two prompts that differ alike are no proof that all do.
TEST(OutputFigures, OfPromptsThatAreAllAlikeHaveNoBounds) {
  const OutputFigures f = figures_of({{1, 2, 3, 4, 0}, {1, 2, 3, 4, 0}}, {{1, 2, 3, 4, 5}, {1, 2, 3, 4, 6}});
  EXPECT_EQ(f.prefix.value, 4);
  EXPECT_FALSE(f.prefix.bounded());
  EXPECT_FALSE(f.prefix_share.bounded());
  EXPECT_LT(f.equal.high, 1);
  EXPECT_GT(f.equal.high, 0.5) << "of 2 prompts";
}

// An output that ends early has not the whole of the other, though it is a prefix of it.
TEST(OutputFigures, APrefixIsNotEqual) {
  const OutputFigures f = figures_of({{1, 2}, {1, 2, 3}}, {{1, 2, 3}, {1, 2}});
  EXPECT_EQ(f.equal.value, 0);
  EXPECT_DOUBLE_EQ(f.prefix.value, 2);
}

}  // namespace
}  // namespace foretoken
