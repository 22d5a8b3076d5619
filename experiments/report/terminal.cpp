#include "experiments/report/terminal.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>

#include <sys/ioctl.h>
#include <unistd.h>

namespace foretoken {
namespace {

struct CodePoint {
  std::uint32_t value;
  int bytes;
  bool valid;
};

struct Range {
  std::uint32_t first, last;
};

template <std::size_t n> bool within(const Range (&ranges)[n], std::uint32_t c) {
  return std::ranges::any_of(ranges, [c](const Range& range) { return range.first <= c && c <= range.last; });
}

// The code point at an index; a byte that is not UTF-8 counts as one.
CodePoint code_point(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) { return std::uint32_t(static_cast<unsigned char>(text[i])); };
  const std::uint32_t lead = byte(at);
  if (lead < 0x80) return {lead, 1, true};
  const int bytes = lead >> 5 == 6 ? 2 : lead >> 4 == 14 ? 3 : lead >> 3 == 30 ? 4 : 1;
  if (bytes == 1 || at + bytes > text.size()) return {lead, 1, false};
  std::uint32_t value = lead & (0x7Fu >> bytes);
  for (int i = 1; i < bytes; ++i) {
    if (byte(at + i) >> 6 != 2) return {lead, 1, false};
    value = value << 6 | (byte(at + i) & 63);
  }
  constexpr std::uint32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};  // a smaller code point is an overlong encoding
  if (value < kLeast[bytes] || value > 0x10FFFF || (value >= 0xD800 && value < 0xE000)) return {lead, 1, false};
  return {value, bytes, true};
}

int width_of(std::uint32_t c) {
  static constexpr Range kNone[] = {
      {0x300, 0x36F}, {0x200B, 0x200F}, {0x20D0, 0x20FF}, {0xFE00, 0xFE0F}, {0xFE20, 0xFE2F}};
  static constexpr Range kWide[] = {{0x1100, 0x115F},   {0x2E80, 0xA4CF},  {0xAC00, 0xD7A3}, {0xF900, 0xFAFF},
                                    {0xFE30, 0xFE6F},   {0xFF00, 0xFF60},  {0xFFE0, 0xFFE6}, {0x1F300, 0x1F64F},
                                    {0x1F900, 0x1F9FF}, {0x20000, 0x3FFFD}};
  return within(kNone, c) ? 0 : within(kWide, c) ? 2 : 1;
}

// C0, delete and C1; line and paragraph separators; embeddings, overrides and isolates of direction.
bool is_control(std::uint32_t c) {
  static constexpr Range kControl[] = {{0, 0x1F}, {0x7F, 0x9F}, {0x2028, 0x202E}, {0x2066, 0x2069}};
  return within(kControl, c);
}

}  // namespace

std::string printable(std::string_view text, std::string_view kept) {
  std::string shown;
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint c = code_point(text, at);
    const std::string_view bytes = text.substr(at, c.bytes);
    at += c.bytes;
    char escaped[16];
    if (!c.valid)
      std::snprintf(escaped, sizeof escaped, "\\x%02x", c.value);
    else if (is_control(c.value) && kept.find(bytes) == std::string_view::npos)
      std::snprintf(escaped, sizeof escaped, "\\u%04x", c.value);
    else {
      shown += bytes;
      continue;
    }
    shown += escaped;
  }
  return shown;
}

std::string one_line(std::string text) {
  std::ranges::replace_if(text, [](char c) { return c == '\n' || c == '\r' || c == '\t'; }, ' ');
  return printable(text);
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

}  // namespace foretoken
