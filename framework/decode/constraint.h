// A rule for the tokens of an output: which of them may come next (a grammar, a regular expression, a list of names).
// It is masked into the distributions of the target at every node of a draft tree, so that what verifiers promise holds
// for the constrained distribution (Willard and Louf 2023, arXiv 2307.09702). This module must not know texts or
// grammars.
#pragma once
#include <cstdint>
#include <span>
#include <string>

#include "kernels/distribution.h"  // Token

namespace foretoken {

// Many sequences may share one, on several threads: safe from any thread.
class Constraint {
 public:
  using State = std::int32_t;           // what the rule remembers of the tokens so far
  static constexpr State kBroken = -1;  // a token came that was not allowed

  virtual ~Constraint() = default;
  virtual State start() const = 0;
  // After one more token, which may be any; kBroken stays so.
  virtual State after(State state, Token token) const = 0;
  // Sets bit t % 32 of allowed[t / 32] for every token t that may come next, and clears all others. Returns whether any
  // may, which an empty `allowed` asks alone.
  virtual bool allowed(State state, std::span<std::uint32_t> allowed) const = 0;
  // Why outputs can no longer be followed; empty: they can.
  virtual std::string fault() const { return {}; }
};

}  // namespace foretoken
