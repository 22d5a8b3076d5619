// The tokens of a template, by jinja2's rules with trim_blocks and lstrip_blocks. This module must not know statements.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "framework/text/jinja/value.h"

namespace foretoken::jinja {

struct Lexeme {
  enum class Type { data, variable_begin, variable_end, block_begin, block_end, name, string, number, sign, end };
  Type type;
  int line;
  std::string text;  // of data and strings without escapes; of names and signs
  Value number;
};

// "WHERE, line N: MESSAGE".
[[noreturn]] void fail_at(const std::string& where, int line, const std::string& message);
// The last one is of type `end`.
std::vector<Lexeme> lexemes_of(std::string_view source, const std::string& where);

}  // namespace foretoken::jinja
