// Supported contents of a tokenizer.json, messages for others, and the cost of long words.
#include <chrono>
#include <thread>

#include "tests/framework/text/tokenizer_file.h"

namespace foretoken::test {
namespace {

TEST_F(TokenizerFile, MergesLowestRankFirst) {
  const auto t = load(tiny());
  EXPECT_EQ(t->encode("abc"), (Ids{257}));
  EXPECT_EQ(t->encode("aabc"), (Ids{'a', 257}));
  EXPECT_EQ(t->encode("aaab"), (Ids{258, 256}));
  EXPECT_EQ(t->encode("bc"), (Ids{'b', 'c'}));
  EXPECT_EQ(t->encode(""), Ids{});
  EXPECT_EQ(t->vocab(), 262);
  EXPECT_TRUE(t->is_special(260) && !t->is_special(261) && !t->is_special(0) && !t->is_special(-1) &&
              !t->is_special(999));
}

TEST_F(TokenizerFile, OldAndNewFileFormats) {
  json file = tiny();
  const auto print = load(file)->fingerprint();
  file["model"].erase("type");  // as in GPT-2's own file
  file["model"]["merges"] = json::array({json::array({"a", "b"}), json::array({"ab", "c"}), json::array({"a", "a"})});
  const auto t = load(file);
  EXPECT_EQ(t->encode("aabc"), (Ids{'a', 257}));
  EXPECT_EQ(t->fingerprint(), print);
  file["model"]["ignore_merges"] = true;
  EXPECT_EQ(load(file)->encode("bc"), (Ids{259}));
}

TEST_F(TokenizerFile, FingerprintIsOfIdsAndBytes) {
  json file = tiny();
  const auto print = load(file)->fingerprint();
  file["model"]["merges"] = json::array();
  file["added_tokens"][0]["special"] = false;
  EXPECT_EQ(load(file)->fingerprint(), print);
  file["added_tokens"][0]["content"] = "<t>";
  EXPECT_NE(load(file)->fingerprint(), print);
  file = tiny();
  std::swap(file["model"]["vocab"]["ab"], file["model"]["vocab"]["bc"]);
  EXPECT_NE(load(file)->fingerprint(), print);
}

TEST_F(TokenizerFile, TokensOfThePostProcessor) {
  json file = tiny();
  const json frame = {
      {"type", "TemplateProcessing"},
      {"single",
       {{{"SpecialToken", {{"id", "<s>"}, {"type_id", 0}}}},
        {{"Sequence", {{"id", "A"}, {"type_id", 0}}}},
        {{"SpecialToken", {{"id", "<x>"}, {"type_id", 0}}}}}},
      {"special_tokens", {{"<s>", {{"id", "<s>"}, {"ids", {260}}}}, {"<x>", {{"id", "<x>"}, {"ids", {261, 261}}}}}}};
  file["post_processor"] = {{"type", "Sequence"}, {"processors", {{{"type", "ByteLevel"}}, frame}}};
  const auto t = load(file);
  EXPECT_EQ(t->encode("a"), (Ids{260, 'a', 261, 261}));
  EXPECT_EQ(t->encode("a", /*special=*/false), (Ids{'a'}));
  EXPECT_EQ(t->encode("<s>"), (Ids{260, 260, 261, 261}));
}

TEST_F(TokenizerFile, DecodesBytesAndLeavesSpecialTokensOut) {
  const auto t = load(tiny());
  EXPECT_EQ(t->decode(Ids{260, 257, 261, -1, 4000}), "abc<x>");
  EXPECT_EQ(t->decode(Ids{260, 257}, /*special=*/true), "<s>abc");
  EXPECT_EQ(t->decode(t->encode("\xf0\x9f\x98\x80 \xc3\xa9")), "\xf0\x9f\x98\x80 \xc3\xa9");
}

TEST_F(TokenizerFile, StreamsWholeCharacters) {
  const auto t = load(tiny());
  const Ids ids = t->encode("a\xf0\x9f\x98\x80z");
  TextStream stream(t);
  std::string seen;
  for (Token id : ids) {
    const std::string piece = stream.push(std::span(&id, 1));
    EXPECT_EQ(replace_broken_utf8(piece), piece);
    EXPECT_TRUE(piece.empty() || piece == "a" || piece == "z" || piece == "\xf0\x9f\x98\x80") << piece;
    seen += piece;
  }
  EXPECT_EQ(seen + stream.finish(), "a\xf0\x9f\x98\x80z");
  const Token cut[] = {ids[0], ids[1], ids[2]}, other[] = {'b'};
  EXPECT_EQ(stream.push(cut), "a");
  EXPECT_EQ(stream.push(other),
            "\xef\xbf\xbd"
            "b");
  EXPECT_EQ(stream.push(cut), "a");
  EXPECT_EQ(stream.finish(), "\xef\xbf\xbd");
  EXPECT_EQ(stream.finish(), "");
}

TEST_F(TokenizerFile, LongWordsCostLittle) {
  const auto t = load(tiny());
  for (const char letter : {'a', ' ', '1', '\n'}) {
    const std::string word(100'000, letter);
    const auto begin = std::chrono::steady_clock::now();
    const Ids ids = t->encode(word);
    EXPECT_EQ(t->decode(ids), word);
    EXPECT_LT(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(), 5)
        << "quadratic in the length of a word";
  }
}

TEST_F(TokenizerFile, ManyThreadsShareOne) {
  const auto t = load(tiny());
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int k = 0; k < 4; ++k)
    threads.emplace_back([&] {
      for (int i = 0; i < 500; ++i)
        if (t->decode(t->encode("aabc " + std::to_string(i))) != "aabc " + std::to_string(i)) ++wrong;
    });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST_F(TokenizerFile, WhatIsNotImplementedIsNamed) {
  expect_refusals({
      {"/model/type", "Unigram", "'model.type' is \"Unigram\", but the only tokenizer model supported is \"BPE\""},
      {"/model/type", "WordPiece", "\"WordPiece\""},
      {"/model/dropout", 0.1, "'model.dropout' is 0.1, but only null is supported"},
      {"/model/end_of_word_suffix", "</w>", "'model.end_of_word_suffix' is \"</w>\""},
      {"/model/continuing_subword_prefix", "##", "'model.continuing_subword_prefix' is \"##\""},
      {"/normalizer",
       {{"type", "Precompiled"}, {"precompiled_charsmap", "_"}},
       "'normalizer.type' is \"Precompiled\", but the supported normalizers are"},
      {"/normalizer", {{"type", "Sequence"}, {"normalizers", {{{"type", "Lowercase"}}}}}, "\"Lowercase\""},
      {"/post_processor",
       {{"type", "RobertaProcessing"}},
       "'post_processor.type' is \"RobertaProcessing\", but the supported post-processors are"},
      {"/post_processor",
       {{"type", "TemplateProcessing"}, {"single", json::array()}, {"special_tokens", json::object()}},
       "the text must occur in it"},
      {"/decoder",
       {{"type", "WordPiece"}},
       "'decoder.type' is \"WordPiece\", but the supported decoders are ByteLevel, Metaspace"},
      {"/decoder", {{"type", "Metaspace"}}, "it and the pre_tokenizer must both be ByteLevel, or neither"},
      {"/decoder", nullptr, "has no 'decoder'"},
  });
}

TEST_F(TokenizerFile, PreTokenizersThatAreNotImplementedAreNamed) {
  expect_refusals({
      {"/pre_tokenizer", nullptr, "it and the pre_tokenizer must both be ByteLevel, or neither"},
      {"/pre_tokenizer",
       {{"type", "BertPreTokenizer"}},
       "'pre_tokenizer.type' is \"BertPreTokenizer\", but the supported pre-tokenizers are"},
      {"/pre_tokenizer",
       {{"type", "Metaspace"}, {"prepend_scheme", "last"}},
       "'pre_tokenizer.prepend_scheme' is \"last\""},
      {"/pre_tokenizer",
       {{"type", "Sequence"}, {"pretokenizers", {{{"type", "ByteLevel"}}, {{"type", "Digits"}}}}},
       "ByteLevel must be the last pre-tokenizer"},
      {"/pre_tokenizer",
       {{"type", "Split"}, {"pattern", {{"Regex", "a"}}}, {"behavior", "Sideways"}},
       "'pre_tokenizer.behavior' is \"Sideways\""},
      {"/pre_tokenizer",
       {{"type", "Split"}, {"pattern", {{"Glob", "a"}}}, {"behavior", "Isolated"}},
       "must be a Regex or a String"},
      {"/pre_tokenizer",
       {{"type", "Split"}, {"pattern", {{"Regex", "\\w+"}}}, {"behavior", "Isolated"}},
       "the pattern \\w+ has the escape \\w, which is not supported"},
      {"/pre_tokenizer",
       {{"type", "Split"}, {"pattern", {{"Regex", "(a"}}}, {"behavior", "Isolated"}},
       "the pattern (a is not understood"},
  });
}

TEST_F(TokenizerFile, WhatIsWrongIsNamed) {
  expect_refusals({
      {"/model/merges/0", "a", "the merge \"a\" is not of the form \"a b\"; download it again"},
      {"/model/merges/0", "a b c", "is not of the form"},
      {"/model/merges/0", {"a"}, "is neither \"a b\" nor [\"a\", \"b\"]"},
      {"/model/merges/0", "a z", "the merge \"a z\" makes or uses 'az', which the vocabulary lacks"},
      {"/model/vocab/ab", -1, "the token 'ab' has the id -1"},
      {"/model/vocab/ab", 4000000000u, "the token 'ab' has the id 4000000000"},
      {"/model/vocab/ab", 257, "two tokens have the id 257"},
      {"/model/vocab", {{"a", 0}}, "the vocabulary has no token for the byte 0"},
      {"/model/vocab", 3, "model.vocab is 3, but must be a JSON object"},
      {"/model/vocab/ab", 2000000, "must have one from 0 to 1048836"},
      {"/added_tokens/0/id", 2000000, "the highest that so few tokens need is 1048838"},
      {"/added_tokens/0/id", 5, "the added token '<s>' has the id 5, but elsewhere that is"},
      {"/added_tokens/0/content", "ab", "the added token 'ab' has the id 260, but elsewhere it has the id 256"},
      {"/added_tokens/0/id", "x", "'added_tokens.id' is \"x\""},
      {"/added_tokens", 1, "'added_tokens' is 1, but must be an array"},
  });
}

TEST_F(TokenizerFile, AnyDamagedByteIsReadOrRefused) {
  json file = tiny();
  file["pre_tokenizer"] = {{"type", "Sequence"},
                           {"pretokenizers",
                            {{{"type", "Split"},
                              {"pattern", {{"Regex", "a+|(?i:'s)|[^\\s]{1,3}"}}},
                              {"behavior", "Isolated"},
                              {"invert", false}},
                             file["pre_tokenizer"]}}};
  const std::string whole = file.dump();
  std::uint32_t random = 1;
  const auto next = [&] { return (random = random * 1664525u + 1013904223u) >> 8; };
  for (int i = 0; i < 400; ++i) {
    std::string damaged = whole;
    for (std::uint32_t k = next() % 3 + 1; k > 0; --k)
      damaged[next() % damaged.size()] = "\"{}[],:019-a\\"[next() % 13];
    folder_.write("tokenizer.json", damaged);
    EXPECT_NO_THROW(sentence_of([&] { Tokenizer::load(folder_.path())->encode("abc <s> 's \xff"); })) << damaged;
  }
}

TEST_F(TokenizerFile, FilesThatAreNoTokenizers) {
  EXPECT_TRUE(says(sentence_of([&] { Tokenizer::load(folder_.path()); }), "tokenizer.json does not exist"));
  folder_.write("tokenizer.model", "x");
  EXPECT_TRUE(says(sentence_of([&] { Tokenizer::load(folder_.path()); }), "holds tokenizer.model but no tokenizer.json",
                   "save it with Transformers"));
  folder_.write("tokenizer.json", R"({"model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "a": 2}}})");
  EXPECT_TRUE(says(sentence_of([&] { Tokenizer::load(folder_.path()); }), "tokenizer.json has the key 'a' twice"));
  folder_.write("tokenizer.json", "{");
  EXPECT_TRUE(says(sentence_of([&] { Tokenizer::load(folder_.path()); }), "tokenizer.json is not valid JSON"));
  folder_.write("tokenizer.json", "{}");
  EXPECT_TRUE(says(sentence_of([&] { Tokenizer::load(folder_.path() / "tokenizer.json"); }), "has no 'model'"));
}

}  // namespace
}  // namespace foretoken::test
