// Strings as Python has them: sequences of code points, and what it says of characters. Every string here is valid
// UTF-8. This module must not know values.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace foretoken::jinja {

std::u32string points_of(std::string_view text);
std::string utf8_of(std::u32string_view points);
std::int64_t count_points(std::string_view text);
// Bytes of the code point that begins at text[at].
std::size_t length_of_point(std::string_view text, std::size_t at);

bool is_space(char32_t c);
bool is_printable(char32_t c);
bool is_letter(char32_t c);
bool is_decimal(char32_t c);  // Python's isdecimal()
bool is_digit(char32_t c);    // Python's isdigit(): superscripts too
bool is_upper(char32_t c);
bool is_lower(char32_t c);
bool is_title(char32_t c);
bool is_word(char32_t c);  // \w of a regular expression

std::string upper(std::string_view text);
std::string lower(std::string_view text);
std::string capitalized(std::string_view text);
std::string titled(std::string_view text);   // str.title()
std::string swapped(std::string_view text);  // str.swapcase()

// Without the characters of `chars` at its ends; of white space where there are none.
std::string_view stripped(std::string_view text, const std::u32string* chars, bool left, bool right);
// str.splitlines(), with the ends of lines or without.
std::vector<std::string> lines_of(std::string_view text, bool keep);

}  // namespace foretoken::jinja
