// Number formats, operations of the reference, and reuse of memory.
#include <gtest/gtest.h>

#include "kernels/cpu/arena.h"
#include "kernels/error.h"
#include "kernels/reference/reference_backend.h"
#include "tests/kernels/scenario.h"
#include "tests/support/sentence.h"

namespace foretoken::test {
namespace {

TEST(Numbers, bf16_rounds_to_nearest_even) {
  const auto bits = [](std::uint32_t u) {
    float f;
    std::memcpy(&f, &u, 4);
    return bf16(f).bits;
  };
  EXPECT_EQ(bits(0x3f800000), 0x3f80);
  EXPECT_EQ(bits(0x3f808000), 0x3f80) << "a tie goes to the even neighbour";
  EXPECT_EQ(bits(0x3f818000), 0x3f82) << "a tie goes to the even neighbour";
  EXPECT_EQ(bits(0x3f808001), 0x3f81);
  EXPECT_EQ(bits(0x7f7fffff), 0x7f80) << "beyond the greatest number is infinity";
  EXPECT_EQ(bits(0xff800000), 0xff80);
  EXPECT_TRUE(std::isnan(float(bf16(std::numeric_limits<float>::quiet_NaN()))));
  EXPECT_NE(bits(0x7f800001) & 0x7f, 0) << "NaN stays NaN";
  for (std::uint32_t u = 0; u < 65536; ++u) {  // every bf16 survives the round trip
    bf16 b;
    b.bits = std::uint16_t(u);
    if (std::isnan(float(b))) continue;
    ASSERT_EQ(bf16(float(b)).bits, u);
  }
}

TEST(Numbers, f16_is_exact) {
  EXPECT_EQ(float_from_f16(0x3c00), 1.0f);
  EXPECT_EQ(float_from_f16(0xc000), -2.0f);
  EXPECT_EQ(float_from_f16(0x7bff), 65504.0f);
  EXPECT_EQ(float_from_f16(0x0001), 0x1p-24f);
  EXPECT_EQ(float_from_f16(0x03ff), 1023 * 0x1p-24f);
  EXPECT_EQ(float_from_f16(0x0400), 0x1p-14f);
  EXPECT_EQ(float_from_f16(0x7c00), std::numeric_limits<float>::infinity());
  EXPECT_TRUE(std::isnan(float_from_f16(0x7e00)));
  EXPECT_TRUE(std::signbit(float_from_f16(0x8000)));
}

TEST(Reference, product_is_the_sum) {
  const Tensor x = random_tensor({2, 21}, 1), w = random_tensor({3, 21}, 2);
  const Tensor y = ReferenceBackend().linear(x, Weight::dense(w));
  for (int r = 0; r < 2; ++r) {
    for (int o = 0; o < 3; ++o) {
      double sum = 0;
      for (int i = 0; i < 21; ++i) sum += double(x.row<float>(r)[i]) * w.row<float>(o)[i];
      EXPECT_NEAR(y.row<float>(r)[o], sum, 1e-5);
    }
  }
  EXPECT_TRUE(test::says(
      test::sentence_of([&] { ReferenceBackend().linear(random_tensor({2, 20}, 1), Weight::dense(w)); }), "[2, 20]"));
}

TEST(Reference, small_operations_mean_what_they_say) {
  ReferenceBackend k;
  const Tensor x = listed<float>({3, -4}, DType::f32).reshaped({1, 2}), gain = listed<float>({2, 1}, DType::f32);
  const Tensor n = k.rms_norm(x, gain, 0);
  EXPECT_NEAR(n.data<float>()[0], 6 / std::sqrt(12.5), 1e-6);
  EXPECT_NEAR(n.data<float>()[1], -4 / std::sqrt(12.5), 1e-6);
  const Tensor s = k.silu_mul(x);
  EXPECT_NEAR(s.data<float>()[0], 3 / (1 + std::exp(-3.0)) * -4, 1e-6);
  const Tensor a = copy_of(x);
  k.silu_add(a, listed<float>({5}, DType::f32).reshaped({1, 1}));
  EXPECT_NEAR(a.data<float>()[0], 3 / (1 + std::exp(-3.0)) + 5, 1e-6);
  EXPECT_NEAR(a.data<float>()[1], -4 / (1 + std::exp(4.0)) + 5, 1e-6);
  const Tensor q = listed<float>({1, 0, 0, 1}, DType::f32).reshaped({1, 4}), key = copy_of(q);
  k.rope(q, key, layout_of({{0, 0, 2, 1, {}}}, integers({0}).reshaped({1, 1}), 0),
         listed<float>({0.5f, 0.25f}, DType::f32), 4);
  EXPECT_NEAR(q.data<float>()[0], std::cos(1.0), 1e-6);  // the pair (0, 2) is rotated by 2 * 0.5
  EXPECT_NEAR(q.data<float>()[2], std::sin(1.0), 1e-6);
  EXPECT_NEAR(q.data<float>()[1], -std::sin(0.5), 1e-6);  // the pair (1, 3) is rotated by 2 * 0.25
  EXPECT_NEAR(q.data<float>()[3], std::cos(0.5), 1e-6);
}

TEST(Reference, attention_is_a_weighted_mean) {
  ReferenceBackend k;
  Cache cache(1, 3, 2, 1, 2, DType::f32);
  const Tensor keys = listed<float>({1, 0, 0, 1, 5, 5}, DType::f32).reshaped({3, 2}),
               values = listed<float>({1, 10, 2, 20, 900, 900}, DType::f32).reshaped({3, 2});
  k.store(keys, values, cache.layers[0],
          layout_of({chain_row(0, 0), chain_row(0, 1), chain_row(0, 2)}, cache.tables, 0));
  const Tensor q = listed<float>({2, 0, 0, 4}, DType::f32).reshaped({1, 4});  // two query heads of one kv head
  const Tensor y = k.attend(q, cache.layers[0], layout_of({chain_row(0, 1)}, cache.tables, 0), 0.5f);
  const double a = 1 / (1 + std::exp(-1.0)), b = 1 / (1 + std::exp(2.0));  // weight of slot 0: scores 1, 0 and 0, 2
  EXPECT_NEAR(y.data<float>()[0], a * 1 + (1 - a) * 2, 1e-5);
  EXPECT_NEAR(y.data<float>()[1], a * 10 + (1 - a) * 20, 1e-5);
  EXPECT_NEAR(y.data<float>()[2], b * 1 + (1 - b) * 2, 1e-5);
  ScenarioRow tree{0, 2, 1, 1, {2}};  // attends to slots 0 and 2, not to 1
  const Tensor z = k.attend(q, cache.layers[0], layout_of({tree}, cache.tables, 1), 0.0f);
  EXPECT_NEAR(z.data<float>()[0], (1 + 900) / 2.0, 1e-3);
}

// Scores far from 0 are no matter: only their differences count.
TEST(Reference, attention_to_great_scores_is_a_weighted_mean) {
  ReferenceBackend k;
  for (const float sign : {1.0f, -1.0f}) {
    Cache cache(1, 2, 2, 1, 2, DType::f32);
    const Tensor keys = listed<float>({900, 0, 901, 0}, DType::f32).reshaped({2, 2}),
                 values = listed<float>({1, 10, 2, 20}, DType::f32).reshaped({2, 2});
    k.store(keys, values, cache.layers[0], layout_of({chain_row(0, 0), chain_row(0, 1)}, cache.tables, 0));
    const Tensor q = listed<float>({sign, 0}, DType::f32).reshaped({1, 2});
    const Tensor y = k.attend(q, cache.layers[0], layout_of({chain_row(0, 1)}, cache.tables, 0), 1);
    const double first = 1 / (1 + std::exp(double(sign)));
    EXPECT_NEAR(y.data<float>()[0], first * 1 + (1 - first) * 2, 1e-5);
    EXPECT_NEAR(y.data<float>()[1], first * 10 + (1 - first) * 20, 1e-4);
  }
}

// Gives results with a row of marks behind them.
class Marked final : public ReferenceBackend {
 public:
  Tensor allocate(Shape shape, DType dtype) override {
    const Tensor all = Tensor::host(shape.with_rows(shape[0] + 1), dtype);
    std::memset(all.raw(), kMark, std::size_t(all.bytes()));
    results.push_back(all);
    return all.rows(0, shape[0]);
  }
  bool untouched() const {
    return std::ranges::all_of(results, [](const Tensor& t) {
      const Tensor last = t.rows(t.dim(0) - 1, 1);
      return std::all_of(last.data<std::uint8_t>(), last.data<std::uint8_t>() + last.bytes(),
                         [](std::uint8_t b) { return b == kMark; });
    });
  }
  static constexpr std::uint8_t kMark = 0x77;
  std::vector<Tensor> results;
};

TEST(Reference, writes_nothing_behind_a_result) {
  Marked k;
  const Tensor x = random_tensor({3, 16}, 1), wide = random_tensor({4, 16}, 2);
  k.silu_mul(wide.rows(0, 3)), k.rms_norm(x, random_tensor({16}, 3), 0),
      k.linear(x, random_weight(4, 16, DType::f32, 4));
  k.embed(Weight::dense(wide), integers({0, 3, -1})), k.gather(x, integers({2, 0}));
  k.distributions(x, std::vector<Warp>(3));
  Cache cache(1, 2, 2, 1, 16, DType::f32);
  fill(k, cache, 2, 5);
  k.attend(x.rows(0, 1), cache.layers[0], layout_of({chain_row(0, 1)}, cache.tables, 0), 1);
  EXPECT_EQ(k.results.size(), 7u);
  EXPECT_TRUE(k.untouched());
  const Tensor both = random_tensor({3, 16}, 6), before = copy_of(both);
  k.add(both.rows(0, 2), x.rows(0, 2));
  EXPECT_TRUE(same_row(both, 2, before, 2));
  EXPECT_EQ(both.row<float>(1)[15], before.row<float>(1)[15] + x.row<float>(1)[15]);
}

TEST(Reference, rows_of_another_width_are_refused) {
  ReferenceBackend k;
  const Tensor x = random_tensor({2, 4}, 1);
  const auto refused = [&](const char* what, const std::function<void()>& run) {
    EXPECT_EQ(test::sentence_of(run), std::string(what) +
                                          ": expected F32 rows of width 5, got F32 [2, 4]; the weights "
                                          "and the activations of a model must agree in shape");
  };
  refused("add", [&] { k.add(x, random_tensor({2, 5}, 2)); });
  refused("rms_norm", [&] { k.rms_norm(x, random_tensor({5}, 2), 0); });
  refused("linear", [&] { k.linear(x, random_weight(3, 5, DType::f32, 1)); });
}

TEST(Arena, counts_what_is_in_use) {
  const auto arena = std::make_shared<Arena>();
  EXPECT_EQ(arena->memory().held, 0);
  const Tensor kept = arena->allocate({1000}, DType::f32);
  const std::int64_t one = arena->memory().held;
  EXPECT_GE(one, 4000);
  EXPECT_LT(one, 5200);  // blocks are in steps of a quarter
  {
    const Tensor other = arena->allocate({1000}, DType::f32);
  }
  EXPECT_EQ(arena->memory().held, one);
  EXPECT_EQ(arena->memory().most, 2 * one);
  arena->restart_peak();
  EXPECT_EQ(arena->memory().most, one);
}

TEST(Arena, uses_memory_again_and_never_twice) {
  const auto arena = std::make_shared<Arena>();
  std::vector<Tensor> held;
  for (int i = 0; i < 200; ++i) {
    held.push_back(arena->allocate({i * 7}, DType::f32));
    std::memset(held.back().raw(), i, std::size_t(held.back().bytes()));
    if (i % 3 == 2) held.erase(held.begin() + i / 3);
  }
  for (const Tensor& t : held)  // no tensor's memory was overwritten through another
    for (std::int64_t i = 1; i < t.bytes(); ++i) ASSERT_EQ(t.data<char>()[i], t.data<char>()[0]);
#if !defined(__SANITIZE_ADDRESS__)
  void* before = arena->allocate({1000}, DType::f32).raw();
  EXPECT_EQ(arena->allocate({1000}, DType::f32).raw(), before);
#endif
}

}  // namespace
}  // namespace foretoken::test
