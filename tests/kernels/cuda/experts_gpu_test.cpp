// Mixtures of experts on a GPU: against the reference, the bits of a row alone, of the dense copy of codes, and of
// replays.
#include <utility>

#include <gtest/gtest.h>

#include "kernels/formats/activations/activation_format.h"
#include "tests/kernels/cuda/cuda_scenario.h"
#include "tests/kernels/formats/weight_formats.h"
#include "tests/support/sentence.h"

namespace foretoken::test {
namespace {

template <class F> ExpertWeights grouped_weights(Backend& b, int experts, const F& weight_of_expert) {
  std::vector<Weight> all;
  for (int e = 0; e < experts; ++e) all.push_back(b.prepare(weight_of_expert(e)));
  return b.group_experts(std::move(all));
}

ExpertWeights random_experts(Backend& b, int experts, std::int64_t out, std::int64_t in, DType type, unsigned seed) {
  return grouped_weights(b, experts, [&](int e) { return random_weight(out, in, type, seed + unsigned(e)); });
}

Tensor integers_on_host(Backend& b, const Tensor& t) {
  const Tensor host = Tensor::host(t.shape(), t.dtype());
  b.copy(t, host);
  return host;
}

bool same_integers(Backend& b, const Tensor& on_device, const Tensor& want) {
  return std::ranges::equal(integers_on_host(b, on_device).values<std::int32_t>(), want.values<std::int32_t>());
}

class CudaExperts : public Cuda {
 protected:
  void expect_routing(const Tensor& logits, const RoutingRules& rules) {
    RoutingRules there = rules;
    if (rules.correction) there.correction = up(rules.correction);
    const Routing r = cuda->route(up(logits), there), want = reference.route(logits, rules);
    const std::string what = logits.shape().text() + ", " + std::to_string(rules.used);
    EXPECT_TRUE(same_integers(*cuda, r.chosen, want.chosen)) << what;
    EXPECT_TRUE(same_integers(*cuda, r.pairs, want.pairs)) << what;
    EXPECT_TRUE(same_integers(*cuda, r.offsets, want.offsets)) << what;
    EXPECT_TRUE(same_integers(*cuda, r.touched, want.touched)) << what;
    EXPECT_LT(distance(down(r.shares), want.shares), 1e-6) << what;
  }
};

TEST_P(CudaExperts, routes) {
  for (const auto& [experts, used] :
       {std::pair(1, 1), std::pair(6, 3), std::pair(60, 4), std::pair(128, 8), std::pair(300, 300), std::pair(700, 5)})
    for (const int rows : {1, 5, 64, 65, 300, 1500})
      for (const bool renormalized : {false, true})
        if (rows * used < 20000)
          expect_routing(random_tensor({rows, experts}, unsigned(rows), 2), {used, renormalized});
  Tensor ties = random_tensor({40, 70}, 3);
  for (float& v : ties.values<float>()) v = std::round(v);
  for (const int used : {1, 2, 7, 70}) expect_routing(ties, {used, true});
  EXPECT_EQ(cuda->route(cuda->allocate({0, 8}, DType::f32), 2, true).count(), 0);
}

// As DeepSeek-V2 and V3 do. Scores are computed in another way, so near-ties could be chosen in another order; these
// logits have none.
TEST_P(CudaExperts, routes_by_groups_and_corrections) {
  for (const bool sigmoid : {false, true})
    for (const bool corrected : {false, true})
      for (const auto& [experts, groups, used_groups, used] :
           {std::tuple(160, 8, 3, 6), std::tuple(256, 8, 4, 8), std::tuple(12, 3, 3, 5), std::tuple(600, 30, 2, 7)})
        for (const int rows : {1, 64, 200}) {
          RoutingRules rules(used, sigmoid);
          rules.sigmoid = rules.sums_two = sigmoid, rules.scale = 2.5f;
          rules.groups = groups, rules.used_groups = used_groups;
          if (corrected) rules.correction = random_tensor({experts}, 5, 0.3f);
          expect_routing(random_tensor({rows, experts}, unsigned(experts + rows), 2), rules);
        }
}

TEST_P(CudaExperts, routes_what_is_not_a_number_first) {
  const Tensor logits = random_tensor({3, 40}, 1);
  logits.row<float>(0)[17] = kNan, logits.row<float>(1)[39] = kInfinity;
  std::fill_n(logits.row<float>(2), 40, kNan);
  const Routing r = cuda->route(up(logits), 2, true), want = reference.route(logits, 2, true);
  EXPECT_TRUE(same_integers(*cuda, r.chosen, want.chosen));
  const Tensor shares = down(r.shares);
  for (int row = 0; row < 3; ++row) EXPECT_TRUE(std::isnan(shares.row<float>(row)[0])) << row;
}

TEST_P(CudaExperts, grouped_products) {
  const std::tuple<int, int, int, int> shapes[] = {{6, 3, 64, 64},    {6, 3, 200, 136},  {5, 2, 33, 55},
                                                   {128, 8, 96, 256}, {8, 2, 1000, 512}, {3, 1, 40, 24}};
  for (const auto& [experts, used, out, in] : shapes)
    for (const DType type : {DType::f32, DType::bf16, DType::i8}) {
      const ExpertWeights w = random_experts(*cuda, experts, out, in, type, 5),
                          host = random_experts(reference, experts, out, in, type, 5);
      for (const int rows : {1, 2, 8, 9, 16, 17, 64, 65, 150}) {
        const Tensor logits = random_tensor({rows, experts}, unsigned(rows));
        const Routing r = cuda->route(up(logits), used, true), of_host = reference.route(logits, used, true);
        for (const bool by_row : {true, false}) {
          const Tensor x = random_tensor({by_row ? rows : rows * used, in}, 7),
                       truth = reference.grouped_linear(type == DType::f32 ? x : through_bf16(x), of_host, host);
          EXPECT_LT(distance(down(cuda->grouped_linear(up(x), r, w)), truth), type == DType::i8 ? kRounding : kSum)
              << name_of(type) << ' ' << experts << ' ' << out << ' ' << in << ", rows " << rows;
          EXPECT_TRUE(
              same_bits(down(cuda->grouped_linear(up(x), r, w)), down(cuda->grouped_linear(strided(x, 4), r, w))));
        }
      }
    }
}

// Whatever numerics: the order of sums is the same for any number of rows.
TEST_P(CudaExperts, a_row_has_the_same_bits_alone) {
  for (const auto& [type, width] :
       {std::pair(DType::bf16, 96), std::pair(DType::bf16, 40), std::pair(DType::f32, 24)}) {
    const ExpertWeights gate_up = random_experts(*cuda, 9, 2 * width, 128, type, 1),
                        below = random_experts(*cuda, 9, 128, width, type, 20);
    const Tensor h = random_tensor({150, 128}, 3), logits = random_tensor({150, 9}, 4),
                 x = random_tensor({150, 128}, 5);
    const auto run = [&](std::int64_t first, std::int64_t n) {
      const Tensor y = up(copy_of(x.rows(first, n)));
      cuda->expert_feed_forward(y, up(copy_of(h.rows(first, n))),
                                cuda->route(up(copy_of(logits.rows(first, n))), 3, true), gate_up, below);
      return down(y);
    };
    const Tensor all = run(0, 150);
    for (const int n : {1, 3, 8, 9, 16, 17, 33, 64, 65})
      for (const int first : {0, 41, 150 - n}) {
        const Tensor some = run(first, n);
        for (int i = 0; i < n; ++i)
          ASSERT_TRUE(same_row(some, i, all, first + i)) << name_of(type) << ", row " << first + i << " of " << n;
      }
  }
}

TEST_P(CudaExperts, feed_forward) {
  for (const DType type : {DType::f32, DType::bf16})
    for (const auto& [width, in] : {std::pair(96, 256), std::pair(20, 64), std::pair(768, 512)}) {
      const ExpertWeights gate_up = random_experts(*cuda, 6, 2 * width, in, type, 1),
                          below = random_experts(*cuda, 6, in, width, type, 20),
                          host[] = {random_experts(reference, 6, 2 * width, in, type, 1),
                                    random_experts(reference, 6, in, width, type, 20)};
      for (const int rows : {1, 7, 40, 130}) {
        const Tensor h = random_tensor({rows, in}, 3, 0.1f), logits = random_tensor({rows, 6}, 4),
                     x = random_tensor({rows, in}, 5), y = up(x), want = copy_of(x);
        cuda->expert_feed_forward(y, up(h), cuda->route(up(logits), 2, true), gate_up, below);
        reference.expert_feed_forward(want, type == DType::f32 ? h : through_bf16(h), reference.route(logits, 2, true),
                                      host[0], host[1]);
        EXPECT_LT(distance(down(y), want), type == DType::f32 ? kSum : 2 * kRounding) << width << ", rows " << rows;
      }
    }
}

TEST_P(CudaExperts, rms_norm_for) {
  const Tensor x = up(random_tensor({9, 136}, 1)), gain = up(random_tensor({136}, 2));
  const Tensor wide = down(cuda->rms_norm(x, gain, 1e-5f));
  for (const DType type : {DType::f32, DType::bf16}) {
    const Tensor y = cuda->rms_norm_for(x, gain, 1e-5f, cuda->prepare(random_weight(8, 136, type, 3)));
    EXPECT_EQ(y.dtype(), type);
    EXPECT_TRUE(same_bits(down(y), type == DType::f32 ? wide : through_bf16(wide)));
  }
}

TEST_P(CudaExperts, shares_and_gates) {
  for (const int rows : {1, 13, 700}) {
    const Tensor logits = random_tensor({rows, 6}, 1), y = random_tensor({rows * 3, 385}, 2),
                 before = random_tensor({rows, 385}, 3), x = strided(before, 7), want = copy_of(before);
    cuda->add_shares(x, up(y), cuda->route(up(logits), 3, false));
    reference.add_shares(want, y, reference.route(logits, 3, false));
    EXPECT_LT(distance(down(x), want), 2e-6);
    const Tensor gates = random_tensor({rows, 1}, 4, 5), gated = up(before), slow = copy_of(before);
    cuda->add_gated(gated, up(copy_of(y.rows(0, rows))), up(gates));
    reference.add_gated(slow, copy_of(y.rows(0, rows)), gates);
    EXPECT_LT(distance(down(gated), slow), 2e-6);
  }
}

// A recorded body serves other experts.
TEST_P(CudaExperts, replay) {
  const ExpertWeights gate_up = random_experts(*cuda, 40, 2 * 64, 128, DType::bf16, 1),
                      below = random_experts(*cuda, 40, 128, 64, DType::bf16, 70);
  const Weight router = cuda->prepare(random_weight(40, 128, DType::bf16, 9));
  const Mirror m = cuda->mirror(4 * 128 * 4);
  const Tensor x(m.device.owner(), m.device.raw(), {4, 128}, DType::f32, m.device.device()),
      y = cuda->allocate({4, 128}, DType::f32);
  const auto body = [&](const Tensor& from, const Tensor& to) {
    cuda->copy(from, to);
    cuda->expert_feed_forward(to, from, cuda->route(cuda->linear(from, router), 4, true), gate_up, below);
  };
  constexpr std::array<std::int64_t, 1> kBody{1};
  for (int i = 0; i < 6; ++i) {
    const Tensor values = random_tensor({4, 128}, unsigned(i));
    std::memcpy(m.host.raw(), values.raw(), std::size_t(values.bytes()));
    cuda->push(m, values.bytes());
    cuda->replay(kBody, [&] { body(x, y); });
    const Tensor plain = cuda->allocate({4, 128}, DType::f32);
    body(up(values), plain);
    EXPECT_TRUE(same_bits(down(y), down(plain))) << i;
  }
}

TEST_P(CudaExperts, what_has_no_kernel_is_refused) {
  Weight biased = random_weight(16, 64, DType::bf16, 1);
  biased.bias = random_tensor({16}, 2);
  EXPECT_TRUE(says(sentence_of([&] { cuda->group_experts({cuda->prepare(biased)}); }), "experts with biases"));
  const Weight codes = quantize(Weight::dense(random_tensor({16, 128}, 1)), formats::int8());
  EXPECT_TRUE(
      says(sentence_of([&] { cuda->group_experts({cuda->prepare(with_activations(codes, formats::int8_rows()))}); }),
           "experts whose inputs are rounded", "set dtype"));
}

INSTANTIATE_TEST_SUITE_P(Numerics, CudaExperts, ::testing::Bool(),
                         [](const auto& i) { return i.param ? "invariant" : "fast"; });

// Codes of every format, in all forms of scales.
class PackedExperts : public Formats {
 protected:
  std::unique_ptr<Backend> cuda = make_gpu({.device = 0, .invariant = true});

  template <class F> void expect_the_dense_bits(int experts, const F& stored, const std::string& what) {
    const ExpertWeights codes = grouped_weights(*cuda, experts, stored),
                        dense = grouped_weights(*cuda, experts, [&](int e) { return dequantized(stored(e)); });
    for (const int rows : {1, 9, 17, 70}) {
      const Routing r = cuda->route(cuda->upload(random_tensor({rows, experts}, unsigned(rows))), 2, true);
      const Tensor x = cuda->upload(random_tensor({rows, codes.in}, 3));
      ASSERT_TRUE(same_bits(on_host(*cuda, cuda->grouped_linear(x, r, codes)),
                            on_host(*cuda, cuda->grouped_linear(x, r, dense))))
          << what << ", rows " << rows;
    }
  }
};

TEST_P(PackedExperts, have_the_bits_of_the_dense_copy) {
  for (const auto& [out, in] : {std::pair(96, 256), std::pair(41, 128), std::pair(200, 1024)})
    expect_the_dense_bits(
        5, [&](int e) { return quantize(Weight::dense(random_tensor({out, in}, unsigned(e))), format); },
        Shape{out, in}.text());
}

TEST_P(PackedExperts, feed_forward_has_the_bits_of_the_dense_copy) {
  const auto below = [&](int e) {
    return quantize(Weight::dense(random_tensor({256, 128}, unsigned(e), 0.1f)), format);
  };
  const auto gate_up = [&](int e) {
    return quantize(Weight::dense(random_tensor({2 * 128, 256}, unsigned(e), 0.1f)), format);
  };
  const ExpertWeights codes[] = {grouped_weights(*cuda, 5, gate_up), grouped_weights(*cuda, 5, below)},
                      dense[] = {grouped_weights(*cuda, 5, [&](int e) { return dequantized(gate_up(e)); }),
                                 grouped_weights(*cuda, 5, [&](int e) { return dequantized(below(e)); })};
  for (const int rows : {1, 8, 16, 40, 130}) {
    const Routing r = cuda->route(cuda->upload(random_tensor({rows, 5}, unsigned(rows))), 2, true);
    const Tensor h = cuda->upload(random_tensor({rows, 256}, 3)), a = cuda->upload(random_tensor({rows, 256}, 4)),
                 b = cuda->upload(random_tensor({rows, 256}, 4));
    cuda->expert_feed_forward(a, h, r, codes[0], codes[1]), cuda->expert_feed_forward(b, h, r, dense[0], dense[1]);
    ASSERT_TRUE(same_bits(on_host(*cuda, a), on_host(*cuda, b))) << "rows " << rows;
  }
}

// Experts of different forms of scales are multiplied as their dense copies.
TEST_P(PackedExperts, of_different_forms_have_the_bits_of_the_dense_copy) {
  expect_the_dense_bits(
      4,
      [&](int e) {
        const Tensor t = random_tensor({32, 256}, unsigned(e), e % 2 ? 1.0f : 1e4f);
        return e == 3 ? Weight::dense(rounded(t)) : quantize(Weight::dense(t), format);
      },
      "mixed");
}

// Experts of one format whose scales have several forms are all codes in memory.
TEST_P(PackedExperts, of_scales_of_several_types_stay_packed) {
  const bool zeros = format.name() == "int4_asymmetric";
  if (format.name() != "int4" && format.coding() != Coding::e4m3 && !zeros) return;
  const auto stored = [&](int e) {
    const Tensor t = random_tensor({64, 256}, unsigned(e));
    if (zeros && e == 2) std::ranges::for_each(t.values<float>(), [](float& v) { v = v < 0 ? -7.5f : 7.5f; });
    return quantize(Weight::dense(t), format, 0, {}, e == 1 ? DType::f16 : DType::bf16);
  };
  expect_the_dense_bits(4, stored, "scales of several types");
  EXPECT_LE(double(grouped_weights(*cuda, 4, stored).bytes()), 1.1 * 4 * 64 * 256 * (format.bits() == 4 ? 0.5 : 1));
}

// Some scales are beyond those that a bf16 form takes.
TEST_P(PackedExperts, of_integers_with_great_scales_stay_packed) {
  if (format.name() != "int5" && format.name() != "int6" && format.name() != "int8") return;
  const auto stored = [&](int e) {
    const Tensor t = random_tensor({64, 256}, unsigned(e), e == 1 ? 4 : 0.05f);
    return quantize(Weight::dense(t), format);
  };
  expect_the_dense_bits(4, stored, "some great scales");
  EXPECT_LE(double(grouped_weights(*cuda, 4, stored).bytes()), 1.2 * 4 * 64 * 256);
}

INSTANTIATE_TEST_SUITE_P(Formats, PackedExperts, ::testing::ValuesIn(weight_formats()), name_of_format);

}  // namespace
}  // namespace foretoken::test
