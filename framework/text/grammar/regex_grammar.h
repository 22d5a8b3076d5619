// Regular expressions as grammars: literals, ".", classes with ranges and negation, \d \w \s and their complements,
// \n \r \t \f \v, \xHH, \uHHHH, groups, "|", and * + ? {m} {m,} {m,n}; ^ and $ at the ends of the alternatives. Back
// references, assertions and the like are refused. This module must not know JSON or tokens.
#pragma once
#include <functional>
#include <span>
#include <string>

#include "framework/text/grammar/grammar.h"

namespace foretoken {

struct RegexUse {
  // Whether the whole text must match; else a part of it suffices, as of a pattern in a JSON schema.
  bool whole = true;
  // How a character of these is written; default: as UTF-8.
  std::function<Grammar::Part(std::span<const CodePoints>)> character{};
};

// The language of `pattern`, UTF-8. An Error names what is not understood, and where.
Grammar::Part regex_part(Grammar& grammar, const std::string& pattern, const RegexUse& use = {});

}  // namespace foretoken
