// Quantized caches on the GPU: attention over codes is, bit for bit from capability 9.0 on, attention over a bf16 cache
// of the numbers for which they stand, where their scales are powers of two; what is not finite becomes NaN.
// attend_gpu_test.cpp, rope_attend_gpu_test.cpp and cuda_gpu_test.cpp run their tests of stores, moves, rows and trees
// with codes too.
#include <gtest/gtest.h>

#include "kernels/cuda/attention/routes.h"
#include "kernels/reference/reference_backend.h"
#include "tests/kernels/coded_caches.h"
#include "tests/kernels/cuda/rope_attend.h"
#include "tests/support/sentence.h"

namespace foretoken::test {
namespace {

Tensor attended(const Tensor& q, const KvLayer& kv, const Layout& layout) {
  const Tensor y = gpu().attend(gpu().upload(q), on_gpu(kv), on_gpu(layout), 0.125f),
               back = Tensor::host(y.shape(), y.dtype());
  gpu().copy(y, back);
  return back;
}

// Scores of codes are summed in another order within each sixteen numbers of a head (cache_codes.cuh). That changes no
// bit where a tensor core sums sixteen products at once; those below capability 9.0 sum eight.
bool sums_sixteen() {
  const Cache cache(1, 8, 8, 1, 64, DType::i8);
  const Layout layout = layout_of({chain_row(0, 0)}, cache.tables, 0);
  return coded_stream_plan(gpu(), gpu().upload(random_tensor({1, 64}, 1)), on_gpu(cache.layers[0]), on_gpu(layout))
             .architecture >= 90;
}

TEST(QuantizedCache, AttendsAsItsNumbersBitForBitWhereScalesArePowersOfTwo) {
  ReferenceBackend reference;
  for (const auto& [heads, kv_heads, head_size] :
       {std::array{8, 2, 128}, {6, 2, 64}, {4, 4, 48}, {8, 1, 16}, {4, 2, 256}, {3, 1, 96}})
    for (const DType dtype : {DType::i8, DType::e4m3}) {
      Cache codes(2, 300, 16, kv_heads, head_size, dtype), wide(2, 300, 16, kv_heads, head_size, DType::bf16);
      fill_with_simple_scales(reference, codes, 300);
      fill_with_meant(wide, codes, 300);
      for (const Layout& layout : layouts_of(codes)) {
        const Tensor q = random_tensor({layout.rows, heads * head_size}, 8, 0.01f),
                     y = attended(q, codes.layers[1], layout);
        const Tensor same = attended(q, wide.layers[1], layout);
        if (sums_sixteen())
          EXPECT_TRUE(same_bits(y, same)) << head_size << " " << name_of(dtype);
        else
          EXPECT_LT(distance(y, same), 8e-3) << head_size << " " << name_of(dtype);
        EXPECT_LT(distance(y, reference.attend(through_bf16(q), wide.layers[1], layout, 0.125f)), 8e-3);
      }
    }
}

TEST(QuantizedCache, StoresWhatTheHostStores) {
  ReferenceBackend reference;
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN(), kInfinity = std::numeric_limits<float>::infinity();
  for (const int head_size : {6, 20, 64, 128, 256})
    for (const DType dtype : {DType::i8, DType::e4m3})
      for (const float size : {1.0f, 1e-37f, 1e-30f, 1e30f, 1e38f}) {
        Cache cache(1, 64, 16, 3, head_size, dtype);
        const Tensor pool = gpu().upload(cache.pool), k = random_tensor({40, 3 * head_size}, 1, size),
                     v = random_tensor({40, 3 * head_size}, 2, size);
        for (int i = 0; i < head_size; ++i) k.row<float>(1)[i] = 0, v.row<float>(2)[head_size + i] = -0.0f;
        k.row<float>(3)[1] = kNan, v.row<float>(4)[head_size + 2] = kInfinity, k.row<float>(5)[0] = -kInfinity;
        for (int i = 1; i < head_size; ++i)
          k.row<float>(6)[i] = k.row<float>(6)[0] * (float(i % 200) + 0.5f) / 127;  // ties
        std::vector<ScenarioRow> rows;
        for (int slot = 0; slot < 40; ++slot) rows.push_back(chain_row(0, slot));
        const Layout layout = layout_of(rows, cache.tables, 0);
        KvLayer there = cache.layers[0];
        there.pool = pool;
        gpu().store(gpu().upload(k), gpu().upload(v), there, on_gpu(layout));
        reference.store(k, v, cache.layers[0], layout);
        const Tensor back = Tensor::host(pool.shape(), DType::u8);
        gpu().copy(pool, back);
        // A NaN may have any bits, so scales are compared as numbers.
        for (int slot = 0; slot < 40; ++slot)
          for (const KvPlane& plane : KvPlanes(cache.layers[0]))
            for (std::int64_t h = 0; h < 3; ++h) {
              const std::byte* want =
                  slot_address(cache.layers[0], plane, cache.tables.data<std::int32_t>(), slot) + h * 16 * plane.bytes;
              const std::byte* got = back.data<std::byte>() + (want - cache.pool.data<std::byte>());
              float a = 0, b = 0;
              if (plane.bytes == 4) std::memcpy(&a, want, 4), std::memcpy(&b, got, 4);
              ASSERT_TRUE(std::isnan(a) ? std::isnan(b) : std::memcmp(want, got, std::size_t(plane.bytes)) == 0)
                  << head_size << " " << name_of(dtype) << ", slot " << slot << ", head " << h << ", plane at "
                  << plane.begin << ": " << a << " " << b;
            }
      }
}

TEST(QuantizedCache, WhatIsNotFiniteBecomesNan) {
  ReferenceBackend reference;
  for (const DType dtype : {DType::i8, DType::e4m3})
    for (const bool value : {false, true}) {
      Cache cache(1, 140, 16, 2, 64, dtype);
      fill(reference, cache, 140, 5);
      const Tensor k = random_tensor({1, 128}, 1), v = random_tensor({1, 128}, 2);
      (value ? v : k).data<float>()[64 + 7] = std::numeric_limits<float>::quiet_NaN();  // of head 1
      reference.store(k, v, cache.layers[0], layout_of({chain_row(0, 20)}, cache.tables, 0));
      std::vector<ScenarioRow> rows;
      for (const int slot : {3, 19, 20, 39, 139}) rows.push_back(chain_row(0, slot));
      const Tensor y = attended(random_tensor({5, 256}, 3), cache.layers[0], layout_of(rows, cache.tables, 0));
      for (int r = 0; r < 5; ++r)
        for (int i = 0; i < 256; ++i) ASSERT_EQ(std::isnan(y.row<float>(r)[i]), r >= 2 && i >= 128) << r << " " << i;
    }
}

TEST(QuantizedCache, ScalesThatAreNoWholeWordsAreRefused) {
  Cache cache(1, 16, 16, 1, 64, DType::i8);
  fill(*make_cpu_backend(1), cache, 4, 1);
  KvLayer kv = cache.layers[0];
  kv.value_scales += 2;
  const std::string said = test::sentence_of(
      [&] { (void)attended(random_tensor({1, 64}, 1), kv, layout_of({chain_row(0, 3)}, cache.tables, 0)); });
  EXPECT_TRUE(test::says(said, "scales", "multiples of 4", std::to_string(kv.value_scales)));
}

TEST(QuantizedCache, RopeAttendIsRopeStoreAndAttend) {
  std::vector<int> begins(70), ones(70, 1);
  for (int s = 0; s < 70; ++s) begins[std::size_t(s)] = s * 37 % 900;
  for (const auto& [cache, head] :
       {std::pair{DType::i8, 64}, {DType::i8, 128}, {DType::e4m3, 64}, {DType::e4m3, 128}}) {
    for (const int slot : {0, 63, 64, 127, 128, 500, 1023, 3000})
      compare_rope_attend({.head_size = head, .cache = cache}, {{slot}, {1}}, unsigned(slot));
    for (const int rows : {2, 5, 8})
      for (const int window : {0, 100})
        compare_rope_attend({.head_size = head, .window = window, .padding = 3, .cache = cache},
                            {{250, 0, 64}, {rows, 1, rows}}, 1);
    compare_rope_attend({.head_size = head, .kv_heads = 8, .cache = cache}, {begins, ones}, 3);
  }
}

}  // namespace
}  // namespace foretoken::test
