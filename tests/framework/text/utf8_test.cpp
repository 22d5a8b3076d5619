// Invalid bytes become U+FFFD exactly where Python's decode(errors="replace") puts it.
#include "framework/text/utf8.h"

#include <gtest/gtest.h>

#include "framework/text/byte_alphabet.h"

namespace foretoken::test {
namespace {

const std::string kR = "\xef\xbf\xbd";

TEST(Utf8, ReplacesMaximalSubparts) {
  EXPECT_EQ(replace_broken_utf8("plain \xc3\xa9 \xf0\x9f\x98\x80"), "plain \xc3\xa9 \xf0\x9f\x98\x80");
  EXPECT_EQ(replace_broken_utf8("\x80"), kR);
  EXPECT_EQ(replace_broken_utf8("\xc3("), kR + "(");
  EXPECT_EQ(replace_broken_utf8("\xf0\x9f\x98z"), kR + "z");
  EXPECT_EQ(replace_broken_utf8("\xed\xa0\x80"), kR + kR + kR);           // a surrogate
  EXPECT_EQ(replace_broken_utf8("\xc0\x80"), kR + kR);                    // overlong
  EXPECT_EQ(replace_broken_utf8("\xf4\x90\x80\x80"), kR + kR + kR + kR);  // above U+10FFFF
  EXPECT_EQ(replace_broken_utf8(std::string("\0\xff", 2)), std::string("\0", 1) + kR);
}

TEST(Utf8, HoldsAnIncompleteCharacter) {
  std::size_t held = 9;
  EXPECT_EQ(replace_broken_utf8("ab\xf0\x9f\x98", &held), "ab");
  EXPECT_EQ(held, 3u);
  EXPECT_EQ(replace_broken_utf8("ab\xff", &held), "ab" + kR);
  EXPECT_EQ(held, 0u);
  EXPECT_EQ(replace_broken_utf8("ab\xe2\x82", nullptr), "ab" + kR);
}

TEST(Utf8, WritesAndReadsEveryLength) {
  for (const char32_t p : {U'\0', U'\x7f', U'\x80', U'\x7ff', U'\x800', U'\xffff', U'\x10000', U'\x10ffff'}) {
    std::string text;
    append_utf8(text, p);
    const Utf8Step step = step_utf8(text, 0);
    EXPECT_EQ(step.kind, Utf8Step::Kind::whole);
    EXPECT_EQ(step.point, p);
    EXPECT_EQ(std::size_t(step.length), text.size());
  }
}

TEST(ByteAlphabet, IsOneLetterForEveryByte) {
  for (int b = 0; b < 256; ++b) {
    std::string letter;
    append_utf8(letter, letter_of_byte(static_cast<unsigned char>(b)));
    EXPECT_EQ(bytes_of_letters(letter), std::string(1, char(b)));
  }
  EXPECT_EQ(letter_of_byte(' '), U'\u0120');
  EXPECT_EQ(letter_of_byte('\n'), U'\u010a');
  EXPECT_EQ(letter_of_byte('a'), U'a');
  EXPECT_EQ(bytes_of_letters("a b"), std::nullopt);  // a space is written as another letter
  EXPECT_EQ(bytes_of_letters("\xe4\xbd\xa0"), std::nullopt);
}

}  // namespace
}  // namespace foretoken::test
