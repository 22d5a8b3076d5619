// A regular expression of a tokenizer.json. These are written for Oniguruma. PCRE2 runs them here, after a translation
// that accepts only what both interpret alike. And expressions over names of modules, written for Python. This module
// must not know tokens.
#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace foretoken {

class Fields;

class Pattern {
 public:
  // An escape or group that the rules of GPT-2, Llama-3, Qwen and GPT-4o do not use is an Error that names it.
  static Pattern regex(std::string_view oniguruma, const std::string& where);
  // An expression of Python over ASCII names, which PCRE2 reads alike: anchors are allowed. Matches bytes.
  static Pattern of_names(std::string_view expression, const std::string& where);
  static Pattern literal(std::string_view text, const std::string& where);

  // "pattern" of a normalizer, pre-tokenizer or decoder: {"String": ...} or {"Regex": ...}; an empty string matches
  // nowhere.
  static Pattern load(const Fields& owner);
  // "pattern" and "content" of a Replace.
  static std::pair<Pattern, std::string> replacement(const Fields& owner);

  // Begin and end (bytes) of every match in valid UTF-8, from the left, not overlapping. Safe from any thread.
  std::vector<std::pair<std::size_t, std::size_t>> find_all(std::string_view text) const;
  std::string replace_all(std::string_view text, std::string_view with) const;

 private:
  struct Code;
  Pattern() = default;  // matches nowhere
  Pattern(std::string_view source, std::uint32_t options, const std::string& where);
  std::shared_ptr<const Code> code_;
};

// The same expression in PCRE2's syntax. \s is written as a class, since PCRE2's contains U+180E, which is no longer
// white space.
std::string pcre2_from_oniguruma(std::string_view oniguruma, const std::string& where);

}  // namespace foretoken
