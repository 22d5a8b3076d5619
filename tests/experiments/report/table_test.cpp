// The three formats of a table: alignment, cuts, wrapping, escapes and quotes.
#include "experiments/report/table.h"

#include <limits>

#include <gtest/gtest.h>

#include "experiments/report/terminal.h"
#include "tests/support/source.h"

namespace foretoken {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

Table small() {
  Table table;
  table.title = "Speeds";
  table.columns = {{"drafter", "drafter", "", Column::Kind::text},
                   {"τ", "tau", "tokens per forward", Column::Kind::number},
                   {"speedup", "speedup", "over plain", Column::Kind::interval}};
  table.rows = {{{Cell::of("draft_model"), Cell::of(2.0 / 3, 2), Cell::of(Interval{1.5, 1.25, 1.75}, 2)}, "", false},
                {{Cell::of("naïve"), Cell::of(12.0, 2, "~"), Cell::of(Interval::unknown(), 2)}, "", true}};
  return table;
}

TEST(Table, TerminalAlignsTextLeftAndFiguresRight) {
  EXPECT_EQ(small().terminal(100),
            "Speeds\n"
            "drafter           τ            speedup\n"
            "───────────────────"
            "───────────────────\n"
            "draft_model    0.67  1.50 [1.25, 1.75]\n"
            "\n"
            "naïve        12.00~                  -\n");
}

TEST(Table, TerminalCutsTextNotFigures) {
  Table table = small();
  table.rows[0].cells[0] = Cell::of("a_drafter_with_a_very_long_name_indeed");
  for (const std::string& line : test::split_lines(table.terminal(40))) EXPECT_LE(display_width(line), 40) << line;
  const std::string text = table.terminal(40);
  EXPECT_NE(text.find("a_drafter_wi…"), std::string::npos) << text;
  EXPECT_NE(text.find("1.50 [1.25, 1.75]"), std::string::npos);
}

TEST(Table, SentencesWrapBesideTheirCells) {
  Table table = small();
  table.rows.push_back(
      {{Cell::of("ngram")}, "the draft has another vocabulary than the target; name a draft that shares it", false});
  const std::string text = table.terminal(64);
  EXPECT_NE(text.find("ngram        the draft has another vocabulary than the target;\n"
                      "             name a draft that shares it\n"),
            std::string::npos)
      << text;
}

TEST(Table, WidthsCountWhatATerminalShows) {
  EXPECT_EQ(display_width("abc"), 3);
  EXPECT_EQ(display_width("naïve"), 5);
  EXPECT_EQ(display_width("nai\xCC\x88ve"), 5);  // i and a combining diaeresis
  EXPECT_EQ(display_width("模型"), 4);
  EXPECT_EQ(display_width("✓"), 1);
  EXPECT_EQ(display_width("\xFF\xFE"), 2);  // no UTF-8 at all
  EXPECT_EQ(display_width("\xE2\x9C"), 2);  // cut in the middle
}

TEST(Table, MarkdownEscapesAndAligns) {
  Table table = small();
  table.rows[1].cells[0] = Cell::of("a|b\nc");
  EXPECT_EQ(table.markdown(),
            "### Speeds\n\n"
            "| drafter | τ | speedup |\n"
            "|---|---:|---:|\n"
            "| draft_model | 0.67 | 1.50 [1.25, 1.75] |\n"
            "| a\\|b c | 12.00~ | - |\n");
}

TEST(Table, CsvKeepsPrecisionAndSplitsIntervals) {
  Table table = small();
  table.rows[1].cells[0] = Cell::of("say \"a,b\"");
  EXPECT_EQ(table.csv(),
            "drafter,tau,speedup,speedup_low,speedup_high\n"
            "draft_model,0.6666666666666666,1.5,1.25,1.75\n"
            "\"say \"\"a,b\"\"\",12,,,\n");
}

TEST(Table, CsvHasAColumnForSentences) {
  Table table = small();
  table.rows[1] = {{Cell::of("ngram")}, "no, sorry", false};
  EXPECT_EQ(table.csv(),
            "drafter,tau,speedup,speedup_low,speedup_high,error\n"
            "draft_model,0.6666666666666666,1.5,1.25,1.75,\n"
            "ngram,,,,,\"no, sorry\"\n");
}

TEST(Table, UnknownFiguresAreADash) {
  EXPECT_EQ(Cell::of(kNaN, 2).shown(), "-");
  EXPECT_EQ(Cell{}.shown(), "");
  EXPECT_EQ(Cell::of(1.0, 1, " x").shown(), "1.0 x");
}

TEST(Table, LegendTellsEachColumnOnce) {
  const Table table = small();
  EXPECT_EQ(legend({table, table}, 100, false), "τ        tokens per forward\nspeedup  over plain\n");
  EXPECT_EQ(legend({table}, 100, true), "- **τ**: tokens per forward\n- **speedup**: over plain\n");
}

}  // namespace
}  // namespace foretoken
