// Tokens that are found in a text as they are written, before it becomes words.
#include "framework/text/added_tokens.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/framework/text/tokenizer_file.h"

namespace foretoken::test {
namespace {

struct Added : ::testing::Test {
  // The pieces of a text, those of the token as [...]; `more`: what is said of the token "<t>", the id 9.
  static std::string split(const json& more, const std::string& text, bool normalized = false) {
    json token = {{"id", 9}, {"content", "<t>"}, {"normalized", normalized}};
    if (more.is_object()) token.update(more);
    std::string all;
    for (const auto& piece : AddedTokens::load(json::array({token}), {}, "F").split(text, normalized)) {
      EXPECT_TRUE(piece.token == 9 || piece.token < 0);
      all += piece.token == 9 ? "[" + std::string(piece.text) + "]" : "(" + std::string(piece.text) + ")";
    }
    return all;
  }
};

TEST_F(Added, AreFoundWhereverTheyAreWritten) {
  EXPECT_EQ(split({}, "<t>a<t><t> b"), "[<t>](a)[<t>][<t>]( b)");
  EXPECT_EQ(split({}, "<t"), "(<t)");
  EXPECT_EQ(split({}, "<<t>"), "(<)[<t>]");
  EXPECT_EQ(split({}, ""), "");
}

TEST_F(Added, MayTakeTheSpacesAroundThem) {
  EXPECT_EQ(split({{"lstrip", true}}, "a \t\u2003<t> b"), "(a)[ \t\u2003<t>]( b)");
  EXPECT_EQ(split({{"rstrip", true}}, "a <t> \n\u00a0b"), "(a )[<t> \n\u00a0](b)");
  EXPECT_EQ(split({{"lstrip", true}, {"rstrip", true}}, " <t>  <t> "), "[ <t>  ][<t> ]");
  EXPECT_EQ(split({{"lstrip", true}}, "  <t>"), "[  <t>]");
  EXPECT_EQ(split({{"rstrip", true}}, "<t>\u200b"), "[<t>](\u200b)") << "a space of no width is none";
  EXPECT_EQ(split({{"rstrip", true}}, "<t>\t\x0b\r\u0085\u2028\u2029\u3000x"),
            "[<t>\t\x0b\r\u0085\u2028\u2029\u3000](x)");
  EXPECT_EQ(split({{"rstrip", true}}, "<t>\x08"), "[<t>](\x08)");
  EXPECT_EQ(split({{"rstrip", true}}, "<t>\x0e"), "[<t>](\x0e)");
}

// What tokenizers 0.23.3 finds.
TEST_F(Added, OfWhiteSpaceMayStripTheirOwnRepetition) {
  const auto found = [](const char* token, bool left, bool right, const char* text) {
    return split({{"content", token}, {"lstrip", left}, {"rstrip", right}}, text);
  };
  EXPECT_EQ(found("\n", false, false, "a\n\nb"), "(a)[\n][\n](b)");
  EXPECT_EQ(found("\n", true, true, "a\n\nb"), "(a)[\n\n](b)");
  EXPECT_EQ(found("\n", true, true, "\n\n\n"), "[\n\n\n]");
  EXPECT_EQ(found("\n", true, true, "a \n\n b"), "(a)[ \n\n ](b)");
  EXPECT_EQ(found("\n", false, true, "a\n\nb"), "(a)[\n\n][\n](b)") << "the second is found within the first";
  EXPECT_EQ(found("\n", true, false, "a\n \nb"), "(a)[\n][ \n](b)");
  EXPECT_EQ(found(" ", true, true, "  a"), "[  ](a)");
  EXPECT_EQ(found(" ", false, true, "  a"), "[  ][ ](a)");
  EXPECT_EQ(found("\n ", true, true, "a\n \nb"), "(a)[\n \n](b)");
}

TEST_F(Added, MayHaveToStandAlone) {
  const json alone = {{"single_word", true}};
  EXPECT_EQ(split(alone, "<t> <t>, (<t>)"), "[<t>]( )[<t>](, ()[<t>]())");
  for (const char* word : {"a", "Z", "\u00e9", "5", "_", "\u0301", "\u4e2d", "\u2160", "\u24b6", "\u24e9", "\U0001f130",
                           "\U0001f169", "\U0001f189", "\u200c", "\u200d", "\u01c5", "\u02b0", "\u0903", "\u20dd"}) {
    EXPECT_EQ(split(alone, std::string(word) + "<t>"), "(" + std::string(word) + "<t>)");
    EXPECT_EQ(split(alone, "<t>" + std::string(word)), "(<t>" + std::string(word) + ")");
  }
  for (const char* none : {"-", " ", "\u20ac", "\u24b5", "\u24ea", "\U0001f12f", "\U0001f14a", "\U0001f16a",
                           "\U0001f18a", "\u200b", "\u200e", "\u00b2"}) {
    EXPECT_EQ(split(alone, std::string(none) + "<t>"), "(" + std::string(none) + ")[<t>]");
    EXPECT_EQ(split(alone, "<t>" + std::string(none)), "[<t>](" + std::string(none) + ")");
  }
}

TEST_F(Added, TheLongestCountsAndThoseOfNothingAreNone) {
  const json tokens = {{{"id", 1}, {"content", "ab"}},
                       {{"id", 2}, {"content", "abcd"}},
                       {{"id", 3}, {"content", ""}},
                       {{"id", 4}, {"content", "bc"}, {"special", true}}};
  const AddedTokens added = AddedTokens::load(tokens, {}, "F");
  ASSERT_EQ(added.all().size(), 3u);
  std::vector<int> ids;
  for (const auto& piece : added.split("abc abcd ab", true)) ids.push_back(piece.token);
  EXPECT_EQ(ids, (std::vector<int>{1, -1, 2, -1, 1})) << "they are looked for in normalized text";
  ids.clear();
  for (const auto& piece : added.split("abc", false)) ids.push_back(piece.token);
  EXPECT_EQ(ids, (std::vector<int>{-1, 4})) << "special ones are not";
  EXPECT_TRUE(AddedTokens::load(nullptr, {}, "F").all().empty());
}

TEST_F(TokenizerFile, AnAddedTokenWithoutTextHasNoId) {
  json file = tiny();
  file["added_tokens"].push_back({{"id", 262}, {"content", ""}});
  const auto t = load(file);
  EXPECT_EQ(t->vocab(), 262);
  EXPECT_EQ(t->fingerprint(), load(tiny())->fingerprint());
  EXPECT_EQ(t->encode("ab<x>"), (Ids{256, 261}));
}

}  // namespace
}  // namespace foretoken::test
