// Randomness as a pure function: a draw has a name, and its name is a Philox4x32-10 counter (Salmon et al., SC 2011).
// No state, so no result depends on batch, order, device or arrival. Host and device.
#pragma once
#include <cstdint>

#include "kernels/host_device.h"

namespace foretoken {

// What a draw is for. Two agents of one result never share draws, so the role is part of the name.
enum class Role : std::uint32_t { draft, accept, residual, bonus, noise };

struct Philox {
  std::uint32_t word[4];
};

FORETOKEN_HD inline Philox philox4x32_10(std::uint32_t c0, std::uint32_t c1, std::uint32_t c2, std::uint32_t c3,
                                         std::uint32_t k0, std::uint32_t k1) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t a = 0xD2511F53ull * c0, b = 0xCD9E8D57ull * c2;
    const std::uint32_t n0 = std::uint32_t(b >> 32) ^ c1 ^ k0, n2 = std::uint32_t(a >> 32) ^ c3 ^ k1;
    c1 = std::uint32_t(b);
    c3 = std::uint32_t(a);
    c0 = n0;
    c2 = n2;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return {{c0, c1, c2, c3}};
}

// The name of one draw, within the Draws of its sequence and round.
struct DrawName {
  Role role = Role::draft;
  std::uint32_t node = 0;   // of the tree: the node that the draw decides, or whose children it decides; < 4096
  std::uint32_t index = 0;  // several draws of one node (sibling, try); < 2048
};

// Whose draws these are: everything of a name that does not change within one round of one sequence.
struct Draws {
  std::uint64_t seed = 0;
  std::uint64_t stream = 0;  // comes with the request (and its sample number), never with the batch slot
  std::uint32_t root = 0;    // length of the sequence when the round began: grows every round
  std::uint32_t scope = 0;   // inner drafters and verifiers live in scopes of their own; < 64

  FORETOKEN_HD Draws within(std::uint32_t k) const { return {seed, stream, root, scope * 8 + k + 1}; }

  // 32 uniform bits. Fields of the name do not overlap, so different names are different counters.
  FORETOKEN_HD std::uint32_t bits(DrawName n) const {
    return philox4x32_10(std::uint32_t(stream), std::uint32_t(stream >> 32), root,
                         std::uint32_t(n.role) << 29 | (scope & 63u) << 23 | (n.node & 4095u) << 11 | (n.index & 2047u),
                         std::uint32_t(seed), std::uint32_t(seed >> 32))
        .word[0];
  }
  // In (0, 1), never an end, exact in double.
  FORETOKEN_HD double uniform(DrawName n) const { return uniform_from(bits(n)); }

  // Noise named by absolute position and target token, for the `coupled` verifier alone: four tokens share a counter.
  FORETOKEN_HD double noise(std::uint32_t position, std::uint32_t token) const {
    return uniform_from(noise_block(position, token).word[token & 3u]);
  }
  // The four tokens that share the counter of `token`.
  FORETOKEN_HD Philox noise_block(std::uint32_t position, std::uint32_t token) const {
    return philox4x32_10(std::uint32_t(stream), std::uint32_t(stream >> 32), position,
                         std::uint32_t(Role::noise) << 29 | (token >> 2), std::uint32_t(seed),
                         std::uint32_t(seed >> 32));
  }
  FORETOKEN_HD static double uniform_from(std::uint32_t bits) { return (double(bits) + 0.5) * 0x1p-32; }
};

}  // namespace foretoken
