// Tables as LaTeX.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <set>

#include "experiments/report/table.h"
#include "experiments/report/terminal.h"
#include "framework/text/utf8.h"

namespace foretoken {
namespace {

// What has no glyph in a text font, or another meaning.
const std::map<char32_t, std::string> kLatex = {{'\\', "\\textbackslash{}"},
                                                {'{', "\\{"},
                                                {'}', "\\}"},
                                                {'$', "\\$"},
                                                {'&', "\\&"},
                                                {'#', "\\#"},
                                                {'%', "\\%"},
                                                {'_', "\\_"},
                                                {'^', "\\textasciicircum{}"},
                                                {'~', "\\textasciitilde{}"},
                                                {'<', "\\textless{}"},
                                                {'>', "\\textgreater{}"},
                                                {'|', "\\textbar{}"},
                                                {'"', "{''}"},
                                                {'`', "{`}"},
                                                {'\'', "{'}"},
                                                {'-', "{-}"},
                                                {U'✓', "$\\surd$"},
                                                {U'✗', "$\\times$"},
                                                {U'↑', "$\\uparrow$"},
                                                {U'↓', "$\\downarrow$"},
                                                {U'≤', "$\\leq$"},
                                                {U'≥', "$\\geq$"},
                                                {U'…', "\\ldots{}"}};

bool in_every_font(char32_t c) {  // accented Latin letters
  return c >= 0xC0 && c <= 0xFF && c != 0xD0 && c != 0xDE && c != 0xF0 && c != 0xFE && c != 0xD7 && c != 0xF7;
}

std::string comment(const std::string& text) { return "% " + one_line(text) + "\n"; }

// A cell's own text, without marks; the bounds of an interval are smaller.
std::string figure_text(const Cell& cell) {
  const std::string text = cell.shown(), figures = text.substr(0, text.size() - cell.mark.size());
  const std::size_t bounds = cell.kind == Cell::Kind::interval ? figures.find(" [") : std::string::npos;
  if (bounds == std::string::npos) return latex_text(figures);
  return latex_text(figures.substr(0, bounds)) + " {\\scriptsize " + latex_text(figures.substr(bounds + 1)) + "}";
}

// Per row, whether a column's figure is as printed the best of its group, of at least two.
std::vector<bool> best_rows(const Table& table, std::size_t column) {
  struct Group {
    int rows = 0;
    const Cell* best = nullptr;
  };
  std::map<std::string, Group> groups;
  const int better = table.columns[column].better;
  const auto figure = [&](const Row& row) -> const Cell* {
    if (better == 0 || column >= row.cells.size() || !std::isfinite(row.cells[column].interval.value)) return nullptr;
    return &row.cells[column];
  };
  const auto printed = [](Cell cell) { return Cell::of(cell.interval.value, cell.digits).shown(); };
  for (const Row& row : table.rows)
    if (const Cell* const cell = figure(row)) {
      Group& group = groups[row.group];
      ++group.rows;
      if (!group.best || better * cell->interval.value > better * group.best->interval.value) group.best = cell;
    }
  std::vector<bool> found;
  for (const Row& row : table.rows) {
    const Cell* const cell = figure(row);
    const Group* const group = cell ? &groups[row.group] : nullptr;
    found.push_back(group && group->rows > 1 && printed(*cell) == printed(*group->best));
  }
  return found;
}

std::string row_text(const Table& table, std::size_t r, const std::vector<std::vector<bool>>& bold) {
  const Row& row = table.rows[r];
  std::string line;
  for (std::size_t i = 0; i < row.cells.size(); ++i) {
    const std::string text = figure_text(row.cells[i]), mark = latex_text(row.cells[i].mark);
    line += (i ? " & " : "") + (bold[i][r] ? "\\textbf{" + text + "}" : text) + mark;
  }
  const std::size_t left = table.columns.size() - row.cells.size();
  if (left > 0 && !row.sentence.empty())
    line += (row.cells.empty() ? "" : " & ") + std::string("\\multicolumn{") + std::to_string(left) + "}{l}{" +
            latex_text(row.sentence) + "}";
  else
    for (std::size_t i = 0; i < left; ++i) line += row.cells.empty() && i == 0 ? "" : " & ";
  return line + " \\\\\n";
}

}  // namespace

std::string latex_text(const std::string& given) {
  const std::string text = one_line(given);
  std::string found = !text.empty() && (text[0] == '[' || text[0] == '*') ? "{}" : "";  // no argument of a line's end
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Step step = step_utf8(text, at);
    const bool whole = step.kind == Utf8Step::Kind::whole;
    const char32_t c = whole ? step.point : static_cast<unsigned char>(text[at]);
    const int bytes = whole ? step.length : 1;
    char code[24];
    std::snprintf(code, sizeof code, "U+%04X", static_cast<unsigned>(c));
    if (const auto known = kLatex.find(c); known != kLatex.end())
      found += known->second;
    else if ((c >= 0x20 && c < 0x7F) || (whole && in_every_font(c)))
      found += text.substr(at, std::size_t(bytes));
    else
      found += code;
    at += std::size_t(bytes);
  }
  return found;
}

std::string Table::latex() const {
  std::string kinds, head, found = comment(title);
  if (!note.empty()) found += comment(note);
  std::set<std::string> told;
  std::vector<std::vector<bool>> bold;
  for (std::size_t i = 0; i < columns.size(); ++i) {
    const Column& column = columns[i];
    if (!column.meaning.empty() && told.insert(column.title).second)
      found += comment(column.title + ": " + column.meaning);
    kinds += column.kind == Column::Kind::text ? "l" : "r";
    head += (i ? " & " : "") + latex_text(column.title);
    bold.push_back(best_rows(*this, i));
  }
  found += "\\begin{tabular}{" + kinds + "}\n\\toprule\n" + head + " \\\\\n\\midrule\n";
  for (std::size_t r = 0; r < rows.size(); ++r)
    found += (r > 0 && rows[r].rule_before ? "\\addlinespace\n" : "") + row_text(*this, r, bold);
  return found + "\\bottomrule\n\\end{tabular}\n";
}

}  // namespace foretoken
