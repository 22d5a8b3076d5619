// Continues parity_test.cpp: rotations of a part of a head, caps of scores and logits, and gates by gelu.
#include <algorithm>

#include <gtest/gtest.h>

#include "kernels/reference/reference_backend.h"
#include "tests/kernels/scenario.h"

namespace foretoken::test {
namespace {

class ParityRules : public ::testing::TestWithParam<std::string> {
 protected:
  std::unique_ptr<Backend> cpu = make_cpu_backend(2, GetParam());
  ReferenceBackend reference;
};

// Of the first numbers of each head, with a factor.
TEST_P(ParityRules, rope_of_a_part_of_a_head) {
  constexpr int kHead = 48, kRotated = 36;
  std::vector<float> f;
  for (int i = 0; i < kRotated / 2; ++i) f.push_back(1 / float(i + 1));
  const RotaryRules rotation(listed(f, DType::f32), 1.25f);
  const Layout layout =
      layout_of({chain_row(0, 0), chain_row(0, 7), chain_row(0, 300)}, integers({0}).reshaped({1, 1}), 0);
  const Tensor qk = random_tensor({3, 3 * kHead}, 1), fast = copy_of(qk), slow = copy_of(qk);
  cpu->rope(fast.columns(0, 2 * kHead), fast.columns(2 * kHead, kHead), layout, rotation, kHead);
  reference.rope(slow.columns(0, 2 * kHead), slow.columns(2 * kHead, kHead), layout, rotation, kHead);
  EXPECT_LT(distance(fast, slow), 5e-7);
  for (int h = 0; h < 3; ++h)
    for (int i = kRotated; i < kHead; ++i)
      EXPECT_EQ(slow.row<float>(2)[h * kHead + i], qk.row<float>(2)[h * kHead + i]);
  for (int h = 0; h < 3; ++h) EXPECT_EQ(slow.row<float>(0)[h * kHead], 1.25f * qk.row<float>(0)[h * kHead]);
  const double a = qk.row<float>(1)[2], b = qk.row<float>(1)[2 + kRotated / 2], angle = 7 * double(f[2]);
  EXPECT_NEAR(slow.row<float>(1)[2], 1.25 * (a * std::cos(angle) - b * std::sin(angle)), 1e-5);
}

// Scores far below the cap, near it and far above it; and with windows and a tree.
TEST_P(ParityRules, attend_with_capped_scores) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::i8, DType::e4m3}) {
    Cache cache(2, 600, 16, 2, 48, dtype);
    fill(reference, cache, 590, 7);
    std::vector<ScenarioRow> rows;
    for (const int slot : {0, 1, 17, 255, 256, 589}) rows.push_back(chain_row(0, slot));
    rows.push_back({1, 40, 30, 30, {0b10000000001}});
    const Layout whole = layout_of(rows, cache.tables, 1);
    const Tensor q = random_tensor({whole.rows, 6 * 48}, 8);
    for (const float cap : {0.05f, 1.0f, 50.0f})
      for (const Layout& layout : {whole, windowed(whole, 9)}) {
        const AttentionRules rules(0.3f, cap);
        const Tensor fast = cpu->attend(q, cache.layers[1], layout, rules),
                     slow = reference.attend(q, cache.layers[1], layout, rules);
        EXPECT_LT(distance(fast, slow), 3e-6) << name_of(dtype) << ", cap " << cap;
        if (cap < 2) {
          EXPECT_GT(distance(slow, reference.attend(q, cache.layers[1], layout, 0.3f)), 1e-3);
        }
        EXPECT_LT(distance(cpu->attention_mass(q, cache.layers[1], layout, rules),
                           reference.attention_mass(q, cache.layers[1], layout, rules)),
                  3e-6);
      }
  }
}

// Far below the scores, among them, far above them, and so far that nothing of the values is left.
TEST_P(ParityRules, attend_with_sinks) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::i8, DType::e4m3}) {
    Cache cache(2, 600, 16, 2, 48, dtype);
    fill(reference, cache, 590, 7);
    std::vector<ScenarioRow> rows;
    for (const int slot : {0, 1, 17, 255, 256, 589}) rows.push_back(chain_row(0, slot));
    rows.push_back({1, 40, 30, 30, {0b10000000001}});
    const Layout whole = layout_of(rows, cache.tables, 1);
    const Tensor q = random_tensor({whole.rows, 6 * 48}, 8),
                 sinks = listed(std::vector<float>{-50, 0, 2, 5, 12, 500}, DType::f32);
    for (const Layout& layout : {whole, windowed(whole, 9)}) {
      const AttentionRules rules(0.3f, 0, sinks);
      const Tensor fast = cpu->attend(q, cache.layers[1], layout, rules),
                   slow = reference.attend(q, cache.layers[1], layout, rules),
                   without = reference.attend(q, cache.layers[1], layout, 0.3f);
      EXPECT_LT(distance(fast, slow), 3e-6) << name_of(dtype);
      EXPECT_LT(distance(slow.columns(0, 48), without.columns(0, 48)), 1e-6) << "of the first head";
      EXPECT_GT(distance(slow.columns(96, 48), without.columns(96, 48)), 1e-3);
      for (int r = 0; r < layout.rows; ++r)
        for (int i = 240; i < 288; ++i) ASSERT_EQ(fast.row<float>(r)[i], 0.0f) << r;
      EXPECT_LT(distance(cpu->attention_mass(q, cache.layers[1], layout, rules),
                         reference.attention_mass(q, cache.layers[1], layout, rules)),
                3e-6);
    }
  }
}

// By their definition: a slot and a sink of the score s and t share the weight as e^s and e^t do.
TEST_P(ParityRules, a_sink_takes_the_weight_of_a_slot_of_its_score) {
  Cache cache(1, 16, 16, 1, 16, DType::f32);
  fill(reference, cache, 4, 3);
  const Layout layout = layout_of({chain_row(0, 0)}, cache.tables, 0);
  const Tensor q = random_tensor({1, 16}, 5);
  const Tensor value = reference.attend(q, cache.layers[0], layout, 1.0f);  // of the only slot
  const Tensor sinks = listed(std::vector<float>{0.5f}, DType::f32);
  const AttentionRules zero(0.0f, 0, sinks);  // each score is 0
  const Tensor y = cpu->attend(q, cache.layers[0], layout, zero);
  for (int i = 0; i < 16; ++i) EXPECT_NEAR(y.data<float>()[i], value.data<float>()[i] / (1 + std::exp(0.5f)), 1e-6);
}

TEST_P(ParityRules, clamped_mul) {
  for (int width : {1, 17, 385, 1024}) {
    const Tensor x = random_tensor({23, 2 * width}, 3, 6);
    x.row<float>(0)[0] = 100, x.row<float>(1)[0] = -100, x.row<float>(2)[0] = 0, x.row<float>(3)[width] = -100;
    EXPECT_LT(distance(cpu->clamped_mul(x, 1.702f, 7), reference.clamped_mul(x, 1.702f, 7)), 1e-6) << width;
  }
  const Tensor x = Tensor::host({1, 4}, DType::f32);
  const float gates[] = {1, 9, -8, 2};  // of two: 1 and 9, which is 7; up -8, which is -7, and 2
  std::ranges::copy(gates, x.data<float>());
  const Tensor y = reference.clamped_mul(x, 1.702f, 7);
  EXPECT_NEAR(y.data<float>()[0], 1 / (1 + std::exp(-1.702)) * -6, 1e-5);
  EXPECT_NEAR(y.data<float>()[1], 7 / (1 + std::exp(-1.702 * 7)) * 3, 1e-5);
}

TEST_P(ParityRules, gelu_mul) {
  for (int width : {1, 17, 385, 1024}) {
    const Tensor x = random_tensor({23, 2 * width}, 3, 6);
    x.row<float>(0)[0] = 100, x.row<float>(1)[0] = -100, x.row<float>(2)[0] = 0;
    EXPECT_LT(distance(cpu->gelu_mul(x), reference.gelu_mul(x)), 1e-6) << width;
  }
  const Tensor x = Tensor::host({1, 2}, DType::f32);  // torch.nn.functional.gelu(torch.tensor(-1.), approximate="tanh")
  x.data<float>()[0] = -1, x.data<float>()[1] = 2;
  EXPECT_NEAR(reference.gelu_mul(x).data<float>()[0], 2 * -0.15880801, 1e-6);
}

TEST_P(ParityRules, softcap) {
  for (int width : {1, 17, 385}) {
    const Tensor x = random_tensor({23, width + 3}, 3, 80);
    x.row<float>(0)[2] = 1e-4f, x.row<float>(1)[2] = -1e30f, x.row<float>(2)[2] = 0;
    const Tensor fast = copy_of(x), slow = copy_of(x);
    cpu->softcap(fast.columns(2, width), 30), reference.softcap(slow.columns(2, width), 30);
    EXPECT_LT(distance(fast, slow), 1e-6) << width;
    for (int r = 0; r < 23; ++r)
      for (int i = 0; i < width; ++i) {
        const double v = x.row<float>(r)[2 + i], capped = slow.row<float>(r)[2 + i];
        ASSERT_NEAR(capped, 30 * std::tanh(v / 30), 1e-5);
        ASSERT_NEAR(fast.row<float>(r)[2 + i], capped, 3e-7 * std::abs(capped)) << v;
      }
    EXPECT_EQ(fast.row<float>(22)[1], x.row<float>(22)[1]) << "outside of the view";
  }
}

// Logits of tokens that cannot be.
TEST_P(ParityRules, softcap_keeps_minus_infinity) {
  const Tensor x = random_tensor({2, 37}, 4);
  x.row<float>(0)[3] = x.row<float>(0)[36] = x.row<float>(1)[0] = -INFINITY;
  for (Backend* b : {static_cast<Backend*>(cpu.get()), static_cast<Backend*>(&reference)}) {
    const Tensor y = copy_of(x);
    b->softcap(y, 4);
    for (int r = 0; r < 2; ++r)
      for (int i = 0; i < 37; ++i) EXPECT_EQ(std::isinf(y.row<float>(r)[i]), std::isinf(x.row<float>(r)[i])) << i;
    EXPECT_LT(y.row<float>(0)[36], 0);
  }
}

TEST_P(ParityRules, scale) {
  const Tensor x = random_tensor({23, 40}, 3), y = copy_of(x);
  cpu->scale(y.columns(2, 17), 3.5f);
  for (int r = 0; r < 23; ++r) {
    EXPECT_EQ(y.row<float>(r)[5], 3.5f * x.row<float>(r)[5]);
    EXPECT_EQ(y.row<float>(r)[19], x.row<float>(r)[19]) << "outside of the view";
  }
}

INSTANTIATE_TEST_SUITE_P(Cpu, ParityRules, ::testing::ValuesIn(cpu_instructions()),
                         [](const auto& i) { return i.param; });

}  // namespace
}  // namespace foretoken::test
