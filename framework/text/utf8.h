// Invalid and incomplete UTF-8. This module must not know where the bytes come from.
#pragma once
#include <string>
#include <string_view>

namespace foretoken {

// One step through UTF-8. It consumes `length` >= 1 bytes.
struct Utf8Step {
  enum class Kind { whole, broken, unfinished };
  Kind kind;
  int length;
  char32_t point;  // only where whole
};
// The step at text[at]. Invalid bytes are consumed in the longest pieces that could begin a character ("maximal
// subparts", Unicode 3.9 and WHATWG). `unfinished` is such a piece at the very end of the text.
Utf8Step step_utf8(std::string_view text, std::size_t at);

// Valid UTF-8: every invalid or incomplete piece becomes U+FFFD, as Python's bytes.decode(errors="replace") does.
// With `held` an incomplete piece at the end is omitted, and its length is stored there.
std::string replace_broken_utf8(std::string_view bytes, std::size_t* held = nullptr);

void append_utf8(std::string& text, char32_t point);

}  // namespace foretoken
