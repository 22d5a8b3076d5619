#include "framework/components/length_policy.h"

#include "kernels/error.h"

namespace foretoken {

Budget LengthPolicy::most() const {
  if (declared_) return *declared_;
  throw Error("the policy does not state its largest budget; fill Entry::traits, or override LengthPolicy::most");
}

}  // namespace foretoken
