// Where an output ends and why, against the oracle: stop strings, stop tokens and the length limit in one round, and
// stop strings however they lie in tokens and rounds.

#include "experiments/session/request.h"
#include "tests/oracle/scene.h"

namespace foretoken::oracle {
namespace {

std::string text(const Tokens& bytes) { return {bytes.begin(), bytes.end()}; }

// The output is 1, 2, 3, 4, 5, 6, 7, 0, 1, ..., and a drafter guesses as many of it as a round may have.
struct Stops : ::testing::Test {
  std::shared_ptr<HandModel> model = std::make_shared<HandModel>(followed_by({1, 2, 3, 4, 5, 6, 7, 0}));
  Ends ends{.text_of = byte_of};

  Sequence served(int length, bool logprobs = false, bool warped = false) {
    Scene scene(model);
    scene.configs.drafter = {{"name", "draft_model"}, {"model", "same"}};
    scene.configs.policy["length"] = length;
    const auto engine = scene.engine();
    Request r;
    r.prompt = {0};
    r.limits = {ends.max_new_tokens, ends.stop_tokens, stop_at(bytes(), ends.stops)};
    r.sampling.logprobs = logprobs, r.sampling.warped_logprobs = warped;
    const SequenceId id = engine->submit(std::move(r));
    return serve(*engine).at(id);
  }
  // Whatever the rounds, the output ends so.
  void expect_end(const Tokens& output, const std::string& reason) {
    for (const int length : {0, 1, 2, 3, 7, 15}) {
      const Sequence s = served(length);
      EXPECT_EQ(output_of(s), output) << "draft length " << length;
      EXPECT_EQ(name_of(s.finish), reason) << "draft length " << length;
      expect_served(s, model->logits_after(), ends);
    }
  }
};

TEST_F(Stops, a_stop_string_ends_the_round_that_the_length_limit_ends_too) {
  ends.stops = {text({3, 4})};
  ends.max_new_tokens = 4;
  expect_end({1, 2, 3, 4}, "stop_rule");
  ends.max_new_tokens = 6;
  expect_end({1, 2, 3, 4}, "stop_rule");
  ends.max_new_tokens = 3;
  expect_end({1, 2, 3}, "length");
}

TEST_F(Stops, a_stop_string_ends_the_round_that_a_stop_token_ends_too) {
  ends.stops = {text({3, 4})};
  ends.stop_tokens = {4};
  expect_end({1, 2, 3, 4}, "stop_rule");
  ends.stop_tokens = {6};
  expect_end({1, 2, 3, 4}, "stop_rule");
  ends.stop_tokens = {3};
  expect_end({1, 2, 3}, "stop_token");
}

TEST_F(Stops, a_stop_token_that_is_the_last_permitted_one_is_a_stop) {
  ends.stop_tokens = {5};
  ends.max_new_tokens = 5;
  expect_end({1, 2, 3, 4, 5}, "stop_token");
  ends.max_new_tokens = 4;
  expect_end({1, 2, 3, 4}, "length");
  ends.max_new_tokens = 6;
  expect_end({1, 2, 3, 4, 5}, "stop_token");
}

TEST_F(Stops, the_first_token_may_end_it) {
  ends.stop_tokens = {1};
  expect_end({1}, "stop_token");
  ends = {.stops = {text({1})}, .text_of = byte_of};
  expect_end({1}, "stop_rule");
  ends = {.max_new_tokens = 1, .text_of = byte_of};
  expect_end({1}, "length");
}

// The prompt's last token is 0: what it would complete was not generated.
TEST_F(Stops, a_stop_string_does_not_begin_in_the_prompt) {
  ends.stops = {text({0, 1, 2})};
  ends.max_new_tokens = 20;
  expect_end({1, 2, 3, 4, 5, 6, 7, 0, 1, 2}, "stop_rule");
}

TEST_F(Stops, of_several_strings_the_first_that_is_complete_counts) {
  ends.stops = {text({2, 3, 4, 5, 6}), text({4, 5}), text({6})};
  expect_end({1, 2, 3, 4, 5}, "stop_rule");
}

TEST_F(Stops, a_cut_output_has_a_log_probability_for_each_token_and_no_more) {
  ends.stops = {text({3, 4})};
  for (const int length : {1, 2, 3, 7, 15})
    for (const bool warped : {false, true}) {
      expect_served(served(length, true, warped), model->logits_after(), ends);
      EXPECT_EQ(served(length, true, warped).logprobs.size(), 4u) << length;
    }
  ends = {.max_new_tokens = 5, .stop_tokens = {6, 2}, .text_of = byte_of};
  EXPECT_EQ(served(7, true).logprobs.size(), 2u);
  ends.stop_tokens.clear();
  EXPECT_EQ(served(7, true).logprobs.size(), 5u);
}

// A rule of a user may keep fewer tokens than it saw.
TEST_F(Stops, a_rule_may_take_back_tokens_and_their_log_probabilities) {
  Scene scene(model);
  scene.configs.drafter = {{"name", "draft_model"}, {"model", "same"}};
  const auto engine = scene.engine();
  Request r;
  r.prompt = {0}, r.sampling.logprobs = true;
  r.limits.stop = [](std::span<const Token> generated, int) {
    return generated.size() >= 6 ? std::optional(2) : std::nullopt;
  };
  engine->submit(std::move(r));
  long reported = 0;
  const auto done = serve(*engine, [&](const StepReport& report) {
    for (const SequenceReport& q : report.sequences) reported += long(q.emitted.size());
  });
  EXPECT_EQ(output_of(done.begin()->second), (Tokens{1, 2}));
  EXPECT_EQ(done.begin()->second.logprobs.size(), 2u);
  EXPECT_EQ(reported, 4) << "the tokens of the first round; of the second none was kept";
}

// The text of the oracle is the whole one; a rule keeps a tail of it, and gets tokens in pieces of any size.
TEST(StopStrings, are_found_wherever_they_lie) {
  Below below(11);
  const auto tokenizer = bytes();
  int found = 0;
  for (int i = 0; i < 4000; ++i) {
    Tokens endless(24);
    for (Token& t : endless) t = 'a' + below(2 + i % 2);
    Ends ends{.max_new_tokens = 1000, .text_of = byte_of};
    for (int k = below(3); k >= 0; --k) {
      std::string& stop = ends.stops.emplace_back();
      for (int b = 1 + below(7); b > 0; --b) stop += char('a' + below(2 + i % 2));
    }
    const StopRule rule = stop_at(tokenizer, ends.stops);
    std::optional<int> kept;
    for (std::size_t seen = 0; seen < endless.size() && !kept;) {
      const std::size_t now = std::min(endless.size(), seen + 1 + std::size_t(below(5)));
      kept = rule(std::span(endless).first(now), int(seen));
      seen = now;
    }
    const Ended want = ended(endless, ends);
    ASSERT_EQ(kept.has_value(), want.reason == "stop_rule") << "case " << i;
    if (kept) {
      ASSERT_EQ(std::size_t(*kept), want.output.size()) << "case " << i;
    }
    found += kept.has_value();
  }
  EXPECT_GT(found, 2000);
}

// Each byte of the longest string is a token of its own, so the tail must have all but one of them.
TEST(StopStrings, of_one_byte_a_token_need_the_whole_tail) {
  const auto tokenizer = bytes();
  for (const std::string stop : {"a", "ab", "aab", "abcdefgh", "aaaaaaab"}) {
    const StopRule rule = stop_at(tokenizer, {stop});
    const std::string text = "zz" + stop;
    const Tokens tokens(text.begin(), text.end());
    for (std::size_t n = 1; n < tokens.size(); ++n)
      EXPECT_FALSE(rule(std::span(tokens).first(n), int(n) - 1)) << stop << ": " << n;
    EXPECT_EQ(rule(tokens, int(tokens.size()) - 1), std::optional(int(tokens.size()))) << stop;
  }
}

}  // namespace
}  // namespace foretoken::oracle
