#include "framework/text/grammar/json_text.h"

#include <algorithm>

#include "framework/text/grammar/regex_grammar.h"
#include "kernels/error.h"

namespace foretoken {
namespace {

using Part = Grammar::Part;
constexpr int kUnbounded = Grammar::kUnbounded;
constexpr int kMostIndent = 64;  // spaces behind a line break

struct Escape {
  char32_t point;
  const char* text;
};
constexpr Escape kEscapes[] = {{'"', "\\\""}, {'\\', "\\\\"}, {'\b', "\\b"}, {'\f', "\\f"},
                               {'\n', "\\n"}, {'\r', "\\r"},  {'\t', "\\t"}};

// What a string has as it is, as a complement.
const std::vector<CodePoints> kEscaped{{0, 0x1f}, {'"', '"'}, {'\\', '\\'}};

}  // namespace

JsonText::JsonText(Grammar& g) : grammar_(g) {
  value_ = g.rule();
  const Part blank = g.text(" ");
  space_ = g.optional(g.choice({blank, g.sequence({g.text("\n"), g.repeat(blank, 0, kMostIndent)})}));
  comma_ = g.sequence({g.text(","), space_});
  const CodePoints hex[] = {{'0', '9'}, {'A', 'F'}, {'a', 'f'}},
                   below_d[] = {{'0', '9'}, {'A', 'C'}, {'E', 'F'}, {'a', 'c'}, {'e', 'f'}};
  const CodePoints d[] = {{'D', 'D'}, {'d', 'd'}}, low[] = {{'0', '7'}},
                   simple[] = {{'"', '"'}, {'/', '/'}, {'\\', '\\'}, {'b', 'b'},
                               {'f', 'f'}, {'n', 'n'}, {'r', 'r'},   {'t', 't'}};
  const Part h = g.character(hex);
  // An escape of a surrogate alone is no character, so there is none.
  const Part unicode = g.sequence(
      {g.text("u"), g.choice({g.sequence({g.character(below_d), h}), g.sequence({g.character(d), g.character(low)})}),
       h, h});
  character_ = g.choice(
      {g.character(complement(kEscaped)), g.sequence({g.text("\\"), g.choice({g.character(simple), unicode})})});
  boolean_ = g.choice({g.text("true"), g.text("false")});
  const CodePoints sign[] = {{'+', '+'}, {'-', '-'}}, exponent[] = {{'E', 'E'}, {'e', 'e'}}, digit[] = {{'0', '9'}};
  const Part any_digit = g.character(digit);
  number_ = g.sequence(
      {g.optional(g.text("-")), natural(0, kLargest), g.optional(g.sequence({g.text("."), g.repeat(any_digit, 1, 18)})),
       g.optional(g.sequence({g.character(exponent), g.optional(g.character(sign)), g.repeat(any_digit, 1, 2)}))});
  object_ = g.rule(), array_ = g.rule();
  g.define(object_, list(g.text("{"), member(string(), value_), g.text("}"), 0, kUnbounded));
  g.define(array_, list(g.text("["), value_, g.text("]"), 0, kUnbounded));
  g.define(value_, g.choice({object_, array_, string(), number_, boolean_, g.text("null")}));
}

Part JsonText::written(std::span<const CodePoints> ranges) {
  const std::vector<CodePoints> wanted(ranges.begin(), ranges.end());
  std::vector<CodePoints> others = complement(wanted);
  others.insert(others.end(), kEscaped.begin(), kEscaped.end());
  std::vector<Part> ways{grammar_.character(complement(others))};
  for (const Escape& e : kEscapes)
    if (std::ranges::any_of(wanted, [&](const CodePoints& r) { return r.first <= e.point && e.point <= r.last; }))
      ways.push_back(grammar_.text(e.text));
  return grammar_.choice(std::move(ways));
}

Part JsonText::string(int least, int most) {
  const Part quote = grammar_.text("\"");
  return grammar_.sequence({quote, grammar_.repeat(character_, least, most), quote});
}

Part JsonText::string_of(const std::string& pattern, bool whole) {
  const Part quote = grammar_.text("\"");
  const Part inside = regex_part(
      grammar_, pattern, {.whole = whole, .character = [this](std::span<const CodePoints> r) { return written(r); }});
  return grammar_.sequence({quote, inside, quote});
}

Part JsonText::list(Part begin, Part each, Part end, int least, int most) {
  Grammar& g = grammar_;
  const Part item = g.rule();  // used twice: as a rule it is written once
  g.define(item, each);
  if (most == 0) return g.sequence({begin, space_, end});
  const Part more = g.repeat(g.sequence({comma_, item}), std::max(0, least - 1), most == kUnbounded ? most : most - 1);
  const Part items = g.sequence({item, more, space_});
  return g.sequence({begin, space_, least == 0 ? g.optional(items) : items, end});
}

Part JsonText::member(Part key, Part value) { return grammar_.sequence({key, grammar_.text(":"), space_, value}); }

Part JsonText::digits(int count) {
  const CodePoints digit[] = {{'0', '9'}};
  return grammar_.repeat(grammar_.character(digit), count, count);
}

// Strings of digits of one length, from `least` to `most`.
Part JsonText::between(const std::string& least, const std::string& most) {
  Grammar& g = grammar_;
  if (least == most) return g.text(least);
  const std::string rest_low = least.substr(1), rest_high = most.substr(1);
  const auto first = [&](char from, char to) {
    const CodePoints range[] = {{char32_t(from), char32_t(to)}};
    return g.character(range);
  };
  if (least[0] == most[0]) return g.sequence({first(least[0], least[0]), between(rest_low, rest_high)});
  const bool all_low = rest_low.find_first_not_of('0') == std::string::npos,
             all_high = rest_high.find_first_not_of('9') == std::string::npos;
  const char low = all_low ? least[0] : char(least[0] + 1), high = all_high ? most[0] : char(most[0] - 1);
  std::vector<Part> ways;
  if (!all_low)
    ways.push_back(g.sequence({first(least[0], least[0]), between(rest_low, std::string(rest_low.size(), '9'))}));
  if (low <= high) ways.push_back(g.sequence({first(low, high), digits(int(rest_low.size()))}));
  if (!all_high)
    ways.push_back(g.sequence({first(most[0], most[0]), between(std::string(rest_high.size(), '0'), rest_high)}));
  return g.choice(std::move(ways));
}

// 0 <= least <= most.
Part JsonText::natural(std::int64_t least, std::int64_t most) {
  std::vector<Part> ways;
  for (std::int64_t first = 0, last = 9; first <= most; first = last + 1, last = last * 10 + 9) {
    const std::int64_t low = std::max(first, least), high = std::min(last, most);
    if (low <= high) ways.push_back(between(std::to_string(low), std::to_string(high)));
    if (last >= kLargest) break;
  }
  return grammar_.choice(std::move(ways));
}

Part JsonText::integer(std::optional<std::int64_t> least, std::optional<std::int64_t> most) {
  const std::int64_t low = std::max(least.value_or(-kLargest), -kLargest),
                     high = std::min(most.value_or(kLargest), kLargest);
  if (low > high) throw Error("its minimum is above its maximum");
  std::vector<Part> ways;
  if (low < 0) ways.push_back(grammar_.sequence({grammar_.text("-"), natural(std::max<std::int64_t>(1, -high), -low)}));
  if (high >= 0) ways.push_back(natural(std::max<std::int64_t>(0, low), high));
  return grammar_.choice(std::move(ways));
}

}  // namespace foretoken
