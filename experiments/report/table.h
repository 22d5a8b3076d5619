// A table of cells and its formats: terminal, Markdown, LaTeX, CSV. This module must not know what the cells mean.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "experiments/report/statistics.h"

namespace foretoken {

struct Cell {
  enum class Kind { empty, text, number, interval };
  Kind kind = Kind::empty;
  std::string text;     // kind text
  Interval interval{};  // kind number: only its value
  int digits = 0;       // after the point
  std::string mark;     // follows the figure in tables for people, not in CSV

  static Cell of(std::string text);
  static Cell of(double value, int digits, std::string mark = "");
  static Cell of(const Interval& interval, int digits, std::string mark = "");
  std::string shown() const;  // NaN is "-"
};

struct Column {
  std::string title;    // where people read
  std::string name;     // in CSV; an interval gives name, name_low, name_high
  std::string meaning;  // one line of the legend; empty: none
  enum class Kind { text, number, interval } kind = Kind::number;
  bool whole = false;                // never cut; the last one is wrapped
  bool brief = false;                // an interval of which a terminal and a page show the value alone
  bool spare = false;                // left out where a terminal is too narrow, the last one first
  int better = 0;                    // 1: the greatest of a group is best, -1: the least; 0: none
  std::vector<std::string> marks{};  // ends of the meaning: "loses: slower than plain decoding", of what its cells say

  std::string explained() const;  // the meaning and the marks
};

struct Row {
  std::vector<Cell> cells;  // one per column, or fewer if a sentence follows
  std::string sentence;     // spans the columns without cells: why there are no figures
  bool rule_before = false;
  std::string group{};  // rows with one are compared with each other

  void add(std::vector<Cell> more);
};

struct Table {
  std::string title;
  std::string note;  // a line under the title; may be empty
  std::vector<Column> columns;
  std::vector<Row> rows;

  // Columns two blanks apart, numbers to the right, text to the left. If wider than `width`, spare columns are left
  // out, a last column that must be whole is wrapped, then the widest text column is cut with an ellipsis (figures
  // never are), and sentences are wrapped. Width 0 (no terminal): nothing is.
  std::string terminal(int width) const;
  std::string markdown() const;
  // A tabular of booktabs, after its title and note as comments; the best figures of each group are bold. All text is
  // escaped so that any LaTeX compiles it.
  std::string latex() const;
  // RFC 4180, full precision, what is unknown empty; a last column `error` if a row has a sentence. A text that a
  // spreadsheet would execute begins with an apostrophe.
  std::string csv() const;
  std::string title_csv() const;  // one cell
  // Brief columns without their bounds.
  Table brief() const;
  // Without spare columns that make it wider than this, which the note then names.
  Table narrow(int width) const;
};

// "title  meaning" lines of all columns of all tables, each once; wrapped to `width`, or a Markdown list.
std::string legend(const std::vector<Table>& tables, int width, bool markdown);

// Text that LaTeX prints as it is.
std::string latex_text(const std::string& text);
// The number that a whole text is.
std::optional<double> number_in(const std::string& text);
// The shortest decimal that reads back as the same number; empty where it is not finite.
std::string exact_number(double x);

}  // namespace foretoken
