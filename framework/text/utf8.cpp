#include "framework/text/utf8.h"

namespace foretoken {

Utf8Step step_utf8(std::string_view text, std::size_t at) {
  using Kind = Utf8Step::Kind;
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned lead = byte(at);
  if (lead < 0x80) return {Kind::whole, 1, lead};
  if (lead < 0xc2 || lead > 0xf4) return {Kind::broken, 1, 0};
  const int length = lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
  // The range of the second byte is narrower where the character would be overlong, a surrogate, or above U+10FFFF.
  unsigned low = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
  unsigned high = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;
  char32_t point = lead & (0xff >> (length + 1));
  for (int i = 1; i < length; ++i) {
    if (at + i >= text.size()) return {Kind::unfinished, i, 0};
    const unsigned c = byte(at + i);
    if (c < low || c > high) return {Kind::broken, i, 0};
    point = point << 6 | (c & 0x3f);
    low = 0x80;
    high = 0xbf;
  }
  return {Kind::whole, length, point};
}

std::string replace_broken_utf8(std::string_view bytes, std::size_t* held) {
  std::string text;
  text.reserve(bytes.size());
  if (held) *held = 0;
  for (std::size_t at = 0; at < bytes.size();) {
    const Utf8Step step = step_utf8(bytes, at);
    if (step.kind == Utf8Step::Kind::whole) {
      text.append(bytes, at, step.length);
    } else if (step.kind == Utf8Step::Kind::unfinished && held) {
      *held = std::size_t(step.length);
    } else {
      text += "\xef\xbf\xbd";
    }
    at += step.length;
  }
  return text;
}

void append_utf8(std::string& text, char32_t p) {
  const auto push = [&](char32_t c) { text.push_back(char(c)); };
  const auto rest = [&](int bits) { push(0x80 | (p >> bits & 0x3f)); };
  if (p < 0x80) return push(p);
  if (p < 0x800) return push(0xc0 | p >> 6), rest(0);
  if (p < 0x10000) return push(0xe0 | p >> 12), rest(6), rest(0);
  push(0xf0 | p >> 18), rest(12), rest(6), rest(0);
}

}  // namespace foretoken
