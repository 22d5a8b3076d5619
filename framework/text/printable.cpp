#include "framework/text/printable.h"

#include <cstdio>

#include "framework/text/utf8.h"

namespace foretoken {
namespace {

// C0, delete and C1; line and paragraph separators; embeddings, overrides and isolates of direction.
bool is_control(char32_t c) {
  return c <= 0x1F || (c >= 0x7F && c <= 0x9F) || (c >= 0x2028 && c <= 0x202E) || (c >= 0x2066 && c <= 0x2069);
}

std::string escaped(const char* form, unsigned value) {
  char text[16];
  std::snprintf(text, sizeof text, form, value);
  return text;
}

}  // namespace

std::string printable(std::string_view text, std::string_view kept) {
  std::string shown;
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Step step = step_utf8(text, at);
    const std::string_view bytes = text.substr(at, std::size_t(step.length));
    at += bytes.size();
    if (step.kind != Utf8Step::Kind::whole)
      for (const char byte : bytes) shown += escaped("\\x%02x", static_cast<unsigned char>(byte));
    else if (is_control(step.point) && kept.find(bytes) == std::string_view::npos)
      shown += escaped("\\u%04x", unsigned(step.point));
    else
      shown += bytes;
  }
  return shown;
}

}  // namespace foretoken
