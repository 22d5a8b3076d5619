// What the blocks that attend to a few rows have in common: sets of query vectors, teams of warps, and what they
// exchange. This header must not know how a step is summed.
#pragma once
#include <cstdint>
#include <type_traits>

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/shared_memory.h"

namespace foretoken {

// Query vectors of a set; warps of a team, which share each step; sets of a team, at most.
constexpr int kSetVectors = 8, kTeamWarps = 4, kTeamSets = 4;

// In shared memory, of one set, mostly of a step: warp w of its kPeers scores keys 16 w ... 16 w + 15.
template <bool kCodes, int kPeers> struct alignas(16) TeamExchange {
  // The second factors of those keys, as lanes hold them: two registers of weights; of codes, two more of weights times
  // the scales of values.
  std::conditional_t<kCodes, uint4, uint2> weights[kPeers][32];
  float peaks[kPeers][kSetVectors];
  int2 sights[kSetVectors];  // a vector attends to depths [x, y)
};
static_assert(sizeof(TeamExchange<false, 4>) == team_exchange_bytes(false, 4) &&
              sizeof(TeamExchange<false, 8>) == team_exchange_bytes(false, 8) &&
              sizeof(TeamExchange<true, 4>) == team_exchange_bytes(true, 4));

}  // namespace foretoken
