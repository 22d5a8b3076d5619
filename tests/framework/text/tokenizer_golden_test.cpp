// Token ids of two hundred strings, adversarial ones among them, as Transformers gives them
// (tests/golden/make_golden.py).
#include <iomanip>
#include <iterator>
#include <sstream>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <xxhash.h>

#include "framework/text/json_file.h"
#include "framework/text/tokenizer.h"
#include "framework/text/utf8.h"
#include "tests/framework/text/temporary_folder.h"

namespace foretoken::test {
namespace {

using nlohmann::json;

const std::filesystem::path kRoot = FORETOKEN_SOURCE_DIR;
const std::filesystem::path kData = kRoot / "tests" / "data" / "tokenizers";

std::string hex(std::uint64_t value) {
  std::ostringstream s;
  s << std::hex << std::setw(16) << std::setfill('0') << value;
  return s.str();
}

std::string bytes_of_hex(const std::string& digits) {
  std::string bytes;
  for (std::size_t i = 0; i < digits.size(); i += 2) bytes.push_back(char(std::stoi(digits.substr(i, 2), nullptr, 16)));
  return bytes;
}

void expect_golden(const Tokenizer& tokenizer, const json& golden) {
  const json strings = read_json(kData / "strings.json");
  ASSERT_EQ(strings.size(), 200u);
  ASSERT_EQ(golden["ids"].size(), 200u);
  ASSERT_EQ(hex(tokenizer.fingerprint()), golden["fingerprint"].get<std::string>())
      << "the golden values belong to another tokenizer: run tests/golden/make_golden.py again";
  EXPECT_EQ(tokenizer.vocab(), golden["vocab"]);
  const int prefix = golden["prefix"];
  for (std::size_t i = 0; i < strings.size(); ++i) {
    const std::string text = strings[i];
    auto ids = golden["ids"][i].get<std::vector<Token>>();
    EXPECT_EQ(tokenizer.encode(text), ids) << strings[i].dump();
    const json& decoded = golden["decoded"];
    const std::string key = std::to_string(i);
    EXPECT_EQ(replace_broken_utf8(tokenizer.decode(ids)),
              decoded.contains(key) ? decoded[key].get<std::string>() : text)
        << strings[i].dump();
    ids.erase(ids.begin(), ids.begin() + prefix);
    EXPECT_EQ(tokenizer.encode(text, /*special=*/false), ids) << strings[i].dump();
  }
  for (const json& broken : golden["broken"])
    EXPECT_EQ(tokenizer.encode(bytes_of_hex(broken["hex"])), broken["ids"].get<std::vector<Token>>()) << broken["hex"];
  std::vector<int> special;
  for (Token t = 0; t < tokenizer.vocab(); ++t)
    if (tokenizer.is_special(t)) special.push_back(t);
  EXPECT_EQ(special, golden["special"].get<std::vector<int>>());
}

class TinyTokenizer : public testing::TestWithParam<const char*> {};

TEST_P(TinyTokenizer, GivesTheIdsOfTransformers) {
  const std::string name = GetParam();
  expect_golden(*Tokenizer::load(kData / name), read_json(kData / (name + ".golden.json")));
}

INSTANTIATE_TEST_SUITE_P(Rules, TinyTokenizer,
                         testing::Values("gpt2", "llama3", "qwen2", "llama2", "mistral", "metaspace", "gemma"),
                         [](const auto& info) { return info.param; });

// Third-party strings, for which the golden file has only a hash of the ids.
TEST_P(TinyTokenizer, GivesTheIdsOfTransformersOnTheVectorsOfLlamaCpp) {
  const auto file = shared_data() / "vectors" / "tokenizer" / "ggml-vocab-gpt-2.gguf.inp";
  if (!std::filesystem::exists(file))
    GTEST_SKIP() << "no shared data (FORETOKEN_DATA): llama.cpp's strings are not read";
  const std::string name = GetParam(), inputs = read_file(file), separator = "\n__ggml_vocab_test__\n";
  const auto tokenizer = Tokenizer::load(kData / name);
  std::string all;
  const auto add = [&all](std::size_t number) {
    for (int shift = 0; shift < 32; shift += 8) all.push_back(char(number >> shift & 0xff));
  };
  for (std::size_t at = 0; at < inputs.size();) {
    const std::size_t end = std::min(inputs.find(separator, at), inputs.size());
    const auto ids = tokenizer->encode(inputs.substr(at, end - at));
    add(ids.size());
    for (const Token id : ids) add(std::size_t(id));
    at = end + separator.size();
  }
  EXPECT_EQ(hex(XXH3_64bits(all.data(), all.size())),
            read_json(kData / (name + ".golden.json"))["vectors"].get<std::string>());
}

class DemoTokenizer : public testing::TestWithParam<const char*> {};

// Where golden values exist, they must belong to the model that exists, and vice versa.
TEST_P(DemoTokenizer, GivesTheIdsOfTransformers) {
  const std::string name = GetParam();
  const auto directory = kRoot / "experiments" / "models" / name;
  const auto golden = kData / (name + ".golden.json");
  if (!std::filesystem::exists(directory / "tokenizer.json")) GTEST_SKIP() << directory << " is not there";
  ASSERT_TRUE(std::filesystem::exists(golden))
      << "run tests/golden/make_golden.py " << name << "=experiments/models/" << name;
  expect_golden(*Tokenizer::load(directory), read_json(golden));
}

INSTANTIATE_TEST_SUITE_P(Models, DemoTokenizer, testing::Values("target", "draft", "draft-large"),
                         [](const auto& info) {
                           return std::string(info.param) == "draft-large" ? "draft_large" : info.param;
                         });

class Gpt2 : public testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(shared_data() / "tokenizers" / "gpt2"))
      GTEST_SKIP() << "no shared data (FORETOKEN_DATA): GPT-2's own vocabulary is not read";
    tokenizer_ = Tokenizer::load(shared_data() / "tokenizers" / "gpt2");
    vectors_ = shared_data() / "vectors" / "tokenizer";
  }
  std::shared_ptr<const Tokenizer> tokenizer_;
  std::filesystem::path vectors_;
};

TEST_F(Gpt2, MeetsTheVectorsOfLlamaCpp) {
  const std::string inputs = read_file(vectors_ / "ggml-vocab-gpt-2.gguf.inp");
  std::istringstream outputs(read_file(vectors_ / "ggml-vocab-gpt-2.gguf.out"));
  const std::string separator = "\n__ggml_vocab_test__\n";
  int count = 0;
  for (std::size_t at = 0; at < inputs.size(); ++count) {
    const std::size_t end = std::min(inputs.find(separator, at), inputs.size());
    const std::string text = inputs.substr(at, end - at);
    std::string line;
    ASSERT_TRUE(std::getline(outputs, line));
    std::istringstream numbers(line);
    std::vector<Token> ids{std::istream_iterator<Token>(numbers), {}};
    EXPECT_EQ(tokenizer_->encode(text), ids) << json(text).dump();
    EXPECT_EQ(tokenizer_->decode(ids), text);
    at = end + separator.size();
  }
  EXPECT_EQ(count, 46);
}

TEST_F(Gpt2, MeetsTheVectorOfSwiftTransformers) {
  const json vector = read_json(vectors_ / "gpt2_encoded_tokens.json");
  const auto ids = vector["token_ids"].get<std::vector<Token>>();
  EXPECT_EQ(tokenizer_->encode(vector["text"].get<std::string>()), ids);
}

}  // namespace
}  // namespace foretoken::test
