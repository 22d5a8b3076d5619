// What a person may be shown: text without control characters, its width, lines that fit. Knows nothing of what is
// shown.
#pragma once
#include <string>
#include <string_view>

#include "framework/text/printable.h"

namespace foretoken {

// printable() in one line: line breaks and tabs become blanks.
std::string one_line(std::string text);

// Columns that a terminal needs for a UTF-8 text: code points, less combining ones, wide ones twice.
int display_width(const std::string& text);
// The first columns of a text that fit, with an ellipsis where something had to go.
std::string cut(const std::string& text, int width);

// Columns of the terminal behind a file descriptor; 0 where there is none or it does not say.
int terminal_columns(int descriptor);

// Text for standard output, ended by a line break; a terminal gets it printable, with its line breaks and tabs.
void print(const std::string& text);

}  // namespace foretoken
