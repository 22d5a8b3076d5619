// A tiny byte-level tokenizer.json, and the messages for changed ones.
#pragma once
#include <tuple>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "framework/text/byte_alphabet.h"
#include "framework/text/tokenizer.h"
#include "framework/text/utf8.h"
#include "tests/framework/text/temporary_folder.h"

namespace foretoken::test {

using nlohmann::json;

// All bytes (ids 0..255), then what the merges make of a, b, c.
inline json tiny() {
  json vocab, merges = json::array({"a b", "ab c", "a a"});
  for (int b = 0; b < 256; ++b) {
    std::string letter;
    append_utf8(letter, letter_of_byte(static_cast<unsigned char>(b)));
    vocab[letter] = b;
  }
  for (const char* word : {"ab", "abc", "aa", "bc"}) vocab[word] = vocab.size();
  return {
      {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", merges}}},
      {"normalizer", nullptr},
      {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", true}}},
      {"decoder", {{"type", "ByteLevel"}}},
      {"added_tokens",
       {{{"id", 260}, {"content", "<s>"}, {"special", true}}, {{"id", 261}, {"content", "<x>"}, {"special", false}}}}};
}

class TokenizerFile : public testing::Test {
 protected:
  std::shared_ptr<const Tokenizer> load(const json& file) {
    folder_.write("tokenizer.json", file.dump());
    return Tokenizer::load(folder_.path());
  }
  // The message after one change: of the value at a JSON pointer.
  std::string refusal(const std::string& pointer, const json& value) {
    json file = tiny();
    file[json::json_pointer(pointer)] = value;
    return sentence_of([&] { load(file); });
  }
  // Each: the pointer, the value put there, a part of the message.
  void expect_refusals(const std::vector<std::tuple<std::string, json, std::string>>& cases) {
    for (const auto& [pointer, value, words] : cases)
      EXPECT_TRUE(says(refusal(pointer, value), "tokenizer.json", words)) << pointer;
  }
  TemporaryFolder folder_;
};

using Ids = std::vector<Token>;

}  // namespace foretoken::test
