// Text for a terminal and for a shell: without control characters, its width, lines that fit. This module must not know
// what is shown.
#pragma once
#include <map>
#include <string>
#include <string_view>

#include "framework/text/printable.h"

namespace foretoken {

// printable() in one line: line breaks and tabs become blanks.
std::string one_line(std::string text);

// With these characters replaced by texts.
std::string replaced(std::string_view text, const std::map<char, std::string_view>& by);

// Columns that a terminal needs for a UTF-8 text: code points, less combining ones, wide ones twice.
int display_width(const std::string& text);
// The first columns of a text that fit, with an ellipsis if it was cut.
std::string cut(const std::string& text, int width);

// Columns of the terminal of a file descriptor; 0 if there is none or its width is unknown.
int terminal_columns(int descriptor);

// Text for standard output, ended by a line break; a terminal gets it printable, with its line breaks and tabs.
void print(const std::string& text);

// Quoted where a shell would read it otherwise.
std::string shell_word(const std::string& word);

}  // namespace foretoken
