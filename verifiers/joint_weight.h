// The joint weight of a drafted path, which verifiers of whole paths accept by (block verification: Sun et al. 2024,
// arXiv 2403.10444; traversal verification: Weng et al. 2025, 2505.12398). The weight of the root is 1; that of a child
// x drawn from q is min(1, weight(parent) p(x) / q(x)). Host and device, same bits.
#pragma once
#include "kernels/host_device.h"

namespace foretoken {

// The weight of a child whose token has the ratio p(x) / q(x).
FORETOKEN_HD inline double weight_below(double weight, double ratio) {
  const double w = mul(weight, ratio);
  return w < 1 ? w : 1;
}

// The probability that the path ends at a node of this weight, given that none of its children was accepted. `rest` is
// the mass of (weight p - q)+ over the vocabulary: what the children leave of the node's weight.
FORETOKEN_HD inline double probability_of_ending(double weight, double rest) {
  return rest > 0 ? rest / add(rest, add(1.0, -weight)) : 0;
}

}  // namespace foretoken
