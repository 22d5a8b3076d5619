#include "framework/text/grammar/regex_grammar.h"

#include <algorithm>
#include <map>
#include <optional>

#include "framework/text/utf8.h"
#include "kernels/error.h"

namespace foretoken {
namespace {

using Part = Grammar::Part;
using Points = std::vector<CodePoints>;

constexpr int kMostRepeats = 10000, kMostDepth = 200;
constexpr std::size_t kMostBytes = 16384;

const Points kDigits{{'0', '9'}};
const Points kWords{{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
const Points kSpaces{{'\t', '\r'}, {' ', ' '}};
const Points kNewline{{'\n', '\n'}};

std::u32string points_of(const std::string& text) {
  if (text.size() > kMostBytes)
    throw Error("the regular expression has " + std::to_string(text.size()) + " bytes, and at most " +
                std::to_string(kMostBytes) + " are taken");
  std::u32string points;
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Step step = step_utf8(text, at);
    if (step.kind != Utf8Step::Kind::whole) throw Error("the regular expression is not valid UTF-8");
    points += step.point, at += std::size_t(step.length);
  }
  return points;
}

// Recursive descent: alternatives of sequences of repeated items.
class RegexParser {
 public:
  RegexParser(Grammar& grammar, const std::string& pattern, const RegexUse& use)
      : grammar_(grammar), pattern_(pattern), points_(points_of(pattern)), use_(use) {}

  Part parse() {
    const Part all = alternatives(0);
    if (!ended()) fail("has a ')' without a '('");
    return all;
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw Error("the regular expression '" + pattern_ + "' " + what + ", at character " + std::to_string(at_ + 1));
  }
  bool ended() const { return at_ == points_.size(); }
  char32_t peek() const { return ended() ? 0 : points_[at_]; }
  bool take(char32_t c) {
    if (ended() || points_[at_] != c) return false;
    ++at_;
    return true;
  }
  char32_t next() {
    if (ended()) fail("ends too early");
    return points_[at_++];
  }
  // Equal ones are one part.
  Part character(const Points& ranges) {
    std::u32string key;
    for (const CodePoints& r : ranges) key += {r.first, r.last};
    const auto [it, fresh] = characters_.try_emplace(key, 0);
    if (fresh) it->second = use_.character ? use_.character(ranges) : grammar_.character(ranges);
    return it->second;
  }
  Part anything() { return grammar_.repeat(character(complement({})), 0, Grammar::kUnbounded); }

  Part alternatives(int depth) {
    if (depth > kMostDepth) fail("has groups within more than " + std::to_string(kMostDepth) + " others");
    std::vector<Part> ways;
    do ways.push_back(sequence(depth));
    while (take('|'));
    return ways.size() == 1 ? ways[0] : grammar_.choice(std::move(ways));
  }

  Part sequence(int depth) {
    std::vector<Part> parts;
    bool from_begin = depth > 0 || use_.whole, to_end = from_begin;
    if (depth == 0 && take('^')) from_begin = true;
    while (!ended() && peek() != '|' && peek() != ')') {
      if (depth == 0 && peek() == '$') {
        ++at_, to_end = true;
        if (!ended() && peek() != '|') fail("has a '$' that is not at the end; write \\$ for the character");
        break;
      }
      parts.push_back(repeated(item(depth)));
    }
    if (!from_begin) parts.insert(parts.begin(), anything());
    if (!to_end) parts.push_back(anything());
    return grammar_.sequence(std::move(parts));
  }

  Part repeated(Part part) {
    for (bool first = true;; first = false) {
      int least = 0, most = Grammar::kUnbounded;
      if (take('?'))
        most = 1;
      else if (take('+'))
        least = 1;
      else if (peek() == '{')
        counts(least, most);
      else if (!take('*'))
        return part;
      if (!first) fail("repeats a repetition; put the inner one into a group");
      part = grammar_.repeat(part, least, most);
      if (take('?')) return part;  // the shortest match first: the same language
      if (peek() == '+') fail("has a possessive repetition, which is not understood");
    }
  }

  void counts(int& least, int& most) {
    ++at_;
    const std::optional<int> m = number();
    if (!m) fail("has a '{' that begins no count; write \\{ for the character");
    least = most = *m;
    if (take(',')) {
      const std::optional<int> n = number();
      most = n ? *n : Grammar::kUnbounded;
    }
    if (!take('}')) fail("has a count without its '}'");
    if (most != Grammar::kUnbounded && most < least) fail("has a count whose end is below its beginning");
  }

  std::optional<int> number() {
    if (peek() < '0' || peek() > '9') return std::nullopt;
    int n = 0;
    while (peek() >= '0' && peek() <= '9') {
      n = n * 10 + int(next() - '0');
      if (n > kMostRepeats) fail("has a count above " + std::to_string(kMostRepeats));
    }
    return n;
  }

  Part item(int depth) {
    const char32_t c = next();
    switch (c) {
      case '(': {
        if (take('?')) {
          if (!take(':')) fail("has a group that begins with (? and is not (?:...), which is not understood");
        }
        const Part inner = alternatives(depth + 1);
        if (!take(')')) fail("has a '(' without a ')'");
        return inner;
      }
      case '[':
        return character(char_class());
      case '.':
        return character(complement(kNewline));
      case '\\':
        return character(escape());
      case '*':
      case '+':
      case '?':
      case '{':
        fail("has nothing to repeat; write \\ before the character to mean it");
      case '^':
      case '$':
        fail("has a '^' or '$' within, where it can hold nothing; write \\ before the character to mean it");
      default:
        return character({{c, c}});
    }
  }

  Points char_class() {
    const bool negated = take('^');
    Points all;
    for (bool first = true; first || peek() != ']'; first = false) {
      if (ended()) fail("has a '[' without a ']'");
      const Points low = class_item();
      const bool range = peek() == '-' && at_ + 1 < points_.size() && points_[at_ + 1] != ']';
      if (!range) {
        all.insert(all.end(), low.begin(), low.end());
        continue;
      }
      ++at_;
      const Points high = class_item();
      if (low.size() != 1 || high.size() != 1 || low[0].first != low[0].last || high[0].first != high[0].last)
        fail("has a range whose end is a class");
      if (high[0].first < low[0].first) fail("has a range whose end is below its beginning");
      all.push_back({low[0].first, high[0].first});
    }
    ++at_;
    return negated ? complement(all) : complement(complement(all));  // twice: sorted, none double
  }

  Points class_item() {
    const char32_t c = next();
    if (c == '[' && (peek() == ':' || peek() == '.' || peek() == '='))
      fail("has a class by name, which is not understood");
    return c == '\\' ? escape() : Points{{c, c}};
  }

  char32_t hexadecimal(int digits) {
    char32_t value = 0;
    for (int i = 0; i < digits; ++i) {
      const char32_t c = next();
      if (c >= '0' && c <= '9')
        value = value * 16 + (c - '0');
      else if ((c | 32) >= 'a' && (c | 32) <= 'f')
        value = value * 16 + ((c | 32) - 'a' + 10);
      else
        fail("has an escape whose digits are not hexadecimal");
    }
    return value;
  }

  Points escape() {
    const char32_t c = next();
    switch (c) {
      case 'd':
        return kDigits;
      case 'w':
        return kWords;
      case 's':
        return kSpaces;
      case 'D':
        return complement(kDigits);
      case 'W':
        return complement(kWords);
      case 'S':
        return complement(kSpaces);
      case 'n':
        return kNewline;
      case 't':
        return {{'\t', '\t'}};
      case 'r':
        return {{'\r', '\r'}};
      case 'f':
        return {{'\f', '\f'}};
      case 'v':
        return {{'\v', '\v'}};
      case 'x':
      case 'u': {
        const char32_t point = hexadecimal(c == 'x' ? 2 : 4);
        return {{point, point}};
      }
      default:
        if ((c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'z'))
          fail(std::string("has the escape \\") + char(c) + ", which is not understood");
        return {{c, c}};
    }
  }

  Grammar& grammar_;
  const std::string& pattern_;
  std::u32string points_;
  const RegexUse& use_;
  std::map<std::u32string, Part> characters_;
  std::size_t at_ = 0;
};

}  // namespace

Part regex_part(Grammar& grammar, const std::string& pattern, const RegexUse& use) {
  return RegexParser(grammar, pattern, use).parse();
}

}  // namespace foretoken
