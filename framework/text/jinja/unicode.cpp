#include "framework/text/jinja/unicode.h"

#include <algorithm>
#include <array>

#include <utf8proc.h>

#include "framework/text/utf8.h"

namespace foretoken::jinja {
namespace {

// The characters whose upper or title case is several characters (SpecialCasing.txt of Unicode, those without a
// condition).
struct Casing {
  char32_t point;
  const char32_t *upper, *title;
};
constexpr Casing kCasings[] = {
    {0xdf, U"\x53\x53", U"\x53\x73"},
    {0x149, U"\x2bc\x4e", U"\x2bc\x4e"},
    {0x1f0, U"\x4a\x30c", U"\x4a\x30c"},
    {0x390, U"\x399\x308\x301", U"\x399\x308\x301"},
    {0x3b0, U"\x3a5\x308\x301", U"\x3a5\x308\x301"},
    {0x587, U"\x535\x552", U"\x535\x582"},
    {0x1e96, U"\x48\x331", U"\x48\x331"},
    {0x1e97, U"\x54\x308", U"\x54\x308"},
    {0x1e98, U"\x57\x30a", U"\x57\x30a"},
    {0x1e99, U"\x59\x30a", U"\x59\x30a"},
    {0x1e9a, U"\x41\x2be", U"\x41\x2be"},
    {0x1f50, U"\x3a5\x313", U"\x3a5\x313"},
    {0x1f52, U"\x3a5\x313\x300", U"\x3a5\x313\x300"},
    {0x1f54, U"\x3a5\x313\x301", U"\x3a5\x313\x301"},
    {0x1f56, U"\x3a5\x313\x342", U"\x3a5\x313\x342"},
    {0x1f80, U"\x1f08\x399", U"\x1f88"},
    {0x1f81, U"\x1f09\x399", U"\x1f89"},
    {0x1f82, U"\x1f0a\x399", U"\x1f8a"},
    {0x1f83, U"\x1f0b\x399", U"\x1f8b"},
    {0x1f84, U"\x1f0c\x399", U"\x1f8c"},
    {0x1f85, U"\x1f0d\x399", U"\x1f8d"},
    {0x1f86, U"\x1f0e\x399", U"\x1f8e"},
    {0x1f87, U"\x1f0f\x399", U"\x1f8f"},
    {0x1f88, U"\x1f08\x399", U"\x1f88"},
    {0x1f89, U"\x1f09\x399", U"\x1f89"},
    {0x1f8a, U"\x1f0a\x399", U"\x1f8a"},
    {0x1f8b, U"\x1f0b\x399", U"\x1f8b"},
    {0x1f8c, U"\x1f0c\x399", U"\x1f8c"},
    {0x1f8d, U"\x1f0d\x399", U"\x1f8d"},
    {0x1f8e, U"\x1f0e\x399", U"\x1f8e"},
    {0x1f8f, U"\x1f0f\x399", U"\x1f8f"},
    {0x1f90, U"\x1f28\x399", U"\x1f98"},
    {0x1f91, U"\x1f29\x399", U"\x1f99"},
    {0x1f92, U"\x1f2a\x399", U"\x1f9a"},
    {0x1f93, U"\x1f2b\x399", U"\x1f9b"},
    {0x1f94, U"\x1f2c\x399", U"\x1f9c"},
    {0x1f95, U"\x1f2d\x399", U"\x1f9d"},
    {0x1f96, U"\x1f2e\x399", U"\x1f9e"},
    {0x1f97, U"\x1f2f\x399", U"\x1f9f"},
    {0x1f98, U"\x1f28\x399", U"\x1f98"},
    {0x1f99, U"\x1f29\x399", U"\x1f99"},
    {0x1f9a, U"\x1f2a\x399", U"\x1f9a"},
    {0x1f9b, U"\x1f2b\x399", U"\x1f9b"},
    {0x1f9c, U"\x1f2c\x399", U"\x1f9c"},
    {0x1f9d, U"\x1f2d\x399", U"\x1f9d"},
    {0x1f9e, U"\x1f2e\x399", U"\x1f9e"},
    {0x1f9f, U"\x1f2f\x399", U"\x1f9f"},
    {0x1fa0, U"\x1f68\x399", U"\x1fa8"},
    {0x1fa1, U"\x1f69\x399", U"\x1fa9"},
    {0x1fa2, U"\x1f6a\x399", U"\x1faa"},
    {0x1fa3, U"\x1f6b\x399", U"\x1fab"},
    {0x1fa4, U"\x1f6c\x399", U"\x1fac"},
    {0x1fa5, U"\x1f6d\x399", U"\x1fad"},
    {0x1fa6, U"\x1f6e\x399", U"\x1fae"},
    {0x1fa7, U"\x1f6f\x399", U"\x1faf"},
    {0x1fa8, U"\x1f68\x399", U"\x1fa8"},
    {0x1fa9, U"\x1f69\x399", U"\x1fa9"},
    {0x1faa, U"\x1f6a\x399", U"\x1faa"},
    {0x1fab, U"\x1f6b\x399", U"\x1fab"},
    {0x1fac, U"\x1f6c\x399", U"\x1fac"},
    {0x1fad, U"\x1f6d\x399", U"\x1fad"},
    {0x1fae, U"\x1f6e\x399", U"\x1fae"},
    {0x1faf, U"\x1f6f\x399", U"\x1faf"},
    {0x1fb2, U"\x1fba\x399", U"\x1fba\x345"},
    {0x1fb3, U"\x391\x399", U"\x1fbc"},
    {0x1fb4, U"\x386\x399", U"\x386\x345"},
    {0x1fb6, U"\x391\x342", U"\x391\x342"},
    {0x1fb7, U"\x391\x342\x399", U"\x391\x342\x345"},
    {0x1fbc, U"\x391\x399", U"\x1fbc"},
    {0x1fc2, U"\x1fca\x399", U"\x1fca\x345"},
    {0x1fc3, U"\x397\x399", U"\x1fcc"},
    {0x1fc4, U"\x389\x399", U"\x389\x345"},
    {0x1fc6, U"\x397\x342", U"\x397\x342"},
    {0x1fc7, U"\x397\x342\x399", U"\x397\x342\x345"},
    {0x1fcc, U"\x397\x399", U"\x1fcc"},
    {0x1fd2, U"\x399\x308\x300", U"\x399\x308\x300"},
    {0x1fd3, U"\x399\x308\x301", U"\x399\x308\x301"},
    {0x1fd6, U"\x399\x342", U"\x399\x342"},
    {0x1fd7, U"\x399\x308\x342", U"\x399\x308\x342"},
    {0x1fe2, U"\x3a5\x308\x300", U"\x3a5\x308\x300"},
    {0x1fe3, U"\x3a5\x308\x301", U"\x3a5\x308\x301"},
    {0x1fe4, U"\x3a1\x313", U"\x3a1\x313"},
    {0x1fe6, U"\x3a5\x342", U"\x3a5\x342"},
    {0x1fe7, U"\x3a5\x308\x342", U"\x3a5\x308\x342"},
    {0x1ff2, U"\x1ffa\x399", U"\x1ffa\x345"},
    {0x1ff3, U"\x3a9\x399", U"\x1ffc"},
    {0x1ff4, U"\x38f\x399", U"\x38f\x345"},
    {0x1ff6, U"\x3a9\x342", U"\x3a9\x342"},
    {0x1ff7, U"\x3a9\x342\x399", U"\x3a9\x342\x345"},
    {0x1ffc, U"\x3a9\x399", U"\x1ffc"},
    {0xfb00, U"\x46\x46", U"\x46\x66"},
    {0xfb01, U"\x46\x49", U"\x46\x69"},
    {0xfb02, U"\x46\x4c", U"\x46\x6c"},
    {0xfb03, U"\x46\x46\x49", U"\x46\x66\x69"},
    {0xfb04, U"\x46\x46\x4c", U"\x46\x66\x6c"},
    {0xfb05, U"\x53\x54", U"\x53\x74"},
    {0xfb06, U"\x53\x54", U"\x53\x74"},
    {0xfb13, U"\x544\x546", U"\x544\x576"},
    {0xfb14, U"\x544\x535", U"\x544\x565"},
    {0xfb15, U"\x544\x53b", U"\x544\x56b"},
    {0xfb16, U"\x54e\x546", U"\x54e\x576"},
    {0xfb17, U"\x544\x53d", U"\x544\x56d"},
};

const Casing* casing_of(char32_t c) {
  const auto* it = std::ranges::lower_bound(kCasings, c, {}, &Casing::point);
  return it != std::end(kCasings) && it->point == c ? it : nullptr;
}

utf8proc_category_t category(char32_t c) { return utf8proc_category(utf8proc_int32_t(c)); }

void append_upper(std::u32string& out, char32_t c) {
  if (const Casing* casing = casing_of(c))
    out += casing->upper;
  else
    out += char32_t(utf8proc_toupper(utf8proc_int32_t(c)));
}

void append_title(std::u32string& out, char32_t c) {
  if (const Casing* casing = casing_of(c))
    out += casing->title;
  else
    out += char32_t(utf8proc_totitle(utf8proc_int32_t(c)));
}

bool is_cased(char32_t c) { return is_upper(c) || is_lower(c) || is_title(c); }

// What case rules look through: marks, modifiers and the punctuation of words.
bool is_ignorable(char32_t c) {
  const auto kind = category(c);
  return kind == UTF8PROC_CATEGORY_MN || kind == UTF8PROC_CATEGORY_ME || kind == UTF8PROC_CATEGORY_CF ||
         kind == UTF8PROC_CATEGORY_LM || kind == UTF8PROC_CATEGORY_SK || c == '\'' || c == '.' || c == ':' ||
         c == 0xb7 || c == 0x2018 || c == 0x2019 || c == 0x2024 || c == 0x2027;
}

// A sigma at the end of a word has a form of its own.
bool ends_word(std::u32string_view text, std::size_t at) {
  std::size_t before = at, after = at + 1;
  while (before > 0 && is_ignorable(text[before - 1])) --before;
  while (after < text.size() && is_ignorable(text[after])) ++after;
  return before > 0 && is_cased(text[before - 1]) && !(after < text.size() && is_cased(text[after]));
}

void append_lower(std::u32string& out, std::u32string_view text, std::size_t at) {
  const char32_t c = text[at];
  if (c == 0x3a3)
    out += ends_word(text, at) ? char32_t(0x3c2) : char32_t(0x3c3);
  else if (c == 0x130)
    out += U"i\u0307";
  else
    out += char32_t(utf8proc_tolower(utf8proc_int32_t(c)));
}

}  // namespace

std::u32string points_of(std::string_view text) {
  std::u32string points;
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Step step = step_utf8(text, at);
    points += step.kind == Utf8Step::Kind::whole ? step.point : char32_t(0xfffd);
    at += std::size_t(step.length);
  }
  return points;
}

std::string utf8_of(std::u32string_view points) {
  std::string text;
  for (const char32_t c : points) append_utf8(text, c);
  return text;
}

std::int64_t count_points(std::string_view text) {
  return std::ranges::count_if(text, [](char c) { return (c & 0xc0) != 0x80; });
}

std::size_t length_of_point(std::string_view text, std::size_t at) { return std::size_t(step_utf8(text, at).length); }

bool is_space(char32_t c) {
  return (c >= 9 && c <= 13) || (c >= 0x1c && c <= 0x20) || c == 0x85 || c == 0xa0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

bool is_printable(char32_t c) {
  if (c == ' ') return true;
  const auto kind = category(c);
  return kind != UTF8PROC_CATEGORY_CN && kind != UTF8PROC_CATEGORY_CC && kind != UTF8PROC_CATEGORY_CF &&
         kind != UTF8PROC_CATEGORY_CS && kind != UTF8PROC_CATEGORY_CO && kind != UTF8PROC_CATEGORY_ZL &&
         kind != UTF8PROC_CATEGORY_ZP && kind != UTF8PROC_CATEGORY_ZS;
}

bool is_letter(char32_t c) {
  const auto kind = category(c);
  return kind == UTF8PROC_CATEGORY_LU || kind == UTF8PROC_CATEGORY_LL || kind == UTF8PROC_CATEGORY_LT ||
         kind == UTF8PROC_CATEGORY_LM || kind == UTF8PROC_CATEGORY_LO;
}

bool is_decimal(char32_t c) { return category(c) == UTF8PROC_CATEGORY_ND; }

bool is_digit(char32_t c) {
  static constexpr std::pair<char32_t, char32_t> kOthers[] = {
      {0xb2, 0xb3},     {0xb9, 0xb9},       {0x1369, 0x1371},   {0x19da, 0x19da},   {0x2070, 0x2070},
      {0x2074, 0x2079}, {0x2080, 0x2089},   {0x2460, 0x2468},   {0x2474, 0x247c},   {0x2488, 0x2490},
      {0x24ea, 0x24ea}, {0x24f5, 0x24fd},   {0x24ff, 0x24ff},   {0x2776, 0x277e},   {0x2780, 0x2788},
      {0x278a, 0x2792}, {0x10a40, 0x10a43}, {0x10e60, 0x10e68}, {0x11052, 0x1105a}, {0x1f100, 0x1f10a}};
  return is_decimal(c) ||
         std::ranges::any_of(kOthers, [&](const auto& range) { return c >= range.first && c <= range.second; });
}

bool is_upper(char32_t c) {
  return category(c) == UTF8PROC_CATEGORY_LU || (c >= 0x2160 && c <= 0x216f) || (c >= 0x24b6 && c <= 0x24cf);
}
bool is_lower(char32_t c) {
  return category(c) == UTF8PROC_CATEGORY_LL || c == 0xaa || c == 0xba || (c >= 0x2170 && c <= 0x217f) ||
         (c >= 0x24d0 && c <= 0x24e9);
}
bool is_title(char32_t c) { return category(c) == UTF8PROC_CATEGORY_LT; }
bool is_word(char32_t c) {
  const auto kind = category(c);
  return c == '_' || is_letter(c) || is_digit(c) || kind == UTF8PROC_CATEGORY_NL || kind == UTF8PROC_CATEGORY_NO;
}

std::string upper(std::string_view text) {
  std::u32string out;
  for (const char32_t c : points_of(text)) append_upper(out, c);
  return utf8_of(out);
}

std::string lower(std::string_view text) {
  const std::u32string points = points_of(text);
  std::u32string out;
  for (std::size_t i = 0; i < points.size(); ++i) append_lower(out, points, i);
  return utf8_of(out);
}

std::string capitalized(std::string_view text) {
  const std::u32string points = points_of(text);
  std::u32string out;
  for (std::size_t i = 0; i < points.size(); ++i)
    if (i == 0)
      append_title(out, points[i]);
    else
      append_lower(out, points, i);
  return utf8_of(out);
}

std::string titled(std::string_view text) {
  const std::u32string points = points_of(text);
  std::u32string out;
  bool inside = false;
  for (std::size_t i = 0; i < points.size(); ++i) {
    if (inside)
      append_lower(out, points, i);
    else
      append_title(out, points[i]);
    inside = is_cased(points[i]);
  }
  return utf8_of(out);
}

std::string swapped(std::string_view text) {
  const std::u32string points = points_of(text);
  std::u32string out;
  for (std::size_t i = 0; i < points.size(); ++i)
    if (is_upper(points[i]))
      append_lower(out, points, i);
    else if (is_lower(points[i]))
      append_upper(out, points[i]);
    else
      out += points[i];
  return utf8_of(out);
}

std::string_view stripped(std::string_view text, const std::u32string* chars, bool left, bool right) {
  const auto goes = [&](char32_t c) { return chars ? chars->find(c) != chars->npos : is_space(c); };
  std::size_t begin = 0, end = text.size();
  while (left && begin < end) {
    const Utf8Step step = step_utf8(text, begin);
    if (!goes(step.point)) break;
    begin += std::size_t(step.length);
  }
  while (right && end > begin) {
    std::size_t at = end - 1;
    while (at > begin && (text[at] & 0xc0) == 0x80) --at;
    if (!goes(step_utf8(text, at).point)) break;
    end = at;
  }
  return text.substr(begin, end - begin);
}

std::vector<std::string> lines_of(std::string_view text, bool keep) {
  std::vector<std::string> lines;
  for (std::size_t begin = 0, at = 0; at < text.size();) {
    const Utf8Step step = step_utf8(text, at);
    const char32_t c = step.point;
    std::size_t after = at + std::size_t(step.length);
    const bool ends = (c >= 10 && c <= 13) || (c >= 0x1c && c <= 0x1e) || c == 0x85 || c == 0x2028 || c == 0x2029;
    if (c == '\r' && after < text.size() && text[after] == '\n') ++after;
    if (ends || after >= text.size()) {
      const std::size_t end = keep || !ends ? after : at;
      lines.emplace_back(text.substr(begin, end - begin));
      begin = after;
    }
    at = after;
  }
  return lines;
}

}  // namespace foretoken::jinja
