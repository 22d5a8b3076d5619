// The order of the scores by which pages are selected, the same on every device.
#pragma once
#include <cstdint>

#include "kernels/host_device.h"

namespace foretoken {

// Of the bits of a score: greater for greater scores. 0 and -0 are equal, and NaN has a place too, so that as many
// pages are selected as should be, whatever the scores are.
FORETOKEN_HD inline std::uint32_t order_of_score(std::uint32_t bits) {
  if (bits << 1 == 0) bits = 0;
  return bits >> 31 ? ~bits : bits | 0x80000000u;
}

}  // namespace foretoken
