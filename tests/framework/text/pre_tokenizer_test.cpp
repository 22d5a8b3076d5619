// How text becomes words, by the definitions of the tokenizers library, and what decoders make of tokens.
#include "framework/text/pre_tokenizer.h"

#include <gtest/gtest.h>

#include "framework/text/decoder.h"
#include "framework/text/json_file.h"
#include "framework/text/normalizer.h"
#include "framework/text/post_processor.h"
#include "tests/support/sentence.h"

namespace foretoken::test {
namespace {

using nlohmann::json;
using Words = std::vector<std::string>;

Words split(const json& spec, std::string_view text, bool begins = true) {
  return PreTokenizer::load(spec, "F").split(text, begins ? TextPlace::beginning : TextPlace::behind_added);
}

// The example of the library's documentation of SplitDelimiterBehavior.
TEST(PreTokenizer, DelimitersAreTreatedInFiveWays) {
  const auto by = [](const char* behavior, bool invert = false) {
    return split({{"type", "Split"}, {"pattern", {{"String", "-"}}}, {"behavior", behavior}, {"invert", invert}},
                 "the-final--countdown");
  };
  EXPECT_EQ(by("Removed"), (Words{"the", "final", "countdown"}));
  EXPECT_EQ(by("Isolated"), (Words{"the", "-", "final", "-", "-", "countdown"}));
  EXPECT_EQ(by("MergedWithPrevious"), (Words{"the-", "final-", "-", "countdown"}));
  EXPECT_EQ(by("MergedWithNext"), (Words{"the", "-final", "-", "-countdown"}));
  EXPECT_EQ(by("Contiguous"), (Words{"the", "-", "final", "--", "countdown"}));
  EXPECT_EQ(by("Removed", true), (Words{"-", "-", "-"}));
  EXPECT_EQ(by("MergedWithPrevious", true), (Words{"the", "-final", "-", "-countdown"}));
  EXPECT_EQ(by("MergedWithNext", true), (Words{"the-", "final-", "-", "countdown"}));
}

TEST(PreTokenizer, DigitsStandApart) {
  EXPECT_EQ(split({{"type", "Digits"}}, "a12b3"), (Words{"a", "12", "b", "3"}));
  EXPECT_EQ(split({{"type", "Digits"}, {"individual_digits", true}}, "a12b"), (Words{"a", "1", "2", "b"}));
}

TEST(PreTokenizer, ByteLevelIsGpt2s) {
  const json plain = {{"type", "ByteLevel"}, {"add_prefix_space", false}};
  EXPECT_EQ(split(plain, "I'll  see 22 c!"), (Words{"I", "'ll", " ", " see", " 22", " c", "!"}));
  EXPECT_EQ(split({{"type", "ByteLevel"}}, "a b"), (Words{" a", " b"})) << "a space before the text, if not said else";
  EXPECT_EQ(split({{"type", "ByteLevel"}}, " a"), (Words{" a"})) << "but one is enough";
  EXPECT_EQ(split({{"type", "ByteLevel"}, {"use_regex", false}, {"add_prefix_space", false}}, "a b"), (Words{"a b"}));
  EXPECT_EQ(split(plain, ""), Words{});
  EXPECT_EQ(split(nullptr, "a b"), (Words{"a b"}));
}

TEST(PreTokenizer, MetaspaceMarksSpaces) {
  const auto by = [](json spec, std::string_view text, bool begins) {
    spec["type"] = "Metaspace", spec["replacement"] = "_";
    return split(spec, text, begins);
  };
  EXPECT_EQ(by({}, "a b  c", true), (Words{"_a", "_b", "_", "_c"}));
  EXPECT_EQ(by({}, "a", false), (Words{"_a"})) << "always, if not said else";
  EXPECT_EQ(by({}, " a", true), (Words{"_a"})) << "it is marked already";
  EXPECT_EQ(by({{"prepend_scheme", "first"}}, "a b", true), (Words{"_a", "_b"}));
  EXPECT_EQ(by({{"prepend_scheme", "first"}}, "a b", false), (Words{"a", "_b"})) << "not behind another token";
  EXPECT_EQ(by({{"prepend_scheme", "never"}}, "a b", true), (Words{"a", "_b"}));
  EXPECT_EQ(by({{"add_prefix_space", false}}, "a b", true), (Words{"a", "_b"}));
  EXPECT_EQ(by({{"add_prefix_space", false}, {"prepend_scheme", "always"}}, "a", true), (Words{"_a"}));
  EXPECT_EQ(by({{"split", false}}, "a b", true), (Words{"_a_b"}));
  EXPECT_EQ(split({{"type", "Metaspace"}}, "a b"), (Words{"\u2581"
                                                          "a",
                                                          "\u2581"
                                                          "b"}));
}

TEST(PreTokenizer, StepsFollowEachOther) {
  const json steps = {{{"type", "Digits"}},
                      {{"type", "Split"}, {"pattern", {{"Regex", "b+"}}}, {"behavior", "Removed"}},
                      {{"type", "ByteLevel"}, {"use_regex", false}}};
  EXPECT_EQ(split({{"type", "Sequence"}, {"pretokenizers", steps}}, "abba12c"), (Words{" a", " a", " 12", " c"}));
}

TEST(PreTokenizer, WhatIsNotSupportedIsRefused) {
  const auto refusal = [](const json& spec) { return sentence_of([&] { PreTokenizer::load(spec, "F"); }); };
  EXPECT_EQ(refusal({{"type", "Metaspace"}, {"replacement", ""}}),
            "F: 'pre_tokenizer.replacement' is \"\", but must be a character");
  const json first = {{"type", "Metaspace"}, {"prepend_scheme", "first"}};
  EXPECT_EQ(refusal({{"type", "Sequence"}, {"pretokenizers", {first}}}), "");
  EXPECT_EQ(refusal({{"type", "Sequence"}, {"pretokenizers", {{{"type", "Digits"}}, first}}}),
            "F: 'pre_tokenizer.prepend_scheme' is \"first\", but \"first\" is supported only where Metaspace comes "
            "first");
}

TEST(Normalizer, FormsAreUnicodes) {
  // e with an acute accent as one character and as two; the ligature fi; the Angstrom sign.
  const std::string text = "\u00e9 e\u0301 \ufb01 \u212b";
  const auto form = [&](const char* type) { return Normalizer::load({{"type", type}}, "F").apply(text); };
  EXPECT_EQ(form("NFC"), "\u00e9 \u00e9 \ufb01 \u00c5");
  EXPECT_EQ(form("NFD"), "e\u0301 e\u0301 \ufb01 A\u030a");
  EXPECT_EQ(form("NFKC"), "\u00e9 \u00e9 fi \u00c5");
  EXPECT_EQ(form("NFKD"), "e\u0301 e\u0301 fi A\u030a");
}

TEST(Normalizer, StepsFollowEachOther) {
  const json prepend = {{"type", "Prepend"}, {"prepend", "ab"}};
  const json replace = {{"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", "xy"}};
  const auto apply = [](const json& spec, std::string_view text) { return Normalizer::load(spec, "F").apply(text); };
  EXPECT_EQ(apply({{"type", "Sequence"}, {"normalizers", {prepend, replace}}}, "ca"), "xybcxy");
  EXPECT_EQ(apply({{"type", "Sequence"}, {"normalizers", {replace, prepend}}}, "ca"), "abcxy");
  EXPECT_EQ(apply(prepend, ""), "") << "nothing is put before nothing";
  EXPECT_EQ(apply(nullptr, "\u212b"), "\u212b");
  EXPECT_EQ(apply({{"type", "Replace"}, {"pattern", {{"Regex", "a+"}}}, {"content", "-"}}, "baab"), "b-b");
  EXPECT_EQ(apply({{"type", "Replace"}, {"pattern", {{"String", ""}}}, {"content", "-"}}, "ab"), "ab");
}

TEST(Decoder, NamesOfBytes) {
  EXPECT_EQ(name_of_byte(0), "<0x00>");
  EXPECT_EQ(name_of_byte(0xaf), "<0xAF>");
  for (int b = 0; b < 256; ++b) EXPECT_EQ(byte_of_name(name_of_byte(b)), b);
  EXPECT_EQ(byte_of_name("<0xa9>"), 0xa9);
  EXPECT_EQ(byte_of_name("<0xfA>"), 0xfa);
  for (const char* none : {"", "<0x1>", "<0x123>", "<0xG0>", "<0x0g>", "<0x/0>", "<0x:0>", "<0x@0>", "<0x`0>", "x0x00>",
                           "<0x00x", "<0X00>"})
    EXPECT_EQ(byte_of_name(none), -1) << none;
}

std::string decoded(const json& spec, const Words& words) {
  const Decoder d = Decoder::load(spec, "F");
  std::string text = d.first(words[0]);
  for (std::size_t i = 1; i < words.size(); ++i) text += d.inside(words[i]);
  return d.begin(text);
}

json sequence(std::vector<json> decoders) { return {{"type", "Sequence"}, {"decoders", decoders}}; }
const json kMarks = {{"type", "Replace"}, {"pattern", {{"String", "_"}}}, {"content", " "}};
const json kBytes = {{"type", "ByteFallback"}}, kFuse = {{"type", "Fuse"}};

TEST(Decoder, MakesTextOfTokens) {
  const auto strip = [](int most) { return json{{"type", "Strip"}, {"content", " "}, {"start", most}, {"stop", 0}}; };
  EXPECT_EQ(decoded(sequence({kMarks, kBytes, kFuse}), {"__a", "_b", "<0xC3>", "<0xA9>"}), "  a b\u00e9");
  EXPECT_EQ(decoded(sequence({kMarks, kFuse, strip(1)}), {"__a", "_b"}), " a b");
  EXPECT_EQ(decoded(sequence({kMarks, kFuse, strip(5)}), {"__a", "_b"}), "a b");
  EXPECT_EQ(decoded(sequence({kMarks}), {"<0x41>"}), "<0x41>") << "no byte without ByteFallback";
  const json metaspace = {{"type", "Metaspace"}, {"replacement", "_"}};
  EXPECT_EQ(decoded(metaspace, {"_a", "_b"}), "a b");
  json never = metaspace;
  never["prepend_scheme"] = "never";
  EXPECT_EQ(decoded(never, {"_a", "_b"}), " a b");
  json old = metaspace;
  old["add_prefix_space"] = false;
  EXPECT_EQ(decoded(old, {"_a", "_b"}), " a b");
  EXPECT_EQ(decoded({{"type", "Metaspace"}}, {"\u2581"
                                              "a",
                                              "\u2581"
                                              "b"}),
            "a b");
  EXPECT_EQ(decoded({{"type", "ByteLevel"}}, {"a\u0120", "\u0120"}), "a  ");
  EXPECT_EQ(decoded({{"type", "ByteLevel"}}, {"a b"}), "a b") << "no letters of bytes";
  EXPECT_TRUE(Decoder::load({{"type", "ByteLevel"}}, "F").byte_level());
  EXPECT_FALSE(Decoder::load(metaspace, "F").byte_level());
}

TEST(Decoder, OtherOrdersAreRefused) {
  const std::string supported =
      "the supported decoders are ByteLevel, Metaspace, and a Sequence of Replace, "
      "ByteFallback, Fuse and Strip in this order";
  const auto refusal = [](std::vector<json> decoders) {
    return sentence_of([&] { Decoder::load(sequence(std::move(decoders)), "F"); });
  };
  const auto refused = [](const std::string& type, const std::string& why) {
    return "F: 'decoder.type' is \"" + type + "\", but " + why;
  };
  const json level = {{"type", "ByteLevel"}}, metaspace = {{"type", "Metaspace"}};
  const json strip = {{"type", "Strip"}, {"content", " "}, {"start", 1}};
  for (const json& before : {kMarks, kBytes, kFuse})
    for (const json& alone : {level, metaspace})
      EXPECT_EQ(refusal({before, alone}), refused(alone["type"], "must be the only decoder; " + supported));
  EXPECT_EQ(refusal({kFuse, strip}), "");
  for (const std::vector<json>& before : {std::vector<json>{level}, {metaspace}, {kFuse, strip}}) {
    std::vector<json> more = before;
    more.push_back(kFuse);
    EXPECT_EQ(refusal(more), refused("Fuse", "nothing may follow there; " + supported));
  }
  EXPECT_EQ(refusal({kBytes, kMarks}), refused("Replace", supported));
  EXPECT_EQ(refusal({kFuse, kMarks}), refused("Replace", supported));
  EXPECT_EQ(refusal({kFuse, kBytes}), refused("ByteFallback", supported));
  EXPECT_EQ(refusal({strip}), refused("Strip", supported));
  EXPECT_EQ(refusal({{{"type", "Metaspace"}, {"replacement", ""}}}),
            "F: 'decoder.replacement' is \"\", but must be a character");
}

TEST(PostProcessor, PutsTokensAroundTheText) {
  const auto token = [](const char* id) { return json{{"SpecialToken", {{"id", id}}}}; };
  const json text = {{"Sequence", {{"id", "A"}}}};
  const json ids = json::parse(
      R"({"a": {"ids": [1, 2]}, "b": {"ids": [3]}, "bad": {"ids": [-1]}, "big": {"ids": [16777217]},
          "most": {"ids": [16777216]}})");
  const auto frame = [&](const json& parts) {
    return PostProcessor::load({{"type", "TemplateProcessing"}, {"single", parts}, {"special_tokens", ids}}, "F");
  };
  const PostProcessor around = frame({token("a"), token("b"), text, token("b"), token("most")});
  EXPECT_EQ(around.before, (std::vector<Token>{1, 2, 3}));
  EXPECT_EQ(around.after, (std::vector<Token>{3, 16777216}));
  EXPECT_TRUE(PostProcessor::load(nullptr, "F").before.empty() && PostProcessor::load(nullptr, "F").after.empty());
  EXPECT_TRUE(says(sentence_of([&] { frame(json::array({token("a")})); }), "but the text must occur in it"));
  EXPECT_TRUE(says(sentence_of([&] { frame(json::array({text, text})); }), "but the text may occur in it only once"));
  for (const char* bad : {"bad", "big"})
    EXPECT_TRUE(says(sentence_of([&] { frame({text, token(bad)}); }), "but its ids must be token ids"));
  // Of several templates the first is next to the text.
  const json inner = {{"type", "TemplateProcessing"},
                      {"single", {token("a"), text, token("a")}},
                      {"special_tokens", ids}},
             outer = {
                 {"type", "TemplateProcessing"}, {"single", {token("b"), text, token("b")}}, {"special_tokens", ids}};
  const PostProcessor both = PostProcessor::load({{"type", "Sequence"}, {"processors", {inner, outer}}}, "F");
  EXPECT_EQ(both.before, (std::vector<Token>{3, 1, 2}));
  EXPECT_EQ(both.after, (std::vector<Token>{1, 2, 3}));
}

}  // namespace
}  // namespace foretoken::test
