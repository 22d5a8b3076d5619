// What the adjustments of a sequence's distributions need of its tokens: their counts, each token once, with its bias,
// and the state of its constraint. It is updated as the sequence grows. Nothing is counted unless an option needs it.
// This module must not know devices, drafts or whose distributions are adjusted.
#pragma once
#include <memory>
#include <span>
#include <vector>

#include "framework/decode/constraint.h"
#include "kernels/adjustment.h"

namespace foretoken {

// From this bias down a token is forbidden: its logit is minus infinity, its probability 0 at every temperature, as
// users of serving engines expect of -100.
constexpr float kForbids = -100;

struct TokenBias {
  Token token = -1;
  float bias = 0;  // added to the logit, or `kForbids`
  bool operator==(const TokenBias&) const = default;
};

class Tally {
 public:
  Tally() = default;  // nothing is adjusted
  // A token with two biases gets their sum; it is forbidden if one of them or the sum forbids it.
  Tally(const Penalties& penalties, std::span<const TokenBias> biases, std::span<const Token> prompt,
        std::shared_ptr<const Constraint> constraint = {});

  void add(Token generated);
  bool adjusts() const { return !token_counts_.empty() || penalties_.counts(); }
  // Whether tokens that are yet to be generated matter too.
  bool counts() const { return penalties_.counts(); }
  const Penalties& penalties() const { return penalties_; }
  std::span<const TokenCount> token_counts() const { return token_counts_; }  // ascending by token
  const Constraint* constraint() const { return constraint_.get(); }          // null: none
  Constraint::State state() const { return state_; }                          // of the constraint
  bool broken() const { return constraint_ && state_ == Constraint::kBroken; }

 private:
  TokenCount& at(Token token);

  Penalties penalties_;
  std::vector<TokenCount> token_counts_;
  std::shared_ptr<const Constraint> constraint_;
  Constraint::State state_ = 0;
};

}  // namespace foretoken
