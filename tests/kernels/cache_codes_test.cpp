// Quantized caches on hosts: what is stored, and that attention over codes is attention over the numbers for which they
// stand. parity_test.cpp and rows_test.cpp run their tests of stores, moves, rows and trees with codes too.
#include "kernels/cache_codes.h"

#include <bit>

#include <gtest/gtest.h>

#include "kernels/reference/reference_backend.h"
#include "tests/kernels/coded_caches.h"

namespace foretoken::test {
namespace {

struct Head {
  float scale;
  std::vector<std::byte> codes;
  std::vector<float> numbers(DType cache) const {
    std::vector<float> all;
    for (const std::byte c : codes) all.push_back(number_of(cache, c));
    return all;
  }
};
Head head_of(DType cache, const std::vector<float>& x) {
  Head h{0, std::vector<std::byte>(x.size())};
  h.scale = round_head(cache, x, h.codes.data());
  return h;
}

TEST(CacheCodes, IntegersAreTheNearestMultiplesOfTheScale) {
  const Head h = head_of(DType::i8, {127, -127, 0, 2.5f, 3.5f, -2.5f, 126.5f, 1 / 3.0f});
  EXPECT_EQ(h.scale, 1);
  EXPECT_EQ(h.numbers(DType::i8), (std::vector<float>{127, -127, 0, 2, 4, -2, 126, 0})) << "ties go to even";
  const Head small = head_of(DType::i8, {1, -0.25f});
  EXPECT_EQ(small.scale, 1 / 127.0f);
  EXPECT_EQ(small.numbers(DType::i8), (std::vector<float>{127, -32}));
}

TEST(CacheCodes, Fp8IsTheNearestNumberOfE4m3) {
  const Head h = head_of(DType::e4m3, {448, -448, 0, 17, 19, 0x1p-9f, 0x1p-10f, 0x3p-10f, 300});
  EXPECT_EQ(h.scale, 1);
  EXPECT_EQ(h.numbers(DType::e4m3), (std::vector<float>{448, -448, 0, 16, 20, 0x1p-9f, 0, 0x1p-8f, 288}));
  // Every number of the format is stored as it is, with its own code but for the sign of zero.
  for (int c = 0; c < 256; ++c) {
    const float x = number_of(DType::e4m3, std::byte(c));
    if (std::isnan(x)) continue;
    EXPECT_EQ(head_of(DType::e4m3, {448, x}).codes[1], std::byte(c)) << c;
  }
}

TEST(CacheCodes, InputsAreRoundedToBf16First) {
  const float x = 127 + 0x1p-3f;  // bf16: 127
  for (const DType cache : {DType::i8, DType::e4m3})
    EXPECT_EQ(head_of(cache, {x, 1}).scale, head_of(cache, {127, 1}).scale);
}

TEST(CacheCodes, HeadsWithoutAScale) {
  for (const DType cache : {DType::i8, DType::e4m3}) {
    const Head zero = head_of(cache, {0, -0.0f, 0}), tiny = head_of(cache, {1e-38f, -1e-39f});
    for (const Head& h : {zero, tiny}) {
      EXPECT_EQ(std::bit_cast<std::uint32_t>(h.scale), 0u);
      for (const float n : h.numbers(cache)) EXPECT_EQ(n, 0);
    }
    for (const float bad : {kNan, kInfinity, -kInfinity, 3.4e38f}) {  // the last is an infinity in bf16
      const Head h = head_of(cache, {1, bad, 2});
      EXPECT_TRUE(std::isnan(h.scale)) << bad;
      for (const float n : h.numbers(cache)) EXPECT_EQ(n, 0);
    }
  }
}

class Codes : public ::testing::TestWithParam<std::string> {
 protected:
  std::unique_ptr<Backend> backend =
      GetParam() == "reference" ? make_reference_backend() : make_cpu_backend(2, GetParam());
};

const struct {
  int heads, kv_heads, head_size;
} kShapes[] = {{6, 2, 64}, {4, 4, 48}, {3, 1, 32}, {8, 1, 16}, {2, 1, 128}, {26, 2, 96}, {5, 1, 20}, {4, 2, 6}};

// With powers of two as scales, every operation of the rule is exact but those that an f32 cache has too.
TEST_P(Codes, AttendAsTheirNumbersBitForBitWhereScalesArePowersOfTwo) {
  for (const auto& s : kShapes)
    for (const DType dtype : {DType::i8, DType::e4m3}) {
      Cache codes(2, 300, 16, s.kv_heads, s.head_size, dtype), wide(2, 300, 16, s.kv_heads, s.head_size, DType::f32);
      fill_with_simple_scales(*backend, codes, 300);
      fill_with_meant(wide, codes, 300);
      for (const Layout& layout : layouts_of(codes)) {
        const Tensor q = random_tensor({layout.rows, s.heads * s.head_size}, 8, 0.01f);
        const Tensor coded = backend->attend(q, codes.layers[1], layout, 0.25f);
        EXPECT_TRUE(same_bits(coded, backend->attend(q, wide.layers[1], layout, 0.25f)))
            << s.head_size << " " << name_of(dtype);
        EXPECT_GT(distance(coded, random_tensor(coded.shape(), 1)), 0);
      }
    }
}

// Any scales: as the reference attends to the numbers themselves.
TEST_P(Codes, AttendAsTheirNumbers) {
  ReferenceBackend reference;
  for (const auto& s : kShapes)
    for (const DType dtype : {DType::i8, DType::e4m3}) {
      Cache codes(2, 300, 16, s.kv_heads, s.head_size, dtype), wide(2, 300, 16, s.kv_heads, s.head_size, DType::f32);
      fill(*backend, codes, 300, 5);
      fill_with_meant(wide, codes, 300);
      for (const Layout& layout : layouts_of(codes)) {
        const Tensor q = random_tensor({layout.rows, s.heads * s.head_size}, 8);
        EXPECT_LT(distance(backend->attend(q, codes.layers[0], layout, 0.2f),
                           reference.attend(q, wide.layers[0], layout, 0.2f)),
                  3e-6)
            << s.head_size << " " << name_of(dtype);
      }
    }
}

// A key or value that is not finite poisons the rows that attend to it, in the heads that read it, and no others.
TEST_P(Codes, WhatIsNotFiniteBecomesNan) {
  for (const DType dtype : {DType::i8, DType::e4m3})
    for (const bool value : {false, true}) {
      Cache cache(1, 40, 16, 2, 32, dtype);
      fill(*backend, cache, 40, 5);
      const Tensor k = random_tensor({1, 64}, 1), v = random_tensor({1, 64}, 2);
      (value ? v : k).data<float>()[32 + 7] = kNan;  // of head 1
      backend->store(k, v, cache.layers[0], layout_of({chain_row(0, 20)}, cache.tables, 0));
      std::vector<ScenarioRow> rows;
      for (const int slot : {3, 19, 20, 39}) rows.push_back(chain_row(0, slot));
      const Tensor y =
          backend->attend(random_tensor({4, 128}, 3), cache.layers[0], layout_of(rows, cache.tables, 0), 0.2f);
      for (int r = 0; r < 4; ++r)
        for (int i = 0; i < 128; ++i) ASSERT_EQ(std::isnan(y.row<float>(r)[i]), r >= 2 && i >= 64) << r << " " << i;
    }
}

std::vector<std::string> all_backends() {
  std::vector<std::string> names = cpu_instructions();
  names.push_back("reference");
  return names;
}

INSTANTIATE_TEST_SUITE_P(All, Codes, ::testing::ValuesIn(all_backends()), [](const auto& i) { return i.param; });

}  // namespace
}  // namespace foretoken::test
