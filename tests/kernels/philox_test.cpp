#include "kernels/philox.h"

#include <array>
#include <functional>
#include <set>
#include <tuple>

#include <gtest/gtest.h>

namespace foretoken {
namespace {

// Known answers of Random123 (kat_vectors, philox4x32 with 10 rounds).
TEST(Philox, known_answers) {
  const struct {
    std::uint32_t counter[4], key[2], answer[4];
  } known[] = {
      {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
      {{~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
      {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
       {0xa4093822, 0x299f31d0},
       {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
  };
  for (const auto& k : known) {
    const Philox p = philox4x32_10(k.counter[0], k.counter[1], k.counter[2], k.counter[3], k.key[0], k.key[1]);
    for (int i = 0; i < 4; ++i) EXPECT_EQ(p.word[i], k.answer[i]);
  }
}

TEST(Draws, different_names_are_different_draws) {
  std::set<std::uint32_t> seen;
  std::size_t names = 0;
  const auto meet = [&](const Draws& d, const DrawName& n) { seen.insert(d.bits(n)), ++names; };
  for (std::uint64_t seed : {0ull, 1ull, 1ull << 32})
    for (std::uint64_t stream : {0ull, 1ull, 1ull << 32})
      for (std::uint32_t root : {0u, 1u, 4096u})
        for (std::uint32_t scope : {0u, 1u, 63u})
          for (Role role : {Role::draft, Role::accept, Role::residual, Role::bonus})
            for (std::uint32_t node : {0u, 1u, 4095u})
              for (std::uint32_t index : {0u, 1u, 2047u}) meet({seed, stream, root, scope}, {role, node, index});
  // Equal bits of different counters happen by chance about names^2 / 2^33 times.
  EXPECT_GE(seen.size() + 2, names);
}

std::array<std::uint32_t, 4> counter(const Draws& d, DrawName n = {}) { return std::to_array(d.counter(n).word); }

// All components of `outer`, those inside them and so on, `depth` deep.
void visit_inner(const Draws& outer, int depth, const std::function<void(const Draws&)>& visit) {
  for (std::uint32_t k = 0; depth > 0 && k < Draws::kComponents; ++k) {
    visit(outer.within(k));
    visit_inner(outer.within(k), depth - 1, visit);
  }
}

TEST(Draws, components_inside_components_share_no_counter) {
  const Draws d{1, 2, 3, 0};
  EXPECT_NE(counter(d.within(7).within(0)), counter(d.within(0)));
  std::set<std::array<std::uint32_t, 4>> seen{counter(d)};
  std::size_t components = 1;
  visit_inner(d, 4, [&](const Draws& inner) { seen.insert(counter(inner)), ++components; });
  EXPECT_EQ(components, 1u + 8 + 64 + 512 + 4096);
  EXPECT_EQ(seen.size(), components);
  // Nor do they share one with another round of the sequence.
  std::size_t longer = 0;
  for (const std::uint32_t root : {4u, Draws::kMostRoot}) {
    const Draws later{1, 2, root, 0};
    visit_inner(later, 4, [&](const Draws& inner) { seen.insert(counter(inner)), ++longer; });
  }
  EXPECT_EQ(seen.size(), components + longer);
}

TEST(Draws, a_component_that_would_share_the_draws_of_another_is_refused) {
  const Draws d{1, 2, 3, 0};
  EXPECT_THROW(d.within(8), Error) << "what it would be called is within(0).within(0)";
  EXPECT_THROW(d.within(~0u), Error);
  const Draws deep = d.within(7).within(7).within(7).within(7);
  EXPECT_THROW(deep.within(0), Error);
  EXPECT_LE(deep.scope, Draws::kMostScope);
}

TEST(Draws, a_name_that_would_be_another_draws_is_refused) {
  const Draws d{1, 2, 3, 0};
  EXPECT_NO_THROW(d.bits({Role::draft, 4095, 2047}));
  EXPECT_THROW(d.bits({Role::draft, 4096, 0}), Error) << "it would be node 0";
  EXPECT_THROW(d.uniform({Role::accept, 5, 2048}), Error) << "it would be index 0";
  EXPECT_THROW(d.counter({Role::draft, ~0u, 0}), Error);
}

// The draws of an outermost component are those of the first published results.
TEST(Draws, of_the_outermost_component_are_those_of_old) {
  const Draws d{0x1122334455667788, 0x99aabbccddeeff00, 123456, 0};
  for (const DrawName n : {DrawName{Role::draft, 0, 0}, {Role::accept, 5, 3}, {Role::bonus, 4095, 2047}}) {
    const std::uint32_t word = std::uint32_t(n.role) << 29 | n.node << 11 | n.index;
    EXPECT_EQ(d.bits(n), philox4x32_10(0xddeeff00, 0x99aabbcc, 123456, word, 0x55667788, 0x11223344).word[0]);
  }
}

TEST(Draws, noise_shares_no_counter_with_draws) {
  std::set<std::tuple<std::uint32_t, std::uint32_t>> noise;
  const Draws d{5, 6, 7, 0};
  for (std::uint32_t position : {0u, 7u, 8u})
    for (std::uint32_t token : {0u, 1u, 4095u, 4096u, 200000u}) {
      const double u = d.noise(position, token);
      EXPECT_TRUE(u > 0 && u < 1);
      EXPECT_EQ(u, Draws::uniform_from(d.noise_block(position, token).word[token % 4]));
      noise.insert({position, std::uint32_t(u * 0x1p32)});
    }
  EXPECT_EQ(noise.size(), 15u);
  // The same name always gives the same draw; the noise does not depend on the root.
  EXPECT_EQ(d.noise(3, 4), (Draws{5, 6, 99, 3}.noise(3, 4)));
  EXPECT_EQ(d.uniform({Role::bonus, 1, 2}), (Draws{5, 6, 7, 0}.uniform({Role::bonus, 1, 2})));
  EXPECT_NE(d.within(0).bits({}), d.bits({}));
  EXPECT_NE(d.within(0).bits({}), d.within(1).bits({}));
}

}  // namespace
}  // namespace foretoken
