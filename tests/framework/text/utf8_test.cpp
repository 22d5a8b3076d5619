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

// Table 3-7 of the Unicode standard: the second byte after each first one.
TEST(Utf8, TakesTheBytesOfTheStandardsTable) {
  for (int lead = 0; lead < 256; ++lead)
    for (int second = 0; second < 256; ++second) {
      const int length = lead < 0x80 ? 1 : lead < 0xc2 ? 0 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : lead < 0xf5 ? 4 : 0;
      const int least = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
      const int most = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;
      const bool follows = second >= least && second <= most;
      const std::string text{char(lead), char(second), char(0x80), char(0xbf)};
      const Utf8Step step = step_utf8(text, 0);
      const bool whole = length == 1 || (length > 1 && follows);
      ASSERT_EQ(step.kind, whole ? Utf8Step::Kind::whole : Utf8Step::Kind::broken) << lead << ", " << second;
      ASSERT_EQ(step.length, whole ? length : 1) << lead << ", " << second;
    }
}

TEST(Utf8, StepsOverWhatIsNotFinished) {
  for (const char* part : {"\xc3", "\xe2\x82", "\xf0\x9f\x98"}) {
    const Utf8Step step = step_utf8(std::string("ab") + part, 2);
    EXPECT_EQ(step.kind, Utf8Step::Kind::unfinished);
    EXPECT_EQ(std::size_t(step.length), std::string(part).size());
    EXPECT_EQ(step_utf8(std::string(part) + "z", 0).kind, Utf8Step::Kind::broken);
  }
  EXPECT_EQ(step_utf8("\xf0\x9f\x98(", 0).length, 3) << "the part that could have become a character";
}

// GPT-2's bytes_to_unicode: the printable letters of Latin-1 stand for themselves, the others for U+0100 and on.
TEST(ByteAlphabet, IsGpt2s) {
  char32_t next = 0x100;
  for (int b = 0; b < 256; ++b) {
    const bool itself = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || (b >= 174 && b <= 255);
    EXPECT_EQ(letter_of_byte(static_cast<unsigned char>(b)), itself ? char32_t(b) : next++) << b;
  }
  EXPECT_EQ(next, U'\u0144');
  EXPECT_EQ(bytes_of_letters("\u0143"), std::string(1, '\xad'));
  EXPECT_EQ(bytes_of_letters("\u0144"), std::nullopt);
  EXPECT_EQ(bytes_of_letters("a\xc3"), std::nullopt);
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
