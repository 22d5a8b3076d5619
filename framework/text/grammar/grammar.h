// A language of byte strings, by rules that may call each other and themselves. Parts are made from parts, then a
// network of them is read byte by byte (automaton.h). This module must not know regular expressions, JSON or tokens.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace foretoken {

// Code points from `first` to `last`.
struct CodePoints {
  char32_t first = 0, last = 0;
};
// All code points but surrogates, in ascending order, that are in none of `ranges`.
std::vector<CodePoints> complement(std::vector<CodePoints> ranges);

// What a grammar becomes: nodes with edges, a recursive transition network (Woods 1970).
struct Network {
  enum class Kind : std::uint8_t { byte, skip, call };
  struct Edge {
    Kind kind = Kind::skip;
    std::uint8_t first = 0, last = 0;  // of a byte: those from `first` to `last`
    std::int32_t to = 0;               // of a call: the node after the called rule
    std::int32_t rule = 0;             // of a call: where the rule begins
  };
  std::vector<std::vector<Edge>> nodes;
  std::vector<std::uint8_t> ends;  // of each node: 1 where a rule ends
  std::int32_t start = 0;
};

class Grammar {
 public:
  using Part = std::int32_t;
  static constexpr int kUnbounded = -1;

  Part text(std::string_view bytes);
  Part character(std::span<const CodePoints> ranges);  // one of them, as UTF-8; surrogates have none. May be none.
  Part sequence(std::vector<Part> parts);
  Part choice(std::vector<Part> parts);
  // 0 <= least <= most, or `most` is kUnbounded.
  Part repeat(Part part, int least, int most);
  Part optional(Part part) { return repeat(part, 0, 1); }
  // A rule, which parts may use before it is defined, also that of itself.
  Part rule();
  void define(Part rule, Part as);

  // Every rule that is used must be defined. Throws Error where the network would have more than kMostNodes nodes.
  Network network(Part start) const;
  static constexpr std::int32_t kMostNodes = 200000;

 private:
  enum class Kind : std::uint8_t { text, sequence, choice, repeat, rule, bytes };
  struct Expression {
    Kind kind = Kind::text;
    std::string text{};
    std::vector<Part> parts{};  // of a rule: what it is, once it is defined
    int least = 0, most = 0;    // of a repetition; of bytes: from `least` to `most`
  };
  class Builder;
  Part add(Expression e);
  Part bytes(int first, int last);
  std::vector<Part> characters_of_length(char32_t first, char32_t last);

  std::vector<Expression> expressions_;
};

}  // namespace foretoken
