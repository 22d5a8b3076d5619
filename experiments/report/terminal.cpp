#include "experiments/report/terminal.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>

#include <sys/ioctl.h>
#include <unistd.h>

#include "framework/text/utf8.h"

namespace foretoken {
namespace {

struct Range {
  std::uint32_t first, last;
};

template <std::size_t n> bool within(const Range (&ranges)[n], std::uint32_t c) {
  return std::ranges::any_of(ranges, [c](const Range& range) { return range.first <= c && c <= range.last; });
}

struct CodePoint {
  char32_t value;
  int bytes;
};

// The code point at an index; a byte that is not UTF-8 counts as one.
CodePoint code_point(std::string_view text, std::size_t at) {
  const Utf8Step step = step_utf8(text, at);
  if (step.kind == Utf8Step::Kind::whole) return {step.point, step.length};
  return {static_cast<unsigned char>(text[at]), 1};
}

int width_of(char32_t c) {
  static constexpr Range kNone[] = {
      {0x300, 0x36F}, {0x200B, 0x200F}, {0x20D0, 0x20FF}, {0xFE00, 0xFE0F}, {0xFE20, 0xFE2F}};
  static constexpr Range kWide[] = {{0x1100, 0x115F},   {0x2E80, 0xA4CF},  {0xAC00, 0xD7A3}, {0xF900, 0xFAFF},
                                    {0xFE30, 0xFE6F},   {0xFF00, 0xFF60},  {0xFFE0, 0xFFE6}, {0x1F300, 0x1F64F},
                                    {0x1F900, 0x1F9FF}, {0x20000, 0x3FFFD}};
  return within(kNone, c) ? 0 : within(kWide, c) ? 2 : 1;
}

}  // namespace

std::string one_line(std::string text) {
  std::ranges::replace_if(text, [](char c) { return c == '\n' || c == '\r' || c == '\t'; }, ' ');
  return printable(text);
}

std::string replaced(std::string_view text, const std::map<char, std::string_view>& by) {
  std::string found;
  for (const char& c : text) {
    const auto known = by.find(c);
    found += known == by.end() ? std::string_view(&c, 1) : known->second;
  }
  return found;
}

int display_width(const std::string& text) {
  int width = 0;
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint c = code_point(text, at);
    width += width_of(c.value);
    at += c.bytes;
  }
  return width;
}

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
  return width > 0 ? kept + "…" : kept;
}

int terminal_columns(int descriptor) {
  winsize size{};
  return ioctl(descriptor, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

void print(const std::string& text) {
  const std::string shown = isatty(STDOUT_FILENO) ? printable(text, "\n\t") : text;
  std::fwrite(shown.data(), 1, shown.size(), stdout);
  if (!shown.empty() && shown.back() != '\n') std::fputc('\n', stdout);
}

std::string shell_word(const std::string& word) {
  if (!word.empty() &&
      word.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=./,:@%") ==
          std::string::npos)
    return word;
  return "'" + replaced(word, {{'\'', "'\\''"}}) + "'";
}

}  // namespace foretoken
