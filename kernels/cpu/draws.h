// Draws from laws tile by tile, with the same decisions, bit for bit, as HostLane makes token by token.
#pragma once
#include "kernels/cpu/operations.h"
#include "kernels/law.h"
#include "kernels/philox.h"

namespace foretoken {

// HostLane::invert_cdf and HostLane::win_race. The law is valid and not one-hot.
Token invert_cdf(const Operations& operations, const Law& law, double u);
Token win_race(const Operations& operations, const Law& law, const Draws& draws, std::uint32_t position);

}  // namespace foretoken
