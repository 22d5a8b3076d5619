// Which tokens two vocabularies have in common, and how a model of the one reads the other's.
#include "framework/model/vocabulary_map.h"

#include <gtest/gtest.h>

#include "tests/support/sentence.h"
#include "tests/support/two_vocabularies.h"

namespace foretoken::test {
namespace {

std::shared_ptr<const Tokenizer> stored(const std::string& name) {
  return Tokenizer::load("tests/data/tokenizers/" + name);
}
VocabularyMap::Side side_of(const std::shared_ptr<const Tokenizer>& t, const char* name) {
  return {name, t->vocab(), t};
}
VocabularyMap between(const std::string& target, const std::string& own) {
  return {side_of(stored(target), "T"), side_of(stored(own), "D")};
}

// Counted by a script that reads the files' words alone: tokens of equal bytes, and special tokens of equal text. Byte
// tokens (<0x0A>), marks of spaces and GPT-2's alphabet are spellings. The added token <tool> of llama2 has a space
// before it, which its normalizer puts there, so it is not that of qwen2.
TEST(VocabularyMap, counts_the_common_tokens_of_stored_tokenizers) {
  const auto summary = [](const char* target, const char* own) { return between(target, own).summary(); };
  EXPECT_EQ(summary("llama3", "qwen2"), "the model D has 641 of the 806 tokens of the target T");
  EXPECT_EQ(summary("llama2", "qwen2"), "the model D has 527 of the 794 tokens of the target T");
  EXPECT_EQ(summary("qwen2", "llama2"), "the model D has 527 of the 649 tokens of the target T");
  EXPECT_EQ(summary("mistral", "llama3"), "the model D has 518 of the 678 tokens of the target T");
  EXPECT_EQ(summary("gpt2", "llama3"), "the model D has 681 of the 700 tokens of the target T");
  EXPECT_EQ(between("llama2", "mistral").common(), 674);
}

TEST(VocabularyMap, common_tokens_have_one_text_and_one_partner) {
  for (const auto& [target, own] : {std::pair{"llama3", "qwen2"}, {"qwen2", "llama2"}, {"llama2", "llama3"}}) {
    const VocabularyMap map = between(target, own);
    const auto theirs = stored(target), ours = stored(own);
    int common = 0;
    for (Token t = 0; t < theirs->vocab(); ++t) {
      const Token o = map.own_ids()[std::size_t(t)];
      if (o < 0) continue;
      ++common;
      EXPECT_EQ(map.target_ids()[std::size_t(o)], t);
      EXPECT_EQ(map.id_of(o), t);
      EXPECT_EQ(theirs->decode_inside({&t, 1}, true), ours->decode_inside({&o, 1}, true));
      EXPECT_EQ(theirs->is_special(t), ours->is_special(o));
    }
    EXPECT_EQ(common, map.common());
  }
}

// A prompt is read as the model's own tokenizer encodes its text, whatever the target's tokens are.
TEST(VocabularyMap, reads_prompts_as_the_models_tokenizer_does) {
  for (const char* target : {"llama3", "llama2", "qwen2", "mistral"})
    for (const char* own : {"qwen2", "llama2", "llama3", "mistral"})
      for (const char* text : {"The quick brown fox, and 12 more.", "na\u00efve \u4f60\u597d", "a\n\n  b\tc"}) {
        const auto theirs = stored(target), ours = stored(own);
        const VocabularyMap map(side_of(theirs, "T"), side_of(ours, "D"));
        std::vector<Token> expected(ours->beginning().begin(), ours->beginning().end());
        for (const Token t : ours->encode(text, false)) expected.push_back(t);
        for (Token& t : expected) t = map.id_of(t);
        EXPECT_EQ(map.read_prompt(theirs->encode(text)), expected) << target << ", " << own << ": " << text;
      }
}

// Every token of an output is read as its bytes, whichever side spells it how.
TEST(VocabularyMap, reads_every_token_of_an_output_as_its_bytes) {
  for (const auto& [target, own] : {std::pair{"llama3", "qwen2"}, {"qwen2", "llama2"}, {"llama2", "llama3"}}) {
    const auto theirs = stored(target), ours = stored(own);
    const VocabularyMap map(side_of(theirs, "T"), side_of(ours, "D"));
    int several = 0;
    for (Token t = 0; t < theirs->vocab(); ++t) {
      if (theirs->is_special(t)) continue;
      std::vector<Token> read;
      map.read(t, read);
      several += read.size() > 1;
      std::vector<Token> tokens;
      for (const Token r : read) tokens.push_back(map.own_ids()[std::size_t(r)]);
      EXPECT_EQ(ours->decode_inside(tokens), theirs->decode_inside({&t, 1})) << target << ", " << own << ": " << t;
    }
    EXPECT_GT(several, 5);
  }
}

TEST(VocabularyMap, special_tokens_are_those_of_the_same_text_and_others_are_left_out) {
  const VocabularyMap map({"T", 5, tokenizer_of({"<s>", "<both>", "<theirs>", "a", "b"}, {0})},
                          {"D", 6, tokenizer_of({"a", "<begin>", "<more>", "<both>", "b", "<ours>"}, {1, 2})});
  EXPECT_EQ(map.common(), 3);
  EXPECT_EQ(map.read_prompt(std::vector<Token>{0, 3, 1, 4, 2, 4}), (std::vector<Token>{5 + 1, 5 + 2, 3, 1, 4, 4}));
  EXPECT_EQ(map.read_prompt(std::vector<Token>{3, 0, 4}), (std::vector<Token>{3, 4})) << "it does not begin so";
  std::vector<Token> read;
  map.read(2, read);
  EXPECT_TRUE(read.empty());
  const VocabularyMap bare({"T", 3, tokenizer_of({"a", "<theirs>", "b"})}, {"D", 2, tokenizer_of({"b", "a"})});
  EXPECT_EQ(bare.read_prompt(std::vector<Token>{1}), (std::vector<Token>{2})) << "a sequence has a token";
}

TEST(VocabularyMap, of_several_tokens_of_a_text_the_encoded_one_counts) {
  const auto theirs = stored("llama2"), ours = stored("qwen2");
  const VocabularyMap map(side_of(theirs, "T"), side_of(ours, "D"));
  const Token letter = theirs->encode_inside("A").front();
  EXPECT_EQ(map.own_ids()[std::size_t(letter)], ours->encode_inside("A").front());
  std::vector<Token> read;
  for (Token t = 0; t < theirs->vocab(); ++t)
    if (t != letter && theirs->decode_inside({&t, 1}) == "A") map.read(t, read);
  EXPECT_EQ(read, (std::vector<Token>{letter})) << "the byte token <0x41> is read as the letter";
}

// Ids beyond the columns of a model's logits are no tokens.
TEST(VocabularyMap, ends_where_a_models_logits_end) {
  const auto t = stored("llama3");
  const VocabularyMap map({"T", 300, t}, {"D", 280, t});
  EXPECT_EQ(map.common(), 280);
  EXPECT_EQ(map.ids(), 580);
}

TEST(VocabularyMap, refuses_vocabularies_without_a_common_token) {
  EXPECT_EQ(
      sentence_of([] { VocabularyMap({"T", 2, tokenizer_of({"a", "<b>"})}, {"D", 2, tokenizer_of({"c", "<d>"})}); }),
      "the draft model D and the target T have no token in common, so that nothing could be drafted; use a draft "
      "model whose tokenizer has tokens of the target's");
}

TEST(TokenizerGolden, texts_that_continue_others_get_no_marks) {
  for (const char* name : {"llama2", "mistral", "metaspace", "gemma", "qwen2"}) {
    const auto t = stored(name);
    const std::vector<Token> begun = t->encode("the the", false), more = t->encode_inside(" the");
    EXPECT_EQ(std::vector<Token>(begun.end() - std::ptrdiff_t(more.size()), begun.end()), more) << name;
    EXPECT_EQ(t->decode_inside(t->encode_inside("the")), "the") << name;
  }
}

}  // namespace
}  // namespace foretoken::test
