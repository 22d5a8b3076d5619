// Reads back tokens that a device drew, wherever in its memory they are, by one copy. This module must not know trees,
// caches or drafters.
#pragma once
#include <span>

#include "kernels/staging.h"

namespace foretoken {

class TokenReadback {
 public:
  explicit TokenReadback(Backend& backend) : backend_(backend), addresses_(backend), tokens_(backend) {}

  // Starts the copy of the tokens at these addresses; at least one.
  void fetch(std::span<const Token* const> drawn);
  // The i-th of them, after the next synchronize().
  Token operator[](std::size_t i) const { return *read_.row<Token>(std::int64_t(i)); }

 private:
  Backend& backend_;
  Staging addresses_, tokens_;
  Tensor read_;  // i32 [n], host
};

}  // namespace foretoken
