// The theory of independent positions, at its ends.
#include <gtest/gtest.h>

#include "experiments/report/summary.h"

namespace foretoken::test {
namespace {

// Ten rounds with drafts of four tokens, of which this share was accepted.
TheoryFigures full_drafts(double alpha) {
  Summary s;
  s.alpha = {alpha, alpha, alpha}, s.theory.draft_length = 4;
  s.speculative.rounds = 10, s.speculative.drafted = 40;
  for (int position = 1; position <= 4; ++position) s.positions.push_back({.position = position, .drafted = 10});
  return theory_of(s);
}

TEST(Theory, TauOfFullDraftsAtBothEndsAndBetween) {
  EXPECT_TRUE(full_drafts(1).full_length);
  EXPECT_EQ(full_drafts(0).tau, 1);
  EXPECT_DOUBLE_EQ(full_drafts(0.5).tau, 1.9375);
  EXPECT_NEAR(full_drafts(1 - 1e-9).tau, 5, 1e-6);
  EXPECT_EQ(full_drafts(1).tau, 5) << "every token of the draft, and the target's own";
}

}  // namespace
}  // namespace foretoken::test
