#include "framework/decode/tally.h"

#include <algorithm>

namespace foretoken {

Tally::Tally(const Penalties& penalties, std::span<const TokenBias> biases, std::span<const Token> prompt)
    : penalties_(penalties) {
  for (const TokenBias& b : biases) said_.push_back({b.token, 0, 0, b.bias});
  if (penalties.repetition != 1)  // the others ask about generated tokens only
    for (const Token t : prompt) said_.push_back({t, 0, 1, 0});
  std::ranges::sort(said_, {}, &Said::token);
  std::size_t kept = 0;
  for (std::size_t i = 0; i < said_.size(); ++i) {
    if (i > 0 && said_[kept - 1].token == said_[i].token)
      said_[kept - 1].anywhere |= said_[i].anywhere, said_[kept - 1].bias += said_[i].bias;
    else
      said_[kept++] = said_[i];
  }
  said_.resize(kept);
}

void Tally::add(Token generated) {
  if (!counts()) return;
  Said& s = at(generated);
  ++s.times, s.anywhere = 1;
}

Said& Tally::at(Token token) {
  const auto it = std::ranges::lower_bound(said_, token, {}, &Said::token);
  if (it != said_.end() && it->token == token) return *it;
  return *said_.insert(it, Said{token, 0, 0, 0});
}

}  // namespace foretoken
