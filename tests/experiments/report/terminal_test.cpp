// Text for a terminal: no control characters, and lines that fit.
#include "experiments/report/terminal.h"

#include <gtest/gtest.h>

#include "experiments/report/table.h"

namespace foretoken {
namespace {

TEST(Printable, ShowsControlCharactersAndKeepsText) {
  EXPECT_EQ(printable("naïve 模型 \\ ✓"), "naïve 模型 \\ ✓");
  EXPECT_EQ(printable("a\x1b[2J\x07\x7f"), "a\\u001b[2J\\u0007\\u007f");
  EXPECT_EQ(printable("\xC2\x9B"
                      "31m"),
            "\\u009b31m");  // a control sequence introducer of 8 bits
  EXPECT_EQ(printable("\u202Eback\u2066\u2028"), "\\u202eback\\u2066\\u2028");
  EXPECT_EQ(printable(std::string("nul\0.", 5)), "nul\\u0000.");
  EXPECT_EQ(printable("a\n\tb", "\n\t"), "a\n\tb");
  EXPECT_EQ(printable("a\n\tb", "\n"), "a\n\\u0009b");
}

TEST(Printable, ShowsBytesThatAreNoUtf8) {
  EXPECT_EQ(printable("\x9B"
                      "31m"),
            "\\x9b31m");
  EXPECT_EQ(printable("\xE2\x9C"), "\\xe2\\x9c");
  EXPECT_EQ(printable("\xC0\x9B"), "\\xc0\\x9b");           // an overlong escape character
  EXPECT_EQ(printable("\xED\xA0\x80"), "\\xed\\xa0\\x80");  // half of a surrogate pair
}

TEST(Printable, OneLineIsOneLine) { EXPECT_EQ(one_line("a\r\nb\tc\x1b"), "a  b c\\u001b"); }

TEST(Printable, CutTextFits) {
  EXPECT_EQ(cut("abcdef", 6), "abcdef");
  EXPECT_EQ(cut("abcdef", 4), "abc…");
  EXPECT_EQ(cut("模型模型", 5), "模型…");
  EXPECT_EQ(cut("abc", 0), "");
}

Table hostile(const std::string& value) {
  return {value,
          value,
          {{value, "name", value, Column::Kind::text}},
          {{{Cell::of(value)}, "", false}, {{Cell::of("x")}, value, false}}};
}

TEST(Table, ShowsControlCharactersOfEveryPart) {
  const Table table = hostile("a\x1b[2J\nb");
  for (const std::string& text : {table.terminal(100), table.terminal(0), table.markdown(), legend({table}, 100, false),
                                  legend({table}, 100, true)}) {
    EXPECT_EQ(text.find('\x1b'), std::string::npos) << text;
    EXPECT_NE(text.find("a\\u001b[2J b"), std::string::npos) << text;
  }
  EXPECT_NE(table.csv().find('\x1b'), std::string::npos);  // for programs: unescaped
}

TEST(Table, CutsNothingWhereNoTerminalShowsIt) {
  Table table = hostile(std::string(300, 'x'));
  EXPECT_EQ(table.terminal(0).find("…"), std::string::npos);
  EXPECT_NE(table.terminal(100).find("…"), std::string::npos);
  table.columns[0].whole = true;
  EXPECT_EQ(table.terminal(100).find("…"), std::string::npos);
}

}  // namespace
}  // namespace foretoken
