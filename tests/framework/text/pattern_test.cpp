// Oniguruma's expressions for PCRE2: what is translated, what is passed on unchanged, what is refused.
#include "framework/text/pattern.h"

#include <gtest/gtest.h>

#include "tests/framework/text/temporary_folder.h"

namespace foretoken::test {
namespace {

using Spans = std::vector<std::pair<std::size_t, std::size_t>>;

TEST(Pattern, FindsFromTheLeftWithoutOverlap) {
  EXPECT_EQ(Pattern::regex("a+|b", "x").find_all("caab b"), (Spans{{1, 3}, {3, 4}, {5, 6}}));
  EXPECT_EQ(Pattern::regex("a", "x").find_all(""), Spans{});
  EXPECT_EQ(Pattern::literal("a.", "x").find_all("ab a. a."), (Spans{{3, 5}, {6, 8}}));
  EXPECT_EQ(Pattern::regex("b*", "x").find_all("\xc3\xa9"
                                               "b"),
            (Spans{{0, 0}, {2, 3}, {3, 3}}));
}

TEST(Pattern, WhiteSpaceIsUnicodes) {
  for (const char* space :
       {" ", "\t", "\x0b", "\xc2\x85", "\xc2\xa0", "\xe1\x9a\x80", "\xe2\x80\x83", "\xe2\x80\xa8", "\xe3\x80\x80"})
    EXPECT_EQ(Pattern::regex("\\s", "x").find_all(space).size(), 1u) << space;
  for (const char* none : {"a", "\xe1\xa0\x8e" /* U+180E */, "\xe2\x80\x8b" /* U+200B */, "\xef\xbb\xbf"}) {
    EXPECT_TRUE(Pattern::regex("\\s", "x").find_all(none).empty()) << none;
    EXPECT_TRUE(Pattern::regex("[\\s]", "x").find_all(none).empty()) << none;
    EXPECT_EQ(Pattern::regex("\\S", "x").find_all(none).size(), 1u) << none;
  }
}

TEST(Pattern, FoldsCaseAsUnicodeDoes) {
  EXPECT_EQ(Pattern::regex("(?i:'s|'ll)", "x").find_all("'S 'lL '\xc5\xbf"), (Spans{{0, 2}, {3, 6}, {7, 10}}));
}

TEST(Pattern, WhatBothInterpretAlikeIsPassedOn) {
  for (const char* p :
       {R"((?i:'s|'t)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
        "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{M}]*(?:a|b)?[\\r\\n/]*", "a{2}b{3,}\\.\\-", "(?<=a)b(?<!c)(?>d)",
        "\\d\\D\\v\\P{L}\\p{^L}"})
    EXPECT_EQ(sentence_of([&] { Pattern::regex(p, "x"); }), "") << p;
}

TEST(Pattern, WhatTheyInterpretDifferentlyIsRefused) {
  const std::vector<std::pair<const char*, const char*>> cases = {{"\\h", "the escape \\h"},
                                                                  {"\\w", "the escape \\w"},
                                                                  {"\\bfoo", "the escape \\b"},
                                                                  {"\\x41", "the escape \\x"},
                                                                  {"\\1", "the escape \\1"},
                                                                  {"a\\", "a \\ at its end"},
                                                                  {"[\\S]", "the escape \\S inside [ ]"},
                                                                  {"\\p{Han}", "the property \\p{Han}"},
                                                                  {"\\p{Alpha}", "the property"},
                                                                  {"\\p{Latin}", "the property \\p{Latin}"},
                                                                  {"\\p{L&}", "the property \\p{L&}"},
                                                                  {"\\p{L}a\\p{LA}", "the property \\p{LA}"},
                                                                  {"\\p{L{}", "the property \\p{L{}"},
                                                                  {"\\p{}", "the property \\p{}"},
                                                                  {"\\p{Xy}", "the property \\p{Xy}"},
                                                                  {"\\pL", "the property"},
                                                                  {"\\p{L", "the property"},
                                                                  {"[a[b]]", "a [ inside [ ]"},
                                                                  {"[[:alpha:]]", "a [ inside [ ]"},
                                                                  {"[a&&b]", "the intersection &&"},
                                                                  {"[]a]", "the class []"},
                                                                  {"[ab", "a [ without ]"},
                                                                  {"(?<n>a)", "the group (?<n"},
                                                                  {"(?i)a", "the group (?i)"},
                                                                  {"(*FAIL)", "the group (*"},
                                                                  {"a{,3}", "a { that is no"},
                                                                  {"a{x}", "a { that is no"},
                                                                  {"a{2}+", "the quantifier }+"},
                                                                  {"^a", "the anchor ^"},
                                                                  {"a$", "the anchor $"}};
  for (const auto& [pattern, words] : cases)
    EXPECT_TRUE(says(sentence_of([p = pattern] { Pattern::regex(p, "FILE"); }), "FILE: the pattern", pattern, words,
                     "not supported"));
}

TEST(Pattern, EscapesAreThoseOfOniguruma) {
  const auto translated = [](const char* from) { return pcre2_from_oniguruma(from, "x"); };
  const std::string space = "\\x{09}-\\x{0d}\\x{85}\\p{Z}";
  EXPECT_EQ(translated("\\s\\S[\\s]"), "[" + space + "][^" + space + "][" + space + "]");
  EXPECT_EQ(translated("\\d\\D\\v"), "\\p{Nd}\\P{Nd}\\x{0b}");
  EXPECT_EQ(translated("[\\d\\]\\-^]"), "[\\p{Nd}\\]\\-^]");
  EXPECT_EQ(translated("\\r\\n\\t\\f\\~\\!\\_"), "\\r\\n\\t\\f\\~\\!\\_");
  EXPECT_EQ(translated("[^a-z]\\p{^Lu}\\P{Zs}"), "[^a-z]\\p{^Lu}\\P{Zs}");
  EXPECT_EQ(translated("(a)(?:b)(?=c)(?!d)(?>e)(?<=f)(?<!g)(?i:h)"), "(a)(?:b)(?=c)(?!d)(?>e)(?<=f)(?<!g)(?i:h)");
  EXPECT_EQ(translated("a{2}b{3,}c{4,5}d*+?"), "a{2}b{3,}c{4,5}d*+?");
  for (const char* bad : {"\\ ", "\\\x7f", "\\A", "\\z", "\\9"})
    EXPECT_TRUE(says(sentence_of([&] { translated(bad); }), "x: the pattern", "the escape \\")) << bad;
}

TEST(Pattern, EveryMatchIsReplaced) {
  EXPECT_EQ(Pattern::regex("b+", "x").replace_all("abbcb", "-"), "a-c-");
  EXPECT_EQ(Pattern::literal("b", "x").replace_all("aa", "-"), "aa");
  EXPECT_EQ(Pattern::regex("x*", "x").replace_all("ab", "-"), "-a-b-");
}

TEST(Pattern, LongRunsOfWhiteSpace) {
  const std::string text = std::string(300'000, ' ') + "x";
  EXPECT_EQ(Pattern::regex("\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+", "x").find_all(text),
            (Spans{{0, 299'999}, {299'999, 300'000}}));
}

}  // namespace
}  // namespace foretoken::test
