// The texts of which JSON values are made, as parts of a grammar. This module must not know schemas.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "framework/text/grammar/grammar.h"

namespace foretoken {

class JsonText {
 public:
  explicit JsonText(Grammar& grammar);

  Grammar& grammar() { return grammar_; }
  Grammar::Part value() const { return value_; }    // any
  Grammar::Part object() const { return object_; }  // any
  Grammar::Part array() const { return array_; }    // any
  Grammar::Part number() const { return number_; }
  Grammar::Part boolean() const { return boolean_; }
  Grammar::Part space() const { return space_; }
  // A string of `least` to `most` characters (Grammar::kUnbounded).
  Grammar::Part string(int least = 0, int most = Grammar::kUnbounded);
  // A string with what a regular expression describes, in part unless `whole`.
  Grammar::Part string_of(const std::string& pattern, bool whole);
  // An integer within the limits, if they are given; within 18 digits.
  Grammar::Part integer(std::optional<std::int64_t> least, std::optional<std::int64_t> most);
  // [item, item]: at least `least` of them and at most `most`.
  Grammar::Part list(Grammar::Part begin, Grammar::Part each, Grammar::Part end, int least, int most);
  // "key": value.
  Grammar::Part member(Grammar::Part key, Grammar::Part value);
  Grammar::Part comma() const { return comma_; }
  static constexpr std::int64_t kLargest = 999999999999999999;

 private:
  // A character of a string as JSON writes it.
  Grammar::Part written(std::span<const CodePoints> ranges);
  Grammar::Part digits(int count);
  Grammar::Part between(const std::string& least, const std::string& most);
  Grammar::Part natural(std::int64_t least, std::int64_t most);

  Grammar& grammar_;
  Grammar::Part value_, object_, array_, number_, boolean_, space_, comma_, character_;
};

}  // namespace foretoken
