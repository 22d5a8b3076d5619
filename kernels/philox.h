// Random numbers as a pure function: each draw has a name, which is the counter of Philox4x32-10 (Salmon et al., SC
// 2011). There is no state, so results do not depend on batch, order, device or arrival. Host and device.
#pragma once
#include <cstdint>

#include "kernels/error.h"
#include "kernels/host_device.h"

namespace foretoken {

// The purpose of a draw. Draws for different purposes must be independent, so the role is part of the name.
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
  static constexpr std::uint32_t kMostNode = (1u << 12) - 1, kMostIndex = (1u << 11) - 1;

  Role role = Role::draft;
  std::uint32_t node = 0;   // of the tree: the node that the draw decides, or whose children it decides; <= kMostNode
  std::uint32_t index = 0;  // several draws of one node (sibling, try); <= kMostIndex
};

// The part of a name that does not change within one round of one sequence.
struct Draws {
  static constexpr std::uint32_t kMostRoot = (1u << 24) - 1;   // bound of the context length
  static constexpr std::uint32_t kMostScope = (1u << 14) - 1;  // four levels of components, eight in each
  static constexpr std::uint32_t kComponents = 8;  // inner components of one component, each with its own draws

  std::uint64_t seed = 0;
  std::uint64_t stream = 0;  // of the request and its sample number, never of the batch slot
  std::uint32_t root = 0;    // length of the sequence when the round began; increases every round; <= kMostRoot
  std::uint32_t scope = 0;   // of a component inside another: the path to it, as within() numbers it; 0: none

  // The draws of inner component k. Paths are numbers of base eight with digits 1 to 8, so no two are the same number.
  // Throws Error (a trap on a device) where components are too many or too deeply nested, since two of them would share
  // their draws.
  FORETOKEN_HD Draws within(std::uint32_t k) const {
    if (k >= kComponents || scope > (kMostScope - k - 1) / kComponents) too_deep();
    return {seed, stream, root, scope * kComponents + k + 1};
  }

  // Fields of the name do not overlap, so different names are different counters. A name beyond their room is an Error;
  // a device does not look: Backend::draw refuses it on the host, and a tree of kMaxNodes has no such node.
  FORETOKEN_HD Philox counter(DrawName n) const {
#if !defined(__CUDA_ARCH__)
    if (n.node > DrawName::kMostNode || n.index > DrawName::kMostIndex) no_room_for(n);
#endif
    return {{std::uint32_t(stream), std::uint32_t(stream >> 32), root | (scope >> 6) << 24,
             std::uint32_t(n.role) << 29 | (scope & 63u) << 23 | (n.node & DrawName::kMostNode) << 11 |
                 (n.index & DrawName::kMostIndex)}};
  }
  // 32 uniform bits.
  FORETOKEN_HD std::uint32_t bits(DrawName n) const { return generate(counter(n)).word[0]; }
  // In the open interval (0, 1), exact in double.
  FORETOKEN_HD double uniform(DrawName n) const { return uniform_from(bits(n)); }

  // Noise named by absolute position and target token, for the `coupled` verifier alone: four tokens share a counter.
  FORETOKEN_HD double noise(std::uint32_t position, std::uint32_t token) const {
    return uniform_from(noise_block(position, token).word[token & 3u]);
  }
  // The four tokens that share the counter of `token`.
  FORETOKEN_HD Philox noise_block(std::uint32_t position, std::uint32_t token) const {
    return generate(noise_counter(position, token));
  }
  // The same for all components: every race at one position has the same noise.
  FORETOKEN_HD Philox noise_counter(std::uint32_t position, std::uint32_t token) const {
    return {{std::uint32_t(stream), std::uint32_t(stream >> 32), position,
             std::uint32_t(Role::noise) << 29 | (token >> 2)}};
  }
  FORETOKEN_HD static double uniform_from(std::uint32_t bits) { return (double(bits) + 0.5) * 0x1p-32; }

 private:
  FORETOKEN_HD Philox generate(const Philox& c) const {
    return philox4x32_10(c.word[0], c.word[1], c.word[2], c.word[3], std::uint32_t(seed), std::uint32_t(seed >> 32));
  }
#if !defined(__CUDA_ARCH__)
  [[noreturn]] static void no_room_for(DrawName n) {
    throw Error("a draw is named node " + std::to_string(n.node) + ", index " + std::to_string(n.index) +
                ", which another draw is named too: nodes are below " + std::to_string(DrawName::kMostNode + 1) +
                ", indices below " + std::to_string(DrawName::kMostIndex + 1) +
                "; give further draws a scope of their own (Draws::within)");
  }
#endif
  FORETOKEN_HD static void too_deep() {
#if defined(__CUDA_ARCH__)
    __trap();
#else
    throw Error(
        "a component has more than eight inner components, or components are nested more than four deep: the "
        "draws of some would have no names of their own; use fewer of them");
#endif
  }
};

}  // namespace foretoken
