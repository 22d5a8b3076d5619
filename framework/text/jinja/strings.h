// Escapes of string literals, and Python's two ways of formatting. This module must not know statements or filters.
#pragma once
#include <string>
#include <string_view>

#include "framework/text/jinja/value.h"

namespace foretoken::jinja {

// The text of a literal without its quotes; a broken escape is an Error.
std::string unescaped(std::string_view literal);
// format % arguments: one value, a tuple of them, or a dict.
std::string percent_formatted(Run& run, const std::string& format, const Value& arguments);
// format.format(...).
std::string brace_formatted(Run& run, const std::string& format, const Arguments& arguments);
// Filled up with spaces (or `fill`) to `width` code points. `align` is '<', '>', '^', or 'c' for str.center(),
// which puts an odd space on the left where the width is odd.
std::string aligned(Run& run, const std::string& text, std::int64_t width, char align, char32_t fill = ' ');

}  // namespace foretoken::jinja
