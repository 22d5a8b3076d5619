// Tokenizers of GGUF files give the ids of Transformers and SentencePiece (tests/golden/gguf_tokenizers.py), and those
// of the tokenizer.json that they were made from.
#include "framework/model/gguf/gguf_tokenizer.h"

#include <algorithm>
#include <cmath>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <xxhash.h>

#include "framework/model/gguf/gguf_file.h"
#include "framework/model/gguf/pre_tokenizer_names.h"
#include "framework/model/model_files.h"
#include "framework/text/json_file.h"
#include "framework/text/pre_tokenizer.h"
#include "tests/framework/model/gguf_bytes.h"
#include "tests/framework/text/temporary_folder.h"

namespace foretoken::test {
namespace {

using nlohmann::json;

const std::filesystem::path kData = std::filesystem::path(FORETOKEN_SOURCE_DIR) / "tests" / "data";

std::shared_ptr<const Tokenizer> tokenizer_of(const std::string& name) {
  return ModelFiles::open(kData / "gguf" / (name + ".gguf"))->tokenizer();
}

std::vector<std::string> strings() { return read_json(kData / "tokenizers" / "strings.json"); }

std::string hash_of_ids(const Tokenizer& tokenizer, const std::vector<std::string>& texts) {
  std::string all;
  const auto add = [&all](std::size_t number) { all += bytes_of(std::uint32_t(number)); };
  for (const std::string& text : texts) {
    const auto ids = tokenizer.encode(text);
    add(ids.size());
    for (const Token id : ids) add(std::size_t(id));
  }
  char hex[17];
  std::snprintf(hex, sizeof hex, "%016llx", static_cast<unsigned long long>(XXH3_64bits(all.data(), all.size())));
  return hex;
}

class NamedPreTokenizers : public testing::TestWithParam<const char*> {};

TEST_P(NamedPreTokenizers, GiveTheIdsOfTransformers) {
  const auto golden = read_json(kData / "gguf" / (GetParam() + std::string(".json")));
  EXPECT_EQ(hash_of_ids(*tokenizer_of(GetParam()), strings()), golden["ids"].get<std::string>());
}

INSTANTIATE_TEST_SUITE_P(Names, NamedPreTokenizers, testing::Values("gpt-2", "llama-bpe", "qwen2", "smollm", "tekken"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

// Names of one rule: StarCoder's digits are apart too, as in llama.cpp.
TEST(NamedPreTokenizers, OfOneRuleGiveTheSameIds) {
  std::ifstream file(kData / "gguf" / "smollm.gguf", std::ios::binary);
  std::string bytes{std::istreambuf_iterator<char>(file), {}};
  const std::string key = "tokenizer.ggml.pre";
  const std::size_t at = bytes.find(key + text_value("smollm"));
  ASSERT_NE(at, bytes.npos);
  bytes.replace(at, key.size() + text_value("smollm").size(), key + text_value("starcoder"));
  const TemporaryFolder folder;
  const auto tokenizer = ModelFiles::open(folder.write("m.gguf", bytes))->tokenizer();
  EXPECT_EQ(hash_of_ids(*tokenizer, strings()), read_json(kData / "gguf" / "smollm.json")["ids"].get<std::string>());
}

// Those of Phi-4, Phi-4-mini and DeepSeek-V3: as llama.cpp names them, and as the tokenizers library splits by their
// patterns.
TEST(NamedPreTokenizers, OfPhiAndDeepSeek) {
  const auto words = [](const char* name, const char* text = "theCAT's 12345 I'LL  a/b //\nx") {
    const NamedPreTokenizer parts = named_pre_tokenizer(name);
    EXPECT_TRUE(parts.normalizer.is_null() && !parts.ignore_merges && !parts.begins) << name;
    return PreTokenizer::load(parts.pre_tokenizer, name).split(text, TextPlace::beginning);
  };
  using Words = std::vector<std::string>;
  const auto& known = pre_tokenizer_names();
  for (const char* name : {"dbrx", "gpt-4o", "deepseek-v3"})
    ASSERT_NE(std::ranges::find(known, name), known.end()) << name;
  EXPECT_EQ(words("dbrx"), (Words{"theCAT", "'s", " ", "123", "45", " I", "'LL", " ", " a", "/b", " //\n", "x"}));
  EXPECT_EQ(words("gpt-4o"), (Words{"the", "CAT's", " ", "123", "45", " I'LL", " ", " a", "/b", " //\n", "x"}));
  EXPECT_EQ(words("deepseek-v3"), words("dbrx"));
  EXPECT_EQ(words("deepseek-v3", "a\u4e2d\u6587\u3042 2x"), (Words{"a", "\u4e2d\u6587\u3042", " ", "2", "x"}));
}

// Also what decodes: a GGUF file and a directory of one model have one vocabulary.
TEST(GgufTokenizer, EqualsTheTokenizerJsonThatItWasMadeFrom) {
  for (const auto& [gguf, directory] : {std::pair("gpt-2", "gpt2"), std::pair("llama-bpe", "llama3")}) {
    const auto a = tokenizer_of(gguf), b = Tokenizer::load(kData / "tokenizers" / directory);
    EXPECT_EQ(a->fingerprint(), b->fingerprint());
    EXPECT_EQ(a->vocab(), b->vocab());
    for (Token t = 0; t < a->vocab(); ++t) EXPECT_EQ(a->is_special(t), b->is_special(t)) << t;
    for (const std::string& text : strings()) {
      EXPECT_EQ(a->encode(text), b->encode(text)) << text;
      EXPECT_EQ(a->decode(a->encode(text)), b->decode(b->encode(text))) << text;
    }
  }
}

TEST(GgufTokenizer, RowsOfTheEmbeddingBeyondTheTokensAreNone) {
  const auto tokenizer = tokenizer_of("qwen2");
  EXPECT_LT(tokenizer->vocab(), ModelFiles::open(kData / "gguf" / "qwen2.gguf")->config().vocab);
  EXPECT_EQ(tokenizer->encode("[PAD655]").size(), tokenizer->encode("[PAD").size() + 4);
}

// SentencePiece does not find the tokens of control in a text, so strings with them are left out.
TEST(GgufTokenizer, GivesTheIdsOfSentencePiece) {
  const auto tokenizer = tokenizer_of("sentencepiece");
  std::vector<std::string> texts;
  for (const std::string& text : strings())
    if (text.find('\0') == text.npos && text.find("<unk>") == text.npos && text.find("<s>") == text.npos &&
        text.find("</s>") == text.npos)
      texts.push_back(text);
  EXPECT_GT(texts.size(), 150u);
  EXPECT_EQ(hash_of_ids(*tokenizer, texts), read_json(kData / "gguf" / "sentencepiece.json")["ids"].get<std::string>());
  for (const std::string& text : texts) EXPECT_EQ(tokenizer->decode(tokenizer->encode(text)), text);
  EXPECT_TRUE(tokenizer->is_special(1));
  EXPECT_EQ(tokenizer->encode("</s>", false).size(), 1u);
  EXPECT_EQ(tokenizer->encode("a</s>", false).back(), 2);
}

// Added tokens are found in the text; those of control are omitted from decoded text, a user's are not.
TEST(GgufTokenizer, FindsAddedTokens) {
  const auto tokenizer = tokenizer_of("qwen2");
  for (const auto& [text, special] : {std::pair("<|im_end|>", true), std::pair("<tool>", false)}) {
    const auto ids = tokenizer->encode(text);
    ASSERT_EQ(ids.size(), 1u) << text;
    EXPECT_EQ(tokenizer->is_special(ids[0]), special) << text;
    EXPECT_EQ(tokenizer->decode(ids), special ? "" : text);
  }
}

TEST(GgufTokenizer, ItsChatTemplateIsRendered) {
  EXPECT_EQ(ModelFiles::open(kData / "gguf" / "qwen2.gguf")->chat().text("q"), "<|im_start|>user\nq<|im_end|>\n");
  EXPECT_TRUE(says(sentence_of([] { ModelFiles::open(kData / "gguf" / "gpt-2.gguf")->chat(); }),
                   "gpt-2.gguf has no chat template", "tokenizer.chat_template"));
}

// A vocabulary of SentencePiece's: <unk>, <s>, </s>, every byte, then `words`.
GgufBytes pieces(const std::vector<std::pair<std::string, float>>& words) {
  std::vector<std::string> tokens{"<unk>", "<s>", "</s>"}, scores(259, bytes_of(0.f)),
      types{bytes_of(2), bytes_of(3), bytes_of(3)};
  for (int b = 0; b < 256; ++b) {
    char name[8];
    std::snprintf(name, sizeof name, "<0x%02X>", b);
    tokens.emplace_back(name), types.push_back(bytes_of(6));
  }
  for (const auto& [word, score] : words)
    tokens.push_back(word), scores.push_back(bytes_of(score)), types.push_back(bytes_of(1));
  GgufBytes g;
  g.set("tokenizer.ggml.model", text_value("llama")).set("tokenizer.ggml.tokens", texts_value(tokens));
  g.set("tokenizer.ggml.scores", array_value(6, scores)).set("tokenizer.ggml.token_type", array_value(5, types));
  return g.set("tokenizer.ggml.bos_token_id", u32_value(1));
}

class GgufTokenizers : public testing::Test {
 protected:
  std::shared_ptr<const Tokenizer> read(const GgufBytes& g) {
    return ModelFiles::open(folder_.write("m.gguf", g.bytes()))->tokenizer();
  }
  std::string refusal(const GgufBytes& g) {
    return sentence_of([&] { read(g); });
  }
  // The texts of the tokens.
  std::vector<std::string> words(const GgufBytes& g, const std::string& text) {
    const auto tokenizer = read(g);
    std::vector<std::string> all;
    for (const Token t : tokenizer->encode(text, false)) all.push_back(tokenizer->decode_inside({&t, 1}, true));
    return all;
  }
  TemporaryFolder folder_;
};

// The merge with the highest score is next, and of equal ones the leftmost, whichever parts make it.
TEST_F(GgufTokenizers, MergeByScores) {
  const GgufBytes g = pieces({{"a", 0}, {"b", 0}, {"ab", -1}, {"aa", -1}, {"aaa", -2}})
                          .set("tokenizer.ggml.add_space_prefix", bool_value(false));
  EXPECT_EQ(words(g, "aab"), (std::vector<std::string>{"aa", "b"}));  // aa and ab have equal scores
  EXPECT_EQ(words(g, "aaaaa"), (std::vector<std::string>{"aa", "aaa"}));
  EXPECT_EQ(words(g, "\u00e4"), (std::vector<std::string>{"\xc3", "\xa4"}));
  const GgufBytes h =
      pieces({{"a", 0}, {"b", 0}, {"aa", -2}, {"ab", -1}}).set("tokenizer.ggml.add_space_prefix", bool_value(false));
  EXPECT_EQ(words(h, "aab"), (std::vector<std::string>{"a", "ab"}));
}

// A word of the vocabulary that no merge gives.
TEST_F(GgufTokenizers, NamesSayWhetherWholeWordsAreTokens) {
  const auto bytes = GgufFile::open(kData / "gguf" / "gpt-2.gguf");
  const auto& known = bytes->metadata().strings("tokenizer.ggml.tokens");
  std::vector<std::string> tokens(known.begin(), known.end());
  tokens.emplace_back("xyzzy");
  GgufBytes g;
  g.set("tokenizer.ggml.model", text_value("gpt2")).set("tokenizer.ggml.tokens", texts_value(tokens));
  g.set("tokenizer.ggml.merges", texts_value({})).set("tokenizer.ggml.add_bos_token", bool_value(false));
  for (const auto& [name, whole] :
       {std::pair("gpt-2", false), std::pair("qwen2", false), std::pair("smollm", false), std::pair("llama-bpe", true),
        std::pair("tekken", true), std::pair("dbrx", false), std::pair("gpt-4o", false)})
    EXPECT_EQ(read(g.set("tokenizer.ggml.pre", text_value(name)))->encode("xyzzy").size(), whole ? 1u : 5u) << name;
}

TEST_F(GgufTokenizers, WhatStandsAroundTexts) {
  const std::vector<std::pair<std::string, float>> letters{{"a", 0}, {"\u2581", 0}};
  EXPECT_EQ(read(pieces(letters))->encode("a"), (std::vector<Token>{1, 260, 259}));
  EXPECT_EQ(read(pieces(letters).set("tokenizer.ggml.add_bos_token", bool_value(false)))->encode("a"),
            (std::vector<Token>{260, 259}));
  EXPECT_EQ(read(pieces(letters)
                     .set("tokenizer.ggml.add_eos_token", bool_value(true))
                     .set("tokenizer.ggml.add_space_prefix", bool_value(false))
                     .set("tokenizer.ggml.eos_token_id", u32_value(2)))
                ->encode("a"),
            (std::vector<Token>{1, 259, 2}));
  EXPECT_TRUE(says(refusal(pieces(letters).set("tokenizer.ggml.bos_token_id", "")), "tokenizer.ggml.bos_token_id"));
  EXPECT_TRUE(says(refusal(pieces(letters).set("tokenizer.ggml.bos_token_id", u32_value(300))), "is 300"));
}

TEST_F(GgufTokenizers, Refusals) {
  const GgufBytes good = pieces({{"a", 0}});
  ASSERT_EQ(refusal(good), "");
  const auto with = [&](const char* key, const std::string& value) {
    GgufBytes g = good;
    return refusal(g.set(std::string("tokenizer.ggml.") + key, value));
  };
  EXPECT_TRUE(
      says(with("model", text_value("bert")), "'tokenizer.ggml.model' is \"bert\", but ", "\"gpt2\"", "\"llama\""));
  EXPECT_TRUE(says(with("scores", array_value(6, {bytes_of(1.f)})), "must have one score for each of the 260 tokens",
                   "convert the model again"));
  EXPECT_TRUE(says(with("scores", ""), "has no metadata 'tokenizer.ggml.scores'"));
  EXPECT_TRUE(says(with("token_type", array_value(5, {bytes_of(1)})), "must have one type for each of the 260",
                   "convert the model again"));
  EXPECT_TRUE(says(with("remove_extra_whitespaces", bool_value(true)),
                   "'tokenizer.ggml.remove_extra_whitespaces' is true, but ", "only false is supported",
                   "; choose a model"));
  EXPECT_TRUE(says(with("precompiled_charsmap", array_value(0, {})), "'tokenizer.ggml.precompiled_charsmap' is ",
                   ", but changes of characters before tokens are not supported; choose a model without them"));
  EXPECT_TRUE(says(refusal(pieces({{"a", 0}, {"a", -1}})), "token 260, 'a', occurs twice", "convert the model again"));
  EXPECT_TRUE(
      says(refusal(pieces({{"", 0}})), "token 259, '', must be 1 to 1024 bytes of UTF-8", "convert the model again"));
  EXPECT_TRUE(says(refusal(pieces({{"\xff", 0}})), "token 259", "UTF-8"));
  EXPECT_TRUE(says(refusal(pieces({{std::string(1025, 'x'), 0}})), "must be 1 to 1024 bytes"));
  EXPECT_TRUE(says(refusal(pieces({{"a", NAN}})), "the token 'a' has the score nan"));
  GgufBytes bytes = good;
  bytes.set("tokenizer.ggml.model", text_value("gpt2")).set("tokenizer.ggml.merges", texts_value({}));
  EXPECT_TRUE(says(refusal(bytes), "has no metadata 'tokenizer.ggml.pre'"));
  EXPECT_TRUE(says(refusal(bytes.set("tokenizer.ggml.pre", text_value("qwen"))), "'tokenizer.ggml.pre' is \"qwen\"",
                   "gpt-2, llama-bpe", "did you mean 'qwen2'?"));
  EXPECT_TRUE(says(refusal(bytes.set("tokenizer.ggml.pre", text_value("gpt-2"))), "the tokenizer of", "m.gguf",
                   "no token for the byte"));
}

}  // namespace
}  // namespace foretoken::test
