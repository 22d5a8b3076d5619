// Adjustments of logits, against values computed by hand.
#include "kernels/adjustment.h"

#include <limits>

#include <gtest/gtest.h>

namespace foretoken::test {
namespace {

TEST(AdjustmentTest, one_token_by_hand) {
  EXPECT_EQ(adjusted(2, {0, 0, 1, 0}, {.repetition = 2}), 1);
  EXPECT_EQ(adjusted(-2, {0, 0, 1, 0}, {.repetition = 2}), -4) << "a penalty never makes a token more likely";
  EXPECT_EQ(adjusted(2, {0, 0, 0, 0}, {.repetition = 2}), 2) << "not a listed token";
  EXPECT_EQ(adjusted(2, {0, 3, 1, 0}, {.frequency = 0.5f}), 0.5f);
  EXPECT_EQ(adjusted(2, {0, 3, 1, 0}, {.presence = 0.5f}), 1.5f);
  EXPECT_EQ(adjusted(2, {0, 0, 1, 0}, {.frequency = 0.5f, .presence = 0.5f}), 2) << "of the prompt only";
  EXPECT_EQ(adjusted(2, {0, 1, 1, -4}, {.repetition = 2, .frequency = 1, .presence = 2}), -7)
      << "bias, repetition, frequency, presence";
  constexpr float forbidden = -std::numeric_limits<float>::infinity();
  for (const float logit : {-3e38f, -2.0f, 0.0f, 3e38f})
    EXPECT_EQ(adjusted(logit, {0, 3, 1, forbidden}, {.repetition = 0.5f, .frequency = -100, .presence = -100}),
              forbidden)
        << "no penalty brings a forbidden token back";
}

}  // namespace
}  // namespace foretoken::test
