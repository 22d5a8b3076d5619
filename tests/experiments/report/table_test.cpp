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

// As OWASP lists them. Numbers are no formulas.
TEST(Table, CsvQuotesWhatSpreadsheetsExecute) {
  Table table = small();
  for (const auto& [given, written] : std::vector<std::pair<std::string, std::string>>{{"=1+1", "'=1+1"},
                                                                                       {"+cmd", "'+cmd"},
                                                                                       {"-x", "'-x"},
                                                                                       {"@SUM(A1)", "'@SUM(A1)"},
                                                                                       {"\t=1", "'\t=1"},
                                                                                       {"\r=1", "\"'\r=1\""},
                                                                                       {"=a,b", "\"'=a,b\""},
                                                                                       {"-0.5", "-0.5"},
                                                                                       {"-", ""},
                                                                                       {"a=1", "a=1"}}) {
    table.rows = {{{Cell::of(given), Cell::of(-1.5, 2)}, "", false}};
    EXPECT_TRUE(table.csv().ends_with("\n" + written + ",-1.5,,,\n")) << table.csv();
  }
  table.rows = {{{Cell::of("a")}, "=HYPERLINK()", false}};
  EXPECT_TRUE(table.csv().ends_with(",'=HYPERLINK()\n")) << table.csv();
}

TEST(Table, LatexIsATabularOfBooktabs) {
  Table table = small();
  table.note = "50 % of\n\\input{x}";
  table.rows.push_back({{Cell::of("ngram")}, "a_b is unknown", false});
  EXPECT_EQ(table.latex(),
            "% Speeds\n"
            "% 50 % of \\input{x}\n"
            "% τ: tokens per forward\n"
            "% speedup: over plain\n"
            "\\begin{tabular}{lrr}\n"
            "\\toprule\n"
            "drafter & U+03C4 & speedup \\\\\n"
            "\\midrule\n"
            "draft\\_model & 0.67 & 1.50 {\\scriptsize {}[1.25, 1.75]} \\\\\n"
            "\\addlinespace\n"
            "naïve & 12.00\\textasciitilde{} & {-} \\\\\n"
            "ngram & \\multicolumn{2}{l}{a\\_b is unknown} \\\\\n"
            "\\bottomrule\n"
            "\\end{tabular}\n");
}

TEST(Table, LatexPrintsTextAsItIs) {
  EXPECT_EQ(latex_text("\\ { } $ & # % _ ^ ~"),
            "\\textbackslash{} \\{ \\} \\$ \\& \\# \\% \\_ \\textasciicircum{} \\textasciitilde{}");
  EXPECT_EQ(latex_text("<a> | \"b\" `c' --"), "\\textless{}a\\textgreater{} \\textbar{} {''}b{''} {`}c{'} {-}{-}");
  EXPECT_EQ(latex_text("[x] *"), "{}[x] *") << "no option of the end of the line before";
  EXPECT_EQ(latex_text("*x"), "{}*x");
  EXPECT_EQ(latex_text("✓ ✗ ≤ é 模 ☺ \xFF"), "$\\surd$ $\\times$ $\\leq$ é U+6A21 U+263A \\textbackslash{}xff");
  EXPECT_EQ(latex_text("a\nb\tc"), "a b c");
}

TEST(Table, LatexSetsTheBestOfEachGroupInBold) {
  Table table = small();
  table.columns[1].better = -1, table.columns[2].better = 1;
  const auto row = [](const char* group, double time, const Interval& speedup) {
    Row found{{Cell::of(group), Cell::of(time, 1, "~"), Cell::of(speedup, 2)}, "", false};
    found.group = group;
    return found;
  };
  table.rows = {row("a", 2.04, {1.5, 1.4, 1.6}), row("a", 2.0, {1.7, 1.5, 1.8}), row("a", kNaN, Interval::unknown()),
                row("b", 1, {9, 8, 10})};
  const std::string text = table.latex();
  EXPECT_NE(text.find("a & \\textbf{2.0}\\textasciitilde{} & 1.50 {"), std::string::npos) << text;
  EXPECT_NE(text.find("a & \\textbf{2.0}\\textasciitilde{} & \\textbf{1.70 {\\scriptsize {}[1.50, 1.80]}}"),
            std::string::npos)
      << "printed alike, both are best\n"
      << text;
  EXPECT_NE(text.find("b & 1.0\\textasciitilde{} & 9.00 {"), std::string::npos) << "alone in its group\n" << text;
}

TEST(Table, ATerminalWrapsALastColumnThatMustBeWhole) {
  Table table = small();
  table.columns.push_back(
      {.title = "notes", .name = "notes", .meaning = "", .kind = Column::Kind::text, .whole = true});
  table.rows[0].cells.push_back(Cell::of("exact, no draft: nothing 81 %, two speeds"));
  const std::string text = table.terminal(66);
  EXPECT_NE(text.find("draft_model    0.67  1.50 [1.25, 1.75]  exact, no draft: nothing\n"
                      "                                        81 %, two speeds\n"),
            std::string::npos)
      << text;
  EXPECT_NE(table.terminal(0).find("81 %, two speeds"), std::string::npos);
}

TEST(Table, ATerminalLeavesOutSpareColumns) {
  Table table = small();
  table.columns.insert(table.columns.begin() + 1, {.title = "spare", .name = "s", .meaning = "", .spare = true});
  for (Row& row : table.rows) row.cells.insert(row.cells.begin() + 1, Cell::of(1.0, 2));
  EXPECT_NE(table.terminal(100).find("spare"), std::string::npos);
  const std::string text = table.terminal(40);
  EXPECT_TRUE(text.find("left out:\nspare (") != std::string::npos &&
              text.find("draft_model    0.67") != std::string::npos)
      << text;
  EXPECT_NE(table.terminal(0).find("spare  "), std::string::npos);
  table.columns[3].brief = true;
  EXPECT_EQ(table.terminal(0).find("[1.25"), std::string::npos);
  EXPECT_NE(table.markdown().find("[1.25"), std::string::npos);
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
