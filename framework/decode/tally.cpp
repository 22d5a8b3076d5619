#include "framework/decode/tally.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace foretoken {
namespace {

float added(float bias) { return bias <= kForbids ? -std::numeric_limits<float>::infinity() : bias; }

}  // namespace

Tally::Tally(const Penalties& penalties, std::span<const TokenBias> biases, std::span<const Token> prompt,
             std::shared_ptr<const Constraint> constraint)
    : penalties_(penalties), constraint_(std::move(constraint)), state_(constraint_ ? constraint_->start() : 0) {
  for (const TokenBias& b : biases) token_counts_.push_back({b.token, 0, 0, added(b.bias)});
  if (penalties.repetition != 1)  // the other penalties count generated tokens only
    for (const Token t : prompt) token_counts_.push_back({t, 0, 1, 0});
  // By bias too, so that a sum's bits do not depend on the order in which the biases were given.
  std::ranges::sort(token_counts_, {}, [](const TokenCount& c) { return std::pair(c.token, c.bias); });
  std::size_t kept = 0;
  for (std::size_t i = 0; i < token_counts_.size(); ++i) {
    if (i > 0 && token_counts_[kept - 1].token == token_counts_[i].token)
      token_counts_[kept - 1].anywhere |= token_counts_[i].anywhere,
          token_counts_[kept - 1].bias += token_counts_[i].bias;
    else
      token_counts_[kept++] = token_counts_[i];
  }
  token_counts_.resize(kept);
  for (TokenCount& c : token_counts_) c.bias = added(c.bias);  // of the whole sum, not of sums on the way
}

void Tally::add(Token generated) {
  if (constraint_) state_ = constraint_->after(state_, generated);
  if (!counts()) return;
  TokenCount& s = at(generated);
  ++s.times, s.anywhere = 1;
}

TokenCount& Tally::at(Token token) {
  const auto it = std::ranges::lower_bound(token_counts_, token, {}, &TokenCount::token);
  if (it != token_counts_.end() && it->token == token) return *it;
  return *token_counts_.insert(it, TokenCount{token, 0, 0, 0});
}

}  // namespace foretoken
