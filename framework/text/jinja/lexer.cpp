#include "framework/text/jinja/lexer.h"

#include <algorithm>
#include <cstdlib>

#include "framework/text/jinja/strings.h"
#include "framework/text/jinja/unicode.h"
#include "framework/text/printable.h"
#include "framework/text/utf8.h"
#include "kernels/error.h"

namespace foretoken::jinja {
namespace {

using Type = Lexeme::Type;

// One kind of line ends, and none at the end.
std::string normalized(std::string_view source) {
  std::string text;
  const std::string valid = replace_broken_utf8(source);
  for (std::size_t i = 0; i < valid.size(); ++i) {
    if (valid[i] == '\r' && i + 1 < valid.size() && valid[i + 1] == '\n') continue;
    text += valid[i] == '\r' ? '\n' : valid[i];
  }
  if (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

bool is_ascii_digit(char c) { return c >= '0' && c <= '9'; }

class Lexer {
 public:
  Lexer(std::string_view source, std::string where) : source_(normalized(source)), where_(std::move(where)) {}

  std::vector<Lexeme> all() {
    while (at_ < source_.size()) root();
    add(Type::end, "");
    return std::move(lexemes_);
  }

 private:
  [[noreturn]] void refuse(const std::string& message) const { fail_at(where_, line_, message); }
  void add(Type type, std::string text, Value number = {}) {
    lexemes_.push_back({type, line_, std::move(text), std::move(number)});
  }
  bool follows(std::string_view text) const { return std::string_view(source_).substr(at_, text.size()) == text; }
  void advance(std::size_t to) {
    line_ += int(std::count(source_.begin() + std::ptrdiff_t(at_), source_.begin() + std::ptrdiff_t(to), '\n'));
    if (to > at_) line_starting_ = source_[to - 1] == '\n';
    at_ = to;
  }
  std::size_t after_space(std::size_t at) const {
    while (at < source_.size()) {
      const Utf8Step step = step_utf8(source_, at);
      if (!is_space(step.point)) break;
      at += std::size_t(step.length);
    }
    return at;
  }

  void root();
  void raw(std::size_t begin);
  void comment(std::size_t begin);
  void inside(bool block);
  std::size_t end_of_tag(std::size_t at, bool block) const;
  std::size_t end_of_raw_tag(std::size_t at, const char* word, char* sign) const;
  void add_data(std::size_t end, char sign, bool variable);
  void lex_one();
  void lex_number();
  void lex_name();
  void lex_string();
  void lex_sign();

  std::string source_, where_, open_;
  std::size_t at_ = 0;
  int line_ = 1;
  bool line_starting_ = true;
  std::vector<Lexeme> lexemes_;
};

// The text up to a tag that has this sign ('-', '+' or none) at its beginning.
void Lexer::add_data(std::size_t end, char sign, bool variable) {
  const std::string_view text = std::string_view(source_).substr(at_, end - at_);
  std::string_view kept = text;
  if (sign == '-') {
    kept = stripped(text, nullptr, false, true);
  } else if (sign != '+' && !variable) {
    const std::size_t newline = text.rfind('\n'), begin = newline == text.npos ? 0 : newline + 1;
    if ((begin > 0 || line_starting_) && stripped(text.substr(begin), nullptr, true, true).empty())
      kept = text.substr(0, begin);
  }
  if (!kept.empty()) add(Type::data, std::string(kept));
  advance(end);
}

// The end of "{%- raw -%}" (its white space too) at `at`, or npos; `sign` is the one at its beginning.
std::size_t Lexer::end_of_raw_tag(std::size_t at, const char* word, char* sign) const {
  std::size_t i = at + 2;
  *sign = i < source_.size() && (source_[i] == '-' || source_[i] == '+') ? source_[i] : '\0';
  if (*sign) ++i;
  i = after_space(i);
  const std::string name = word;
  if (source_.compare(i, name.size(), name) != 0) return source_.npos;
  i = after_space(i + name.size());
  const bool ends_raw = name == "endraw";
  if (source_.compare(i, 3, "-%}") == 0) return after_space(i + 3);
  if (ends_raw && source_.compare(i, 3, "+%}") == 0) return i + 3;
  if (source_.compare(i, 2, "%}") != 0) return source_.npos;
  return i + 2 + (ends_raw && i + 2 < source_.size() && source_[i + 2] == '\n');
}

void Lexer::root() {
  std::size_t tag = at_;
  while (tag = source_.find('{', tag), tag != source_.npos) {
    const char next = tag + 1 < source_.size() ? source_[tag + 1] : '\0';
    if (next == '%' || next == '{' || next == '#') break;
    ++tag;
  }
  if (tag == source_.npos) {
    add(Type::data, source_.substr(at_));
    return advance(source_.size());
  }
  char sign = '\0';
  const char kind = source_[tag + 1];
  if (kind == '%')
    if (const std::size_t end = end_of_raw_tag(tag, "raw", &sign); end != source_.npos) {
      add_data(tag, sign, false);
      return raw(end);
    }
  const std::size_t behind = tag + 2;
  sign = behind < source_.size() && (source_[behind] == '-' || source_[behind] == '+') ? source_[behind] : '\0';
  add_data(tag, sign, kind == '{');
  const std::size_t begin = behind + (sign ? 1 : 0);
  if (kind == '#') return comment(begin);
  add(kind == '%' ? Type::block_begin : Type::variable_begin, "");
  advance(begin);
  inside(kind == '%');
}

void Lexer::raw(std::size_t begin) {
  advance(begin);
  for (std::size_t tag = at_; (tag = source_.find("{%", tag)) != source_.npos; ++tag) {
    char sign = '\0';
    const std::size_t end = end_of_raw_tag(tag, "endraw", &sign);
    if (end == source_.npos) continue;
    add_data(tag, sign, false);
    return advance(end);
  }
  refuse("a block 'raw' has no end");
}

void Lexer::comment(std::size_t begin) {
  const std::size_t end = source_.find("#}", begin);
  if (end == source_.npos) refuse("a comment has no end");
  std::size_t after = end + 2;
  const char sign = end > begin ? source_[end - 1] : '\0';
  if (sign == '-')
    after = after_space(after);
  else if (sign != '+' && after < source_.size() && source_[after] == '\n')
    ++after;
  advance(after);
}

// The end of "-%}" and of the white space that it takes; `at` where there is none.
std::size_t Lexer::end_of_tag(std::size_t at, bool block) const {
  const char* close = block ? "%}" : "}}";
  if (source_.compare(at, 2, close) == 0) return at + 2 + (block && at + 2 < source_.size() && source_[at + 2] == '\n');
  if (source_.compare(at + 1, 2, close) != 0) return at;
  if (source_[at] == '-') return after_space(at + 3);
  return block && source_[at] == '+' ? at + 3 : at;
}

void Lexer::inside(bool block) {
  while (at_ < source_.size()) {
    if (open_.empty())
      if (const std::size_t end = end_of_tag(at_, block); end != at_) {
        add(block ? Type::block_end : Type::variable_end, "");
        return advance(end);
      }
    if (const std::size_t end = after_space(at_); end != at_)
      advance(end);
    else
      lex_one();
  }
}

void Lexer::lex_one() {
  const char c = source_[at_];
  const char32_t point = step_utf8(source_, at_).point;
  if (is_ascii_digit(c)) return lex_number();
  if (is_word(point)) return lex_name();
  if (c == '\'' || c == '"') return lex_string();
  lex_sign();
}

void Lexer::lex_name() {
  std::size_t end = at_;
  while (end < source_.size()) {
    const Utf8Step step = step_utf8(source_, end);
    if (!is_word(step.point)) break;
    if (step.point >= 0x80) refuse("names have the letters of ASCII alone here");
    end += std::size_t(step.length);
  }
  add(Type::name, source_.substr(at_, end - at_));
  advance(end);
}

// Digits that underscores may separate: the end of \d+(_\d+)*.
std::size_t end_of_digits(const std::string& s, std::size_t at, const char* digits) {
  const std::string_view allowed = digits;
  const auto is = [&](std::size_t i) { return i < s.size() && allowed.find(s[i]) != allowed.npos; };
  while (is(at) || (at < s.size() && s[at] == '_' && is(at + 1))) ++at;
  return at;
}

void Lexer::lex_number() {
  static constexpr const char* kDecimal = "0123456789";
  const auto bare = [&](std::size_t begin, std::size_t end) {
    std::string digits = source_.substr(begin, end - begin);
    std::erase(digits, '_');
    return digits;
  };
  const auto digit = [&](std::size_t i) { return i < source_.size() && is_ascii_digit(source_[i]); };
  const auto is = [&](std::size_t i, char c) { return i < source_.size() && (source_[i] | 0x20) == c; };
  std::size_t end = end_of_digits(source_, at_, kDecimal);
  const std::size_t whole = end;
  if (end < source_.size() && source_[end] == '.' && digit(end + 1)) end = end_of_digits(source_, end + 1, kDecimal);
  if (is(end, 'e')) {
    const std::size_t sign =
        end + 1 + (end + 1 < source_.size() && (source_[end + 1] == '+' || source_[end + 1] == '-'));
    if (digit(sign)) end = end_of_digits(source_, sign, kDecimal);
  }
  const bool after_dot = at_ > 0 && source_[at_ - 1] == '.';
  if (end > whole && !after_dot) {
    add(Type::number, "", Value::real(std::strtod(bare(at_, end).c_str(), nullptr)));
    return advance(end);
  }
  int base = 10;
  std::size_t begin = at_;
  const std::pair<char, std::pair<int, const char*>> bases[] = {
      {'b', {2, "01"}}, {'o', {8, "01234567"}}, {'x', {16, "0123456789abcdefABCDEF"}}};
  end = source_[at_] == '0' ? end_of_digits(source_, at_, "0") : whole;
  for (const auto& [letter, how] : bases)
    if (source_[at_] == '0' && is(at_ + 1, letter))
      if (const std::size_t last = end_of_digits(source_, at_ + 2, how.second); last > at_ + 2)
        base = how.first, begin = at_ + 2, end = last;
  errno = 0;
  const long long number = std::strtoll(bare(begin, end).c_str(), nullptr, base);
  if (errno == ERANGE) refuse("the number " + bare(begin, end) + " does not fit into 64 bits");
  add(Type::number, "", Value::integer(number));
  advance(end);
}

void Lexer::lex_string() {
  std::size_t end = at_ + 1;
  while (end < source_.size() && source_[end] != source_[at_]) end += source_[end] == '\\' ? 2 : 1;
  if (end >= source_.size()) refuse("a string has no end");
  try {
    add(Type::string, unescaped(std::string_view(source_).substr(at_ + 1, end - at_ - 1)));
  } catch (const Error& e) {
    refuse(e.what());
  }
  advance(end + 1);
}

void Lexer::lex_sign() {
  static const char* const kSigns[] = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[",
                                       "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ",", ";"};
  const auto* sign = std::ranges::find_if(kSigns, [&](const char* s) { return follows(s); });
  if (sign == std::end(kSigns))
    refuse("'" + printable(source_.substr(at_, length_of_point(source_, at_))) + "' is no part of an expression");
  const std::string text = *sign;
  if (text == "(" || text == "[" || text == "{") open_ += text == "(" ? ')' : text == "[" ? ']' : '}';
  if (text == ")" || text == "]" || text == "}") {
    if (open_.empty() || open_.back() != text[0])
      refuse("'" + text + "' stands where " +
             (open_.empty() ? "nothing is open" : std::string("'") + open_.back() + "' must"));
    open_.pop_back();
  }
  add(Type::sign, text);
  advance(at_ + text.size());
}

}  // namespace

void fail_at(const std::string& where, int line, const std::string& message) {
  throw Error(where + ", line " + std::to_string(line) + ": " + message);
}

std::vector<Lexeme> lexemes_of(std::string_view source, const std::string& where) { return Lexer(source, where).all(); }

}  // namespace foretoken::jinja
