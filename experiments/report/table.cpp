#include "experiments/report/table.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <numeric>
#include <set>

#include "experiments/report/terminal.h"

namespace foretoken {
namespace {

constexpr int kGap = 2;        // blanks between columns
constexpr int kWrapped = 24;   // the last column is not wrapped more narrowly
constexpr int kNarrowest = 8;  // a text column is not cut below this
constexpr int kProse = 118;    // the wrap width of notes and sentences without a terminal

// In tables for people, control characters of cells, titles and sentences are escaped.
Table printable_table(Table table) {
  for (std::string* text : {&table.title, &table.note}) *text = one_line(*text);
  for (Column& column : table.columns) column.title = one_line(column.title);
  for (Row& row : table.rows) {
    row.sentence = one_line(row.sentence);
    for (Cell& cell : row.cells) cell.text = one_line(cell.text), cell.mark = one_line(cell.mark);
  }
  return table;
}

std::string pad(const std::string& text, int width, bool right) {
  const std::string blanks(std::max(0, width - display_width(text)), ' ');
  return right ? blanks + text : text + blanks;
}

// Words in lines of at most `width`; a longer word gets its own line.
std::vector<std::string> wrap(const std::string& text, int width) {
  std::vector<std::string> lines(1);
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find(' ', at), text.size());
    const std::string word = text.substr(at, end - at);
    if (!lines.back().empty() && display_width(lines.back()) + 1 + display_width(word) > width) lines.emplace_back();
    lines.back() += (lines.back().empty() ? "" : " ") + word;
    at = end + 1;
  }
  return lines;
}

std::string trimmed(std::string line) {
  line.erase(line.find_last_not_of(' ') + 1);
  return line + "\n";
}

int total(const std::vector<int>& widths, std::size_t columns) {
  return std::accumulate(widths.begin(), widths.begin() + columns, 0) + kGap * int(columns);
}

std::vector<int> natural_widths(const Table& table) {
  std::vector<int> widths;
  for (std::size_t i = 0; i < table.columns.size(); ++i) {
    widths.push_back(display_width(table.columns[i].title));
    for (const Row& row : table.rows)
      if (i < row.cells.size()) widths[i] = std::max(widths[i], display_width(row.cells[i].shown()));
  }
  return widths;
}

// The width from which the last column is not wrapped; -1: it never is.
int wrapped_width(const Table& table, const std::vector<int>& widths) {
  return !table.columns.empty() && table.columns.back().whole ? std::min(widths.back(), kWrapped) : -1;
}

// Widths that fit: the last column is wrapped if it must not be cut, then text columns are cut, the widest first. At
// width 0 nothing is.
std::vector<int> fitted_widths(const Table& table, int width) {
  std::vector<int> widths = natural_widths(table);
  if (const int least = wrapped_width(table, widths); width > 0 && least >= 0)
    widths.back() = std::clamp(width - total(widths, widths.size() - 1), least, widths.back());
  while (width > 0 && total(widths, widths.size()) - kGap > width) {
    int widest = -1;
    for (std::size_t i = 0; i < widths.size(); ++i)
      if (table.columns[i].kind == Column::Kind::text && !table.columns[i].whole && widths[i] > kNarrowest &&
          (widest < 0 || widths[i] > widths[widest]))
        widest = int(i);
    if (widest < 0) break;
    --widths[widest];
  }
  return widths;
}

std::string terminal_row(const Table& table, const std::vector<int>& widths, const Row& row, int prose) {
  std::string line;
  const bool wraps = row.cells.size() == widths.size() && table.columns.back().whole;
  for (std::size_t i = 0; i < row.cells.size() - (wraps ? 1 : 0); ++i)
    line += pad(cut(row.cells[i].shown(), widths[i]), widths[i], table.columns[i].kind != Column::Kind::text) +
            std::string(kGap, ' ');
  if (row.sentence.empty() && !wraps) return trimmed(line);
  const int indent = total(widths, row.cells.size() - (wraps ? 1 : 0));
  std::string found;
  for (const std::string& part :
       wraps ? wrap(row.cells.back().shown(), widths.back()) : wrap(row.sentence, std::max(prose - indent, 40))) {
    found += trimmed(line + part);
    line = std::string(indent, ' ');
  }
  return found;
}

std::string markdown_text(const std::string& text) { return replaced(text, {{'|', "\\|"}}); }

// What a spreadsheet would take for a formula gets an apostrophe; "-", an unknown value, is empty.
std::string csv_text(std::string text) {
  if (text == "-") return "";
  if (text.find_first_of("=+-@\t\r") == 0 && !number_in(text)) text.insert(0, "'");
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  return "\"" + replaced(text, {{'"', "\"\""}}) + "\"";
}

std::string csv_cell(const Cell& cell, Column::Kind kind) {
  const bool number = cell.kind == Cell::Kind::number || cell.kind == Cell::Kind::interval;
  const std::string first = number ? exact_number(cell.interval.value) : csv_text(cell.text);
  if (kind != Column::Kind::interval) return first;
  if (cell.kind != Cell::Kind::interval) return first + ",,";
  return first + "," + exact_number(cell.interval.low) + "," + exact_number(cell.interval.high);
}

}  // namespace

std::optional<double> number_in(const std::string& text) {
  double x = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), x);
  return error == std::errc() && end == text.data() + text.size() ? std::optional(x) : std::nullopt;
}

std::string exact_number(double x) {
  if (!std::isfinite(x)) return "";
  char digits[32];
  return {digits, std::to_chars(digits, digits + sizeof digits, x).ptr};
}

Cell Cell::of(std::string text) {
  Cell cell;
  cell.kind = Kind::text;
  cell.text = std::move(text);
  return cell;
}

Cell Cell::of(double value, int digits, std::string mark) {
  return {Kind::number, "", {value, value, value}, digits, std::move(mark)};
}
Cell Cell::of(const Interval& interval, int digits, std::string mark) {
  return {Kind::interval, "", interval, digits, std::move(mark)};
}

std::string Cell::shown() const {
  if (kind == Kind::empty || kind == Kind::text) return text;
  if (!std::isfinite(interval.value)) return "-";
  char figures[96];
  if (kind == Kind::number)
    std::snprintf(figures, sizeof figures, "%.*f", digits, interval.value);
  else if (!interval.bounded())
    std::snprintf(figures, sizeof figures, "%.*f [-, -]", digits, interval.value);
  else
    std::snprintf(figures, sizeof figures, "%.*f [%.*f, %.*f]", digits, interval.value, digits, interval.low, digits,
                  interval.high);
  return figures + mark;
}

void Row::add(std::vector<Cell> more) { cells.insert(cells.end(), more.begin(), more.end()); }

Table Table::brief() const {
  Table table = *this;
  for (std::size_t i = 0; i < columns.size(); ++i) {
    if (!columns[i].brief) continue;
    table.columns[i].kind = Column::Kind::number;
    for (Row& row : table.rows)
      if (i < row.cells.size() && row.cells[i].kind == Cell::Kind::interval)
        row.cells[i] = Cell::of(row.cells[i].interval.value, row.cells[i].digits, row.cells[i].mark);
  }
  return table;
}

Table Table::narrow(int width) const {
  Table table = *this;
  std::vector<int> widths = natural_widths(table);
  if (const int least = wrapped_width(table, widths); least >= 0) widths.back() = least;
  int across = total(widths, widths.size()) - kGap;
  std::string left_out;
  for (std::size_t i = columns.size(); width > 0 && across > width && i-- > 0;) {
    if (!columns[i].spare) continue;
    across -= widths[i] + kGap;
    left_out = columns[i].title + (left_out.empty() ? "" : ", ") + left_out;
    table.columns.erase(table.columns.begin() + std::ptrdiff_t(i));
    for (Row& row : table.rows)
      if (i < row.cells.size()) row.cells.erase(row.cells.begin() + std::ptrdiff_t(i));
  }
  if (!left_out.empty())
    table.note += (table.note.empty() ? "" : " ") + std::string("Too wide for this terminal, so left out: ") +
                  left_out + " (--format markdown and csv have all).";
  return table;
}

std::string Table::terminal(int width) const {
  const Table table = printable_table(brief()).narrow(width);
  const int prose = width > 0 ? std::max(width, 40) : kProse;
  const std::vector<int> widths = fitted_widths(table, width);
  const int across = total(widths, widths.size()) - kGap;
  std::string rule, found = table.title + "\n";
  for (int i = 0; i < across; ++i) rule += "─";
  if (!table.note.empty())
    for (const std::string& part : wrap(table.note, prose)) found += trimmed(part);
  Row header;
  for (const Column& column : table.columns) header.cells.push_back(Cell::of(column.title));
  found += terminal_row(table, widths, header, prose) + rule + "\n";
  for (const Row& row : table.rows) found += (row.rule_before ? "\n" : "") + terminal_row(table, widths, row, prose);
  return found;
}

std::string Table::markdown() const {
  const Table table = printable_table(*this);
  std::string found =
      "### " + table.title + "\n\n" + (table.note.empty() ? "" : markdown_text(table.note) + "\n\n") + "|";
  std::string rule = "|";
  for (const Column& column : table.columns) {
    found += " " + markdown_text(column.title) + " |";
    rule += column.kind == Column::Kind::text ? "---|" : "---:|";
  }
  found += "\n" + rule + "\n";
  for (const Row& row : table.rows) {
    found += "|";
    for (std::size_t i = 0; i < columns.size(); ++i) {
      const bool sentence = i == row.cells.size() && !row.sentence.empty();
      found += " " + markdown_text(i < row.cells.size() ? row.cells[i].shown() : sentence ? row.sentence : "") + " |";
    }
    found += "\n";
  }
  return found;
}

std::string Table::title_csv() const { return csv_text(title) + "\n"; }

std::string Table::csv() const {
  const bool sentences = std::ranges::any_of(rows, [](const Row& row) { return !row.sentence.empty(); });
  std::string found;
  for (std::size_t i = 0; i < columns.size(); ++i) {
    const std::string name = csv_text(columns[i].name);
    found += (i ? "," : "") + name;
    if (columns[i].kind == Column::Kind::interval) found += "," + name + "_low," + name + "_high";
  }
  found += sentences ? ",error\n" : "\n";
  for (const Row& row : rows) {
    for (std::size_t i = 0; i < columns.size(); ++i)
      found += (i ? "," : "") + csv_cell(i < row.cells.size() ? row.cells[i] : Cell{}, columns[i].kind);
    found += sentences ? "," + csv_text(row.sentence) + "\n" : "\n";
  }
  return found;
}

std::string Column::explained() const {
  std::string all = meaning;
  for (const std::string& mark : marks) all += "; " + mark;
  return all;
}

std::string legend(const std::vector<Table>& tables, int width, bool markdown) {
  std::vector<Column> columns;  // each once, with the marks of all tables
  for (const Table& table : tables)
    for (const Column& column : table.columns) {
      if (column.meaning.empty()) continue;
      const auto same = [&](const Column& c) { return c.title == column.title && c.meaning == column.meaning; };
      const auto known = std::ranges::find_if(columns, same);
      if (known == columns.end()) {
        columns.push_back(column);
        continue;
      }
      for (const std::string& mark : column.marks)
        if (std::ranges::find(known->marks, mark) == known->marks.end()) known->marks.push_back(mark);
    }
  const int prose = width > 0 ? width : kProse;
  int widest = 0;
  for (const Column& column : columns) widest = std::max(widest, display_width(one_line(column.title)));
  std::string found;
  for (const Column& column : columns) {
    const std::string title = one_line(column.title), meaning = one_line(column.explained());
    std::string head = pad(title, widest + kGap, false);
    if (markdown) {
      found += "- **" + title + "**: " + meaning + "\n";
      continue;
    }
    for (const std::string& part : wrap(meaning, std::max(prose - widest - kGap, 40))) {
      found += trimmed(head + part);
      head = std::string(widest + kGap, ' ');
    }
  }
  return found;
}

}  // namespace foretoken
