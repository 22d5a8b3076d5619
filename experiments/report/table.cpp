#include "experiments/report/table.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <numeric>
#include <set>

namespace foretoken {
namespace {

constexpr int kGap = 2;        // blanks between columns
constexpr int kNarrowest = 8;  // a text column is not cut below this

struct CodePoint {
  std::uint32_t value;
  int bytes;
};

// The code point at a place; a byte that is no UTF-8 counts as one of its own.
CodePoint code_point(const std::string& text, std::size_t at) {
  const auto byte = [&](std::size_t i) { return std::uint32_t(static_cast<unsigned char>(text[i])); };
  const std::uint32_t lead = byte(at);
  const int bytes = lead < 0x80 ? 1 : lead >> 5 == 6 ? 2 : lead >> 4 == 14 ? 3 : lead >> 3 == 30 ? 4 : 1;
  if (bytes == 1 || at + bytes > text.size()) return {lead, 1};
  std::uint32_t value = lead & (0x7Fu >> bytes);
  for (int i = 1; i < bytes; ++i) {
    if (byte(at + i) >> 6 != 2) return {lead, 1};
    value = value << 6 | (byte(at + i) & 63);
  }
  return {value, bytes};
}

int width_of(std::uint32_t c) {
  struct Range {
    std::uint32_t first, last;
  };
  static constexpr Range kNone[] = {
      {0x300, 0x36F}, {0x200B, 0x200F}, {0x20D0, 0x20FF}, {0xFE00, 0xFE0F}, {0xFE20, 0xFE2F}};
  static constexpr Range kWide[] = {{0x1100, 0x115F},   {0x2E80, 0xA4CF},  {0xAC00, 0xD7A3}, {0xF900, 0xFAFF},
                                    {0xFE30, 0xFE6F},   {0xFF00, 0xFF60},  {0xFFE0, 0xFFE6}, {0x1F300, 0x1F64F},
                                    {0x1F900, 0x1F9FF}, {0x20000, 0x3FFFD}};
  const auto holds = [c](const Range& range) { return range.first <= c && c <= range.last; };
  return std::ranges::any_of(kNone, holds) ? 0 : std::ranges::any_of(kWide, holds) ? 2 : 1;
}

std::string one_line(std::string text) {
  for (char& c : text)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) c = ' ';
  return text;
}

// The first columns of a text that fit, with an ellipsis where something had to go.
std::string cut(const std::string& text, int width) {
  if (display_width(text) <= width) return text;
  std::string kept;
  int used = 0;
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint c = code_point(text, at);
    if (used + width_of(c.value) > width - 1) break;
    used += width_of(c.value);
    kept += text.substr(at, c.bytes);
    at += c.bytes;
  }
  return kept + "…";
}

std::string pad(const std::string& text, int width, bool right) {
  const std::string blanks(std::max(0, width - display_width(text)), ' ');
  return right ? blanks + text : text + blanks;
}

// Words in lines of at most `width`; a longer word stands alone.
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

// Widths that fit: text columns give way, the widest first.
std::vector<int> fitted_widths(const Table& table, int width) {
  std::vector<int> widths;
  for (std::size_t i = 0; i < table.columns.size(); ++i) {
    widths.push_back(display_width(table.columns[i].title));
    for (const Row& row : table.rows)
      if (i < row.cells.size()) widths[i] = std::max(widths[i], display_width(one_line(row.cells[i].shown())));
  }
  while (total(widths, widths.size()) - kGap > width) {
    int widest = -1;
    for (std::size_t i = 0; i < widths.size(); ++i)
      if (table.columns[i].kind == Column::Kind::text && widths[i] > kNarrowest &&
          (widest < 0 || widths[i] > widths[widest]))
        widest = int(i);
    if (widest < 0) break;
    --widths[widest];
  }
  return widths;
}

std::string terminal_row(const Table& table, const std::vector<int>& widths, const Row& row, int width) {
  std::string line;
  for (std::size_t i = 0; i < row.cells.size(); ++i)
    line +=
        pad(cut(one_line(row.cells[i].shown()), widths[i]), widths[i], table.columns[i].kind != Column::Kind::text) +
        std::string(kGap, ' ');
  if (row.sentence.empty()) return trimmed(line);
  const int indent = total(widths, row.cells.size());
  std::string found;
  for (const std::string& part : wrap(one_line(row.sentence), std::max(width - indent, 40))) {
    found += trimmed(line + part);
    line = std::string(indent, ' ');
  }
  return found;
}

std::string markdown_text(const std::string& text) {
  std::string found;
  for (const char c : one_line(text)) found += c == '|' ? "\\|" : std::string(1, c);
  return found;
}

std::string csv_text(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? "\"\"" : std::string(1, c);
  return quoted + "\"";
}

// The shortest digits that read back as the same number.
std::string csv_number(double x) {
  if (!std::isfinite(x)) return "";
  char digits[32];
  return {digits, std::to_chars(digits, digits + sizeof digits, x).ptr};
}

std::string csv_cell(const Cell& cell, Column::Kind kind) {
  const bool number = cell.kind == Cell::Kind::number || cell.kind == Cell::Kind::interval;
  const std::string first = number ? csv_number(cell.interval.value) : csv_text(cell.text);
  if (kind != Column::Kind::interval) return first;
  if (cell.kind != Cell::Kind::interval) return first + ",,";
  return first + "," + csv_number(cell.interval.low) + "," + csv_number(cell.interval.high);
}

}  // namespace

int display_width(const std::string& text) {
  int width = 0;
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint c = code_point(text, at);
    width += width_of(c.value);
    at += c.bytes;
  }
  return width;
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

std::string Table::terminal(int width) const {
  const std::vector<int> widths = fitted_widths(*this, width);
  const int across = total(widths, widths.size()) - kGap;
  std::string rule, found = title + "\n";
  for (int i = 0; i < across; ++i) rule += "─";
  if (!note.empty())
    for (const std::string& part : wrap(one_line(note), std::max(width, 40))) found += trimmed(part);
  Row header;
  for (const Column& column : columns) header.cells.push_back(Cell::of(column.title));
  found += terminal_row(*this, widths, header, width) + rule + "\n";
  for (const Row& row : rows) found += (row.rule_before ? "\n" : "") + terminal_row(*this, widths, row, width);
  return found;
}

std::string Table::markdown() const {
  std::string found = "### " + title + "\n\n" + (note.empty() ? "" : markdown_text(note) + "\n\n") + "|", rule = "|";
  for (const Column& column : columns) {
    found += " " + markdown_text(column.title) + " |";
    rule += column.kind == Column::Kind::text ? "---|" : "---:|";
  }
  found += "\n" + rule + "\n";
  for (const Row& row : rows) {
    found += "|";
    for (std::size_t i = 0; i < columns.size(); ++i) {
      const bool sentence = i == row.cells.size() && !row.sentence.empty();
      found += " " + markdown_text(i < row.cells.size() ? row.cells[i].shown() : sentence ? row.sentence : "") + " |";
    }
    found += "\n";
  }
  return found;
}

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

std::string legend(const std::vector<Table>& tables, int width, bool markdown) {
  std::set<std::string> told;
  std::vector<const Column*> columns;
  for (const Table& table : tables)
    for (const Column& column : table.columns)
      if (!column.meaning.empty() && told.insert(column.title + column.meaning).second) columns.push_back(&column);
  int widest = 0;
  for (const Column* column : columns) widest = std::max(widest, display_width(column->title));
  std::string found;
  for (const Column* column : columns) {
    std::string head = pad(column->title, widest + kGap, false);
    if (markdown) {
      found += "- **" + column->title + "**: " + column->meaning + "\n";
      continue;
    }
    for (const std::string& part : wrap(column->meaning, std::max(width - widest - kGap, 40))) {
      found += trimmed(head + part);
      head = std::string(widest + kGap, ' ');
    }
  }
  return found;
}

}  // namespace foretoken
