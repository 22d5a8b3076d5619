#include "framework/components/length_policy.h"

#include "kernels/error.h"

namespace foretoken {

Budget LengthPolicy::most() const {
  if (said_) return *said_;
  throw Error("the policy does not state its largest budget; fill Entry::traits, or override LengthPolicy::most");
}

}  // namespace foretoken
