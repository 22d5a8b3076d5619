// Which nodes of a draft tree may have children where a budget asks for a confident draft (Budget::confidence). That
// depends on the distribution after a node, never on a token that is drawn from it, so no output distribution changes.
// This module must not know how tokens are chosen.
#pragma once
#include <span>
#include <vector>

#include "framework/decode/node_distributions.h"
#include "kernels/staging.h"

namespace foretoken {

class Confidence {
 public:
  explicit Confidence(Backend& backend) : backend_(backend), staging_(backend) {}

  // Whether the greatest probability of each row, at temperature 1 with nothing cut, is at least least[row]. `of`: what
  // NodeDistributions::of gave for `rows`. Waits for the device once, but does nothing where all of `least` are 0.
  std::vector<bool> sure(const Distributions& of, std::span<const DistributionAfter> rows,
                         std::span<const float> least);

 private:
  Backend& backend_;
  Staging staging_;
};

}  // namespace foretoken
