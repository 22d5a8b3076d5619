// A grammar as a constraint on tokens: a token may come where its bytes go on in the language, and a token that ends
// the output where the language may end. This module must not know sequences or models.
#pragma once
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "framework/decode/constraint.h"
#include "framework/text/grammar/automaton.h"
#include "framework/text/tokenizer.h"

namespace foretoken {

// The bytes of every token of a vocabulary, sorted, so that all tokens are read from a state as from a tree. Special
// tokens have none. Made once for each tokenizer: it takes some ten milliseconds for 100,000 tokens.
class TokenBytes {
 public:
  explicit TokenBytes(const Tokenizer& tokenizer);

  struct Item {
    Token token = -1;
    std::int32_t begin = 0, length = 0;  // within bytes()
    std::int32_t common = 0;             // bytes at its beginning that the item before it has too
  };
  std::span<const Item> items() const { return items_; }  // ascending by bytes
  std::string_view of(const Item& i) const {
    return std::string_view(bytes_).substr(std::size_t(i.begin), std::size_t(i.length));
  }
  std::string_view of(Token token) const;  // empty: none
  int vocab() const { return int(by_token_.size()); }

 private:
  std::string bytes_;
  std::vector<Item> items_;
  std::vector<std::int32_t> by_token_;  // the item of each token; -1: none
};

class TokenGrammar final : public Constraint {
 public:
  // `ends`: tokens that end an output, which may come where the grammar ends, and nowhere else. Throws Error where
  // there are none, since an output could then not end.
  TokenGrammar(std::shared_ptr<const TokenBytes> tokens, Network network, std::vector<Token> ends);

  State start() const override;
  State after(State state, Token token) const override;
  bool allowed(State state, std::span<std::uint32_t> allowed) const override;
  std::string fault() const override;
  // Whether others had better make one of their own: an output that leads to ever new states takes the room of all.
  bool crowded() const;

 private:
  static constexpr State kEnded = -2;  // behind a token that ends the output
  static constexpr std::size_t kMaskBytes = std::size_t(64) << 20;
  using Mask = std::vector<std::uint32_t>;
  const Mask* mask_of(State state) const;  // null: there is no room for states that it needs

  std::shared_ptr<const TokenBytes> tokens_;
  std::vector<Token> ends_;
  mutable std::mutex mutex_;
  mutable Automaton automaton_;
  mutable std::unordered_map<State, Mask> masks_;
};

}  // namespace foretoken
