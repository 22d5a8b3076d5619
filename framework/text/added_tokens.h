// Tokens that are written in the text literally ("<|endoftext|>"). They are found before any other step.
// This module must not know merges.
#pragma once
#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "framework/text/json_file.h"
#include "framework/text/normalizer.h"
#include "kernels/distribution.h"  // Token

namespace foretoken {

// The highest id that a file of so many tokens may use. A few ids may be unused, but a mistyped one must not allocate
// gigabytes.
inline Token highest_id(std::size_t tokens) { return Token(std::min<std::size_t>(tokens + (1 << 20), 1 << 24)); }

struct AddedToken {
  Token id = -1;
  std::string content;
  bool single_word = false;             // only where no word character is beside it
  bool lstrip = false, rstrip = false;  // includes the white space before, after it
  bool normalized = false;              // searched in the normalized text, else in the text as given
  bool special = false;                 // omitted from decoded text
};

class AddedTokens {
 public:
  // `spec` is "added_tokens" of a tokenizer.json.
  static AddedTokens load(const nlohmann::json& spec, const Normalizer& normalizer, const std::string& where);

  struct Piece {
    std::string_view text;
    Token token = -1;  // -1: plain text
  };
  // Splits valid UTF-8 at the added tokens of one kind: leftmost first, then longest.
  std::vector<Piece> split(std::string_view text, bool normalized) const;
  const std::vector<AddedToken>& all() const { return tokens_; }

 private:
  struct Node {
    std::map<unsigned char, int> next;
    int token = -1;  // index into tokens_
  };
  using Trie = std::vector<Node>;
  struct Match {
    std::size_t length = 0;
    int token = -1;
  };
  static void insert(Trie& trie, std::string_view content, int token);
  static Match longest(const Trie& trie, std::string_view text, std::size_t at);

  std::vector<AddedToken> tokens_;
  Trie plain_{1}, normalized_{1};
};

}  // namespace foretoken
