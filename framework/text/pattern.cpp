#include "framework/text/pattern.h"

#include <algorithm>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "framework/text/json_file.h"
#include "framework/text/utf8.h"
#include "kernels/error.h"

namespace foretoken {
namespace {

constexpr const char* kSpace = "\\x{09}-\\x{0d}\\x{85}\\p{Z}";  // White_Space of Unicode, inside a class

// Reads one expression and writes the other.
class Translation {
 public:
  Translation(std::string_view from, const std::string& where) : from_(from), where_(where) {}

  std::string run() {
    while (at_ < from_.size()) {
      const char c = from_[at_];
      if (c == '\\')
        escape(/*in_class=*/false);
      else if (c == '[')
        character_class();
      else if (c == '(')
        group();
      else if (c == '{')
        counted();
      else if (c == '^' || c == '$')
        refuse(std::string("the anchor ") + c);
      else
        copy(1);
    }
    return std::move(to_);
  }

 private:
  [[noreturn]] void refuse(const std::string& what) const {
    throw Error(where_ + ": the pattern " + std::string(from_) + " has " + what + ", which is not supported");
  }
  bool next_is(std::string_view s) const { return from_.substr(at_).starts_with(s); }
  void copy(std::size_t n) {
    to_ += from_.substr(at_, n);
    at_ += n;
  }

  void escape(bool in_class) {
    if (at_ + 1 == from_.size()) refuse("a \\ at its end");
    const char c = from_[at_ + 1];
    if (c == 'p' || c == 'P') return property();
    const bool letter_or_digit = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    if ((!letter_or_digit && c > ' ' && c < 0x7f) || c == 'r' || c == 'n' || c == 't' || c == 'f') return copy(2);
    if (c == 's')
      to_ += in_class ? kSpace : std::string("[") + kSpace + "]";
    else if (c == 'S' && !in_class)
      to_ += std::string("[^") + kSpace + "]";
    else if (c == 'd')
      to_ += "\\p{Nd}";
    else if (c == 'D')
      to_ += "\\P{Nd}";
    else if (c == 'v')
      to_ += "\\x{0b}";
    else
      refuse("the escape \\" + std::string(1, c) + (in_class ? " inside [ ]" : ""));
    at_ += 2;
  }

  // General categories only: PCRE2 and Oniguruma disagree about the characters of scripts.
  void property() {
    const std::size_t end = from_.find('}', at_);
    const std::string_view name =
        next_is("\\p{") || next_is("\\P{") ? from_.substr(at_ + 3, end == from_.npos ? 0 : end - at_ - 3) : "";
    const std::string_view category = name.starts_with('^') ? name.substr(1) : name;
    const bool known = (category.size() == 1 || (category.size() == 2 && category[1] >= 'a' && category[1] <= 'z')) &&
                       std::string_view("LMNPSZC").find(category[0]) != std::string_view::npos;
    if (!known) refuse("the property " + std::string(from_.substr(at_, end == from_.npos ? end : end + 1 - at_)));
    copy(end + 1 - at_);
  }

  void character_class() {
    copy(1);
    if (next_is("^")) copy(1);
    if (next_is("]")) refuse("the class []");
    while (at_ < from_.size() && from_[at_] != ']') {
      if (next_is("[")) refuse("a [ inside [ ]");
      if (next_is("&&")) refuse("the intersection &&");
      if (from_[at_] == '\\')
        escape(/*in_class=*/true);
      else
        copy(1);
    }
    if (at_ == from_.size()) refuse("a [ without ]");
    copy(1);
  }

  void group() {
    if (next_is("(*")) refuse("the group (*");
    if (!next_is("(?")) return copy(1);
    for (const char* start : {"(?:", "(?=", "(?!", "(?>", "(?<=", "(?<!", "(?i:"})
      if (next_is(start)) return copy(std::string_view(start).size());
    refuse("the group " + std::string(from_.substr(at_, 4)));
  }

  // In Oniguruma {n,m}+ repeats the repetition, in PCRE2 it is possessive; {,m} begins at 0 only in Oniguruma.
  void counted() {
    const std::size_t end = from_.find('}', at_);
    if (end == from_.npos || end == at_ + 1 ||
        from_.substr(at_ + 1, end - at_ - 1).find_first_not_of("0123456789,") != from_.npos || next_is("{,"))
      refuse("a { that is no {n}, {n,} or {n,m}");
    copy(end + 1 - at_);
    if (next_is("+")) refuse("the quantifier }+");
  }

  std::string_view from_;
  const std::string& where_;
  std::string to_;
  std::size_t at_ = 0;
};

std::string message_of(int code) {
  PCRE2_UCHAR text[256];
  pcre2_get_error_message(code, text, sizeof text);
  return reinterpret_cast<const char*>(text);
}

struct FreeMatchContext {
  void operator()(pcre2_match_context* c) const { pcre2_match_context_free(c); }
};
struct FreeMatchData {
  void operator()(pcre2_match_data* m) const { pcre2_match_data_free(m); }
};

}  // namespace

std::string pcre2_from_oniguruma(std::string_view oniguruma, const std::string& where) {
  return Translation(oniguruma, where).run();
}

struct Pattern::Code {
  pcre2_code* code = nullptr;
  std::string where;
  Code() = default;
  Code(const Code&) = delete;
  Code& operator=(const Code&) = delete;
  ~Code() { pcre2_code_free(code); }
};

Pattern::Pattern(std::string_view source, std::uint32_t options, const std::string& where) {
  auto code = std::make_shared<Code>();
  code->where = where;
  int error = 0;
  PCRE2_SIZE at = 0;
  code->code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(source.data()), source.size(), options, &error, &at, nullptr);
  if (!code->code)
    throw Error(where + ": the pattern " + std::string(source) + " is not understood (" + message_of(error) +
                " at byte " + std::to_string(at) + ")");
  pcre2_jit_compile(code->code, PCRE2_JIT_COMPLETE);  // where there is no JIT, matching interprets
  code_ = std::move(code);
}

Pattern Pattern::regex(std::string_view oniguruma, const std::string& where) {
  return Pattern(pcre2_from_oniguruma(oniguruma, where), PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, where);
}

Pattern Pattern::of_names(std::string_view expression, const std::string& where) {
  return Pattern(expression, PCRE2_NEVER_UTF, where);
}

Pattern Pattern::literal(std::string_view text, const std::string& where) {
  return Pattern(text, PCRE2_UTF | PCRE2_LITERAL, where);
}

Pattern Pattern::load(const Fields& owner) {
  const Fields pattern = owner.object("pattern");
  if (pattern.has("Regex")) return regex(pattern.string("Regex"), owner.where());
  if (!pattern.has("String")) owner.refuse("pattern", "must be a Regex or a String");
  const std::string text = pattern.string("String");
  return text.empty() ? Pattern() : literal(text, owner.where());
}

std::pair<Pattern, std::string> Pattern::replacement(const Fields& owner) {
  return {load(owner), owner.string("content")};
}

std::string Pattern::replace_all(std::string_view text, std::string_view with) const {
  std::string result;
  std::size_t done = 0;
  for (const auto& [begin, end] : find_all(text)) {
    result.append(text, done, begin - done).append(with);
    done = end;
  }
  return result.append(text, done);
}

std::vector<std::pair<std::size_t, std::size_t>> Pattern::find_all(std::string_view text) const {
  std::vector<std::pair<std::size_t, std::size_t>> found;
  if (!code_) return found;
  const std::unique_ptr<pcre2_match_data, FreeMatchData> match(pcre2_match_data_create(1, nullptr));
  const std::unique_ptr<pcre2_match_context, FreeMatchContext> context(pcre2_match_context_create(nullptr));
  // Backtracking over a long run of white space is linear in its length, and allowed. The exponential search of a
  // malicious pattern is not.
  pcre2_set_match_limit(context.get(), std::uint32_t(std::min<std::size_t>(100'000 + 64 * text.size(), 0xffffffffu)));
  pcre2_set_depth_limit(context.get(), 0xffffffffu);
  const auto subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  for (std::size_t at = 0; at <= text.size();) {
    int rc = pcre2_match(code_->code, subject, text.size(), at, PCRE2_NO_UTF_CHECK, match.get(), context.get());
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT)
      rc = pcre2_match(code_->code, subject, text.size(), at, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, match.get(),
                       context.get());
    if (rc == PCRE2_ERROR_NOMATCH) break;
    if (rc < 0)
      throw Error(code_->where + ": the pattern could not be matched (" + message_of(rc) +
                  "); use a tokenizer.json whose patterns are those of its makers");
    const PCRE2_SIZE* span = pcre2_get_ovector_pointer(match.get());
    found.emplace_back(span[0], span[1]);
    // After an empty match the search continues one character further.
    at = span[1] > span[0]       ? span[1]
         : span[1] < text.size() ? span[1] + step_utf8(text, span[1]).length
                                 : text.size() + 1;
  }
  return found;
}

}  // namespace foretoken
