// Sequences as a model of another vocabulary reads them.
#include "framework/cache/read_sequences.h"

#include <gtest/gtest.h>

#include "tests/support/two_vocabularies.h"

namespace foretoken::test {
namespace {

Sequence sequence_of(std::vector<Token> tokens, int prompt, SequenceId id = 1) {
  Sequence s;
  s.id = id, s.tokens = std::move(tokens), s.prompt_length = prompt;
  return s;
}

// The target's words are a, b, c, ab; the model's c, b, a, ba, x, of which the last two are 4 + 3 and 4 + 4.
struct ReadSequencesTest : testing::Test {
  std::shared_ptr<const VocabularyMap> map = map_of_words(4);
  ReadSequences read{map.get()};
};

TEST_F(ReadSequencesTest, a_prompt_is_read_as_a_text_and_an_output_token_by_token) {
  EXPECT_EQ(read.of(sequence_of({0, 1, 0, 3, 1, 0, 3}, 4)).tokens, (std::vector<Token>{0, 7, 0, 1, 1, 0, 0, 1}));
}

TEST_F(ReadSequencesTest, what_was_read_stays_while_a_sequence_grows) {
  Sequence s = sequence_of({1, 0, 3, 2}, 4);
  std::vector<Token> before = read.of(s).tokens;
  for (const Token t : {3, 0, 1, 3, 2, 3}) {
    s.tokens.push_back(t);
    const std::vector<Token>& now = read.of(s).tokens;
    ASSERT_GT(now.size(), before.size());
    EXPECT_TRUE(std::ranges::equal(before, std::span(now).first(before.size())));
    before = now;
    ReadSequences at_once{map.get()};
    EXPECT_EQ(at_once.of(s).tokens, now);
  }
}

// As a stop rule cuts it.
TEST_F(ReadSequencesTest, a_sequence_that_was_cut_is_read_anew) {
  Sequence s = sequence_of({0, 2, 3, 3, 1}, 2);
  (void)read.of(s);
  s.tokens.resize(3);
  EXPECT_EQ(read.of(s).tokens, (std::vector<Token>{0, 2, 0, 1}));
}

// Tokens that may be taken back are read behind those that stay, and those in their place anew.
TEST_F(ReadSequencesTest, a_path_may_be_taken_back) {
  Sequence s = sequence_of({0, 1, 0, 3, 3}, 3);
  const std::vector<Token> own = read.of(s).tokens;
  const int kept = int(own.size());
  ASSERT_NE(kept, s.length()) << "otherwise this tests less";
  EXPECT_EQ(read.of(s).verified, -1);
  for (const std::vector<Token>& path : {std::vector<Token>{3, 3}, {1}, {}, {2, 3, 0}}) {
    Sequence below = s;
    below.verified = s.length();
    below.tokens.insert(below.tokens.end(), path.begin(), path.end());
    Sequence plain = below;
    plain.verified = -1;
    ReadSequences at_once{map.get()};
    EXPECT_EQ(read.of(below).tokens, at_once.of(plain).tokens);
    EXPECT_EQ(read.of(below).verified, kept) << "counted in the model's own tokens";
  }
  EXPECT_EQ(read.of(s).tokens, own);
  s.tokens.push_back(2);
  s.verified = s.length();
  EXPECT_EQ(read.of(s).verified, kept + 1);
}

TEST_F(ReadSequencesTest, an_id_that_was_forgotten_is_another_sequence) {
  (void)read.of(sequence_of({0, 2, 3}, 2));
  read.forget(1);
  EXPECT_EQ(read.of(sequence_of({2, 2, 1, 1}, 4)).tokens, (std::vector<Token>{2, 2, 1, 1}));
  EXPECT_EQ(read.of(sequence_of({1}, 1, 2)).tokens, (std::vector<Token>{1}));
}

TEST_F(ReadSequencesTest, without_a_map_it_is_the_sequence_itself) {
  ReadSequences same{nullptr};
  const Sequence s = sequence_of({0, 3}, 1);
  EXPECT_EQ(&same.of(s), &s);
}

}  // namespace
}  // namespace foretoken::test
