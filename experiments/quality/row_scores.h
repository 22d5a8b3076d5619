// What one row of logits says of the token that follows, and how it differs from a reference's row. Computed in double:
// sums of 128k exponentials in f32 are wrong in the fourth digit of a divergence. This module must not know where rows
// come from.
#pragma once
#include <span>

#include "kernels/distribution.h"  // Token

namespace foretoken {

// Of one predicted token. All of it is NaN where a logit is not finite.
struct TokenScore {
  double loss = 0;  // -log p(token) of the model, nats
  // Against the reference's distribution r; 0 without a reference.
  double reference_loss = 0;
  double divergence = 0;  // KL(r || p) = sum of r log(r / p), nats
  double overlap = 0;   // sum of min(r, p): how often speculative sampling accepts a token drawn from one for the other
  bool agrees = false;  // the most probable token is the same, the lowest of equals
};

TokenScore score_of(std::span<const float> logits, Token token);
TokenScore score_of(std::span<const float> logits, std::span<const float> reference, Token token);

}  // namespace foretoken
