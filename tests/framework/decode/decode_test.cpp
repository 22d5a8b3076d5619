// How sequences end; what tallies count.
#include <limits>

#include <gtest/gtest.h>

#include "framework/decode/sequence.h"
namespace foretoken::test {
namespace {

Sequence started(int max_new_tokens, std::vector<Token> stop = {}) {
  Sequence s;
  s.tokens = {1, 2};
  s.prompt_length = 2;
  s.limits.max_new_tokens = max_new_tokens;
  s.limits.stop_tokens = std::move(stop);
  return s;
}

TEST(SequenceTest, the_length_limit_cuts_inside_an_accepted_path) {
  Sequence s = started(3);
  EXPECT_EQ(s.append(std::vector<Token>{7, 8}), 2);
  EXPECT_TRUE(s.running());
  EXPECT_EQ(s.append(std::vector<Token>{9, 9, 9}), 1);
  EXPECT_EQ(s.finish, Finish::length);
  EXPECT_EQ(s.tokens, (std::vector<Token>{1, 2, 7, 8, 9}));
}

TEST(SequenceTest, a_stop_token_ends_the_output_and_is_kept) {
  Sequence s = started(10, {0});
  EXPECT_EQ(s.append(std::vector<Token>{7, 0, 8}), 2);
  EXPECT_EQ(s.finish, Finish::stop_token);
}

TEST(SequenceTest, a_stop_rule_decides_how_many_tokens_are_kept) {
  Sequence s = started(10);
  s.limits.stop = [](std::span<const Token> generated, int) -> std::optional<int> {
    if (generated.size() < 3) return std::nullopt;
    return 1;
  };
  EXPECT_EQ(s.append(std::vector<Token>{7, 8}), 2);
  EXPECT_EQ(s.append(std::vector<Token>{9}), 0);
  EXPECT_EQ(s.finish, Finish::stop_rule);
  EXPECT_EQ(s.generated(), 1);
}

std::string shown(const Tally& tally) {
  std::string s;
  for (const TokenCount& count : tally.token_counts())
    s += std::to_string(count.token) + ":" + std::to_string(count.times) + (count.anywhere ? "+" : "-") +
         std::to_string(int(count.bias)) + " ";
  return s;
}

TEST(TallyTest, counts_generated_tokens_and_marks_those_of_the_prompt) {
  const std::vector<Token> prompt{4, 2, 4};
  const std::vector<TokenBias> biases{{9, 3}, {2, -5}, {9, 1}};
  Tally tally({.repetition = 2}, biases, prompt);
  EXPECT_EQ(shown(tally), "2:0+-5 4:0+0 9:0-4 ");
  for (const Token t : {7, 4, 7}) tally.add(t);
  EXPECT_EQ(shown(tally), "2:0+-5 4:1+0 7:2+0 9:0-4 ");
}

TEST(TallyTest, a_bias_of_minus_100_forbids_a_token) {
  const std::vector<TokenBias> biases{{1, -100}, {2, -99.5f}, {3, -60}, {3, -60}, {4, 100}, {4, -100}, {5, 100}};
  const Tally tally({}, biases, {});
  constexpr float forbidden = -std::numeric_limits<float>::infinity();
  const float expected[] = {forbidden, -99.5f, forbidden, forbidden, 100};
  ASSERT_EQ(tally.token_counts().size(), 5u);
  for (std::size_t i = 0; i < 5; ++i)
    EXPECT_EQ(tally.token_counts()[i].bias, expected[i]) << "token " << tally.token_counts()[i].token;
}

TEST(TallyTest, the_order_of_a_tokens_biases_does_not_matter) {
  const auto bias = [](const std::vector<TokenBias>& biases) {
    return Tally({}, biases, {}).token_counts().front().bias;
  };
  EXPECT_EQ(bias({{3, -60}, {3, 50}, {3, -60}}), -70);
  EXPECT_EQ(bias({{3, -60}, {3, -60}, {3, 50}}), -70) << "a sum on the way forbids nothing";
  EXPECT_EQ(bias({{3, 0.1f}, {3, 64}, {3, -64}}), bias({{3, 64}, {3, -64}, {3, 0.1f}}));
  constexpr float forbidden = -std::numeric_limits<float>::infinity();
  EXPECT_EQ(bias({{3, -100}, {3, 100}}), forbidden);
  EXPECT_EQ(bias({{3, 100}, {3, 100}, {3, -100}}), forbidden) << "-100 forbids, whatever else there is";
}

TEST(TallyTest, keeps_only_what_its_options_need) {
  const std::vector<Token> prompt{4, 2, 4};
  const std::vector<TokenBias> biases{{9, 3}};
  Tally none({}, {}, prompt), biased({}, biases, prompt), frequent({.frequency = 1}, {}, prompt);
  for (Tally* t : {&none, &biased, &frequent}) t->add(4);
  EXPECT_FALSE(none.adjusts());
  EXPECT_EQ(shown(none), "");
  EXPECT_TRUE(biased.adjusts() && !biased.counts());
  EXPECT_EQ(shown(biased), "9:0-3 ");
  EXPECT_TRUE(frequent.adjusts() && frequent.counts());
  EXPECT_EQ(shown(frequent), "4:1+0 ");
}

TEST(TallyTest, a_sequence_counts_the_kept_tokens_of_an_accepted_path) {
  Sequence s = started(3);
  s.tally = Tally({.presence = 1}, {}, s.tokens);
  s.append(std::vector<Token>{7, 8, 7, 9, 9});
  EXPECT_EQ(shown(s.tally), "7:2+0 8:1+0 ");
}

// One over it is the greatest number of fp32 but a little, then more than that.
TEST(SamplingTest, a_temperature_is_one_whose_inverse_is_a_number) {
  EXPECT_TRUE(is_temperature(3e-39));
  EXPECT_FALSE(is_temperature(2.9e-39));
  EXPECT_TRUE(is_temperature(3.4e38));
  EXPECT_FALSE(is_temperature(3.5e38));
}

}  // namespace
}  // namespace foretoken::test
