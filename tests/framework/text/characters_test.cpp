// BPE over characters, as in converted SentencePiece vocabularies: merges, byte tokens, unknown characters, the space
// before the first word.
#include "tests/framework/text/tokenizer_file.h"

namespace foretoken::test {
namespace {

// a, b and the mark of a space; other characters are <unk>.
json characters() {
  json file = tiny();
  file["model"] = {
      {"type", "BPE"},
      {"unk_token", "<unk>"},
      {"fuse_unk", true},
      {"byte_fallback", true},
      {"vocab",
       {{"<unk>", 0}, {"<s>", 1}, {"\u2581", 2}, {"a", 3}, {"b", 4}, {"ab", 5}, {"\u2581a", 6}, {"<0x21>", 7}}},
      {"merges", {"a b", "\u2581 a"}}};
  file["normalizer"] = {{"type", "Sequence"},
                        {"normalizers",
                         {{{"type", "Prepend"}, {"prepend", "\u2581"}},
                          {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", "\u2581"}}}}};
  file["pre_tokenizer"] = nullptr;
  file["decoder"] = {{"type", "Sequence"},
                     {"decoders",
                      {{{"type", "Replace"}, {"pattern", {{"String", "\u2581"}}}, {"content", " "}},
                       {{"type", "ByteFallback"}},
                       {{"type", "Fuse"}},
                       {{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}}}}};
  file["added_tokens"] = {{{"id", 1}, {"content", "<s>"}, {"special", true}}};
  return file;
}

class CharacterTokenizer : public TokenizerFile {};

TEST_F(CharacterTokenizer, MergesCharactersAndFallsBackOnBytes) {
  const auto t = load(characters());
  EXPECT_EQ(t->encode("ab a"), (Ids{2, 5, 6}));  // the merge of lower rank first
  EXPECT_EQ(t->encode("a!<s>a"), (Ids{6, 7, 1, 6}));
  EXPECT_EQ(t->encode("xyz"), (Ids{2, 0}));        // adjacent unknown characters are one token
  EXPECT_EQ(t->encode("x!b"), (Ids{2, 7, 0, 4}));  // and come after byte tokens, as in the tokenizers library
  EXPECT_EQ(t->encode(""), Ids{});
  EXPECT_EQ(t->decode(Ids{1, 6, 6, 7}), "a a!");
  EXPECT_EQ(t->decode(Ids{1, 6, 6, 7}, true), "<s> a a!");
  EXPECT_EQ(t->decode_inside(Ids{6}), " a");
  TextStream stream(t);
  EXPECT_EQ(stream.push(Ids{6, 3}) + stream.push(Ids{6}) + stream.finish(), " aa a");
}

TEST_F(CharacterTokenizer, WhatIsWrongIsNamed) {
  const auto refused = [&](const std::string& pointer, const json& value) {
    json file = characters();
    file[json::json_pointer(pointer)] = value;
    return sentence_of([&] { load(file); });
  };
  EXPECT_TRUE(
      says(refused("/model/unk_token", nullptr), "tokenizer.json: 'model.unk_token' is absent", "for every byte"));
  EXPECT_TRUE(says(refused("/model/unk_token", "<x>"), "the vocabulary does not have it"));
  EXPECT_TRUE(says(refused("/decoder/decoders/3/stop", 1), "only a character at the beginning can be stripped"));
  EXPECT_TRUE(says(refused("/decoder/decoders/2/type", "ByteLevel"), "must be the only decoder"));
  EXPECT_TRUE(says(refused("/decoder/decoders/0/pattern", json::object()), "must be a Regex or a String"));
}

}  // namespace
}  // namespace foretoken::test
