// Continues parity_test.cpp: mixtures of experts, against their definitions and against linear().
#include <algorithm>
#include <cmath>
#include <numeric>

#include <gtest/gtest.h>

#include "kernels/reference/reference_backend.h"
#include "tests/kernels/scenario.h"
#include "tests/support/sentence.h"

namespace foretoken::test {
namespace {

constexpr int kExperts = 6, kUsed = 3;

std::vector<Weight> some_weights(int experts, std::int64_t out, std::int64_t in, DType dtype, unsigned seed) {
  std::vector<Weight> all;
  for (int e = 0; e < experts; ++e) all.push_back(random_weight(out, in, dtype, seed + unsigned(e)));
  return all;
}

ExpertWeights experts_on(Backend& b, std::vector<Weight> weights) {
  for (Weight& w : weights) w = b.prepare(w);
  return b.group_experts(std::move(weights));
}

Tensor row_of_pair(const Tensor& x, const Routing& r, std::int64_t pair) {
  return x.rows(x.dim(0) == r.count() ? pair : pair / r.used, 1);
}

// Each pair alone, by linear().
Tensor pair_by_pair(Backend& b, const Tensor& x, const Routing& r, const ExpertWeights& w) {
  const Tensor y = Tensor::host({r.count(), w.out}, DType::f32);
  for (std::int64_t p = 0; p < y.dim(0); ++p)
    b.copy(b.linear(row_of_pair(x, r, p), w.matrices[std::size_t(r.chosen.data<std::int32_t>()[p])]), y.rows(p, 1));
  return y;
}

void expect_grouping(const Routing& r) {
  std::vector<std::int32_t> by_expert(std::size_t(r.count()));
  std::iota(by_expert.begin(), by_expert.end(), 0);
  const std::int32_t* const chosen = r.chosen.data<std::int32_t>();
  std::ranges::stable_sort(by_expert, {}, [&](std::int32_t p) { return chosen[p]; });
  EXPECT_TRUE(std::ranges::equal(by_expert, r.pairs.values<std::int32_t>()));
  std::vector<std::int32_t> offsets(std::size_t(r.experts) + 1), touched;
  for (int e = 0; e < r.experts; ++e) {
    const auto n = std::int32_t(std::count(chosen, chosen + r.count(), e));
    offsets[std::size_t(e) + 1] = offsets[std::size_t(e)] + n;
    if (n > 0) touched.push_back(e);
  }
  touched.resize(std::size_t(r.experts), -1);
  EXPECT_TRUE(std::ranges::equal(offsets, r.offsets.values<std::int32_t>()));
  EXPECT_TRUE(std::ranges::equal(touched, r.touched.values<std::int32_t>()));
}

class ParityExperts : public ::testing::TestWithParam<std::string> {
 protected:
  std::unique_ptr<Backend> cpu = make_cpu_backend(2, GetParam());
  ReferenceBackend reference;
  bool rounds() const { return GetParam() == "avx512bf16" || GetParam() == "amx"; }
};

TEST_P(ParityExperts, group_experts) {
  const ExpertWeights w = experts_on(*cpu, some_weights(3, 20, 33, DType::bf16, 1));
  EXPECT_EQ(std::tuple(w.out, w.in, w.matrices.size()), std::tuple(20, 33, std::size_t(3)));
  EXPECT_EQ(w.bytes(), 3 * w.matrices[0].bytes());
  EXPECT_TRUE(says(sentence_of([&] { cpu->group_experts({}); }), "there are no experts"));
  EXPECT_TRUE(says(sentence_of([&] {
                     cpu->group_experts({random_weight(20, 33, DType::f32, 1), random_weight(21, 33, DType::f32, 1)});
                   }),
                   "matrices of [20, 33] and of [21, 33]"));
}

TEST_P(ParityExperts, route) {
  for (const auto& [experts, used] : {std::pair(6, 3), std::pair(128, 8), std::pair(1, 1), std::pair(5, 5)}) {
    for (const int rows : {0, 1, 17}) {
      const Tensor logits = random_tensor({rows, experts}, unsigned(experts + rows), 2);
      for (const bool renormalized : {false, true}) {
        const Routing r = cpu->route(logits, used, renormalized), want = reference.route(logits, used, renormalized);
        EXPECT_EQ(std::tuple(r.experts, r.used, r.rows(), r.count()), std::tuple(experts, used, rows, rows * used));
        expect_grouping(r);
        EXPECT_TRUE(std::ranges::equal(r.chosen.values<std::int32_t>(), want.chosen.values<std::int32_t>()));
        EXPECT_EQ(rows ? distance(r.shares, want.shares) : 0, 0);
        for (int row = 0; row < rows; ++row) {
          double mass = 0, kept = 0;
          for (int e = 0; e < experts; ++e) mass += std::exp(double(logits.row<float>(row)[e]));
          for (int j = 0; j < used; ++j) kept += std::exp(double(logits.row<float>(row)[r.chosen.row<int>(row)[j]]));
          for (int j = 0; j < used; ++j)
            EXPECT_NEAR(
                r.shares.row<float>(row)[j],
                std::exp(double(logits.row<float>(row)[r.chosen.row<int>(row)[j]])) / (renormalized ? kept : mass),
                1e-6);
        }
      }
    }
  }
  EXPECT_TRUE(says(sentence_of([&] { cpu->route(random_tensor({1, 4}, 1), 5, true); }), "5 experts of logits"));
  EXPECT_FALSE(sentence_of([&] { cpu->route(random_tensor({1, 4}, 1), 0, true); }).empty());
}

// The lowest among equals; what is not a number comes first, and its row has no shares.
TEST_P(ParityExperts, route_of_ties_and_nan) {
  const Tensor logits =
      listed<float>({1, 2, 2, 2, 0, 0, 0, 0, 1, kNan, 5, kInfinity, -kInfinity, 3, -kInfinity, -1}, DType::f32)
          .reshaped({4, 4});
  const Routing r = cpu->route(logits, 2, true);
  EXPECT_TRUE(std::ranges::equal(r.chosen.values<std::int32_t>(), std::vector<std::int32_t>{1, 2, 0, 1, 1, 3, 1, 3}));
  EXPECT_EQ(r.shares.row<float>(0)[0], 0.5f);
  EXPECT_EQ(r.shares.row<float>(1)[1], 0.5f);
  EXPECT_TRUE(std::isnan(r.shares.row<float>(2)[0]));
  EXPECT_NEAR(r.shares.row<float>(3)[0] + r.shares.row<float>(3)[1], 1, 1e-6);
}

// By their definition: the keys of a row's experts are the greatest within the groups whose scores are the greatest.
void expect_routed(const Tensor& logits, const RoutingRules& rules, const Routing& r) {
  const int experts = int(logits.dim(1)), size = experts / rules.groups;
  for (int row = 0; row < int(logits.dim(0)); ++row) {
    const float* const v = logits.row<float>(row);
    double mass = 0, kept = 0;
    for (int e = 0; e < experts; ++e) mass += std::exp(double(v[e]));
    const auto score = [&](int e) {
      return rules.sigmoid ? 1 / (1 + std::exp(-double(v[e]))) : std::exp(double(v[e])) / mass;
    };
    const auto key = [&](int e) { return score(e) + (rules.correction ? rules.correction.data<float>()[e] : 0.0f); };
    std::vector<std::pair<double, int>> groups, found;
    for (int g = 0; g < rules.groups; ++g) {
      std::vector<double> own;
      for (int e = g * size; e < (g + 1) * size; ++e) own.push_back(-key(e));
      std::ranges::sort(own);
      groups.emplace_back(rules.sums_two ? own[0] + own[1] : own[0], g);
    }
    std::ranges::sort(groups);
    for (int g = 0; g < rules.used_groups; ++g)
      for (int i = 0; i < size; ++i)
        found.emplace_back(-key(groups[std::size_t(g)].second * size + i), groups[std::size_t(g)].second * size + i);
    std::ranges::sort(found);
    for (int j = 0; j < rules.used; ++j) kept += score(found[std::size_t(j)].second);
    for (int j = 0; j < rules.used; ++j) {
      const int e = found[std::size_t(j)].second;
      EXPECT_EQ(r.chosen.row<std::int32_t>(row)[j], e) << "row " << row << ", expert " << j;
      EXPECT_NEAR(r.shares.row<float>(row)[j], score(e) / (rules.renormalized ? kept : 1) * double(rules.scale), 2e-6);
    }
  }
}

TEST_P(ParityExperts, route_by_groups_and_corrections) {
  for (const bool sigmoid : {false, true})
    for (const bool sums_two : {false, true})
      for (const bool corrected : {false, true})
        for (const auto& [experts, groups, used_groups, used] :
             {std::tuple(160, 8, 3, 6), std::tuple(256, 8, 4, 8), std::tuple(12, 3, 3, 5), std::tuple(8, 4, 2, 4)}) {
          RoutingRules rules(used, sigmoid);
          rules.sigmoid = sigmoid, rules.sums_two = sums_two, rules.scale = 2.5f;
          rules.groups = groups, rules.used_groups = used_groups;
          if (corrected) rules.correction = random_tensor({experts}, 5, 0.3f);
          const Tensor logits = random_tensor({9, experts}, unsigned(experts), 2);
          const Routing r = cpu->route(logits, rules);
          expect_grouping(r);
          expect_routed(logits, rules, r);
        }
  RoutingRules rules(3);
  rules.groups = 4, rules.used_groups = 1;
  EXPECT_TRUE(says(sentence_of([&] { cpu->route(random_tensor({1, 8}, 1), rules); }), "1 of 4 groups of 8 experts"));
  rules.groups = 3;
  EXPECT_TRUE(says(sentence_of([&] { cpu->route(random_tensor({1, 8}, 1), rules); }), "3 groups of 8 experts"));
  rules.groups = 1, rules.correction = random_tensor({7}, 1);
  EXPECT_TRUE(says(sentence_of([&] { cpu->route(random_tensor({1, 8}, 1), rules); }), "a correction [7]"));
}

// Groups of equal scores: the first; a NaN comes first, and its row has no shares.
TEST_P(ParityExperts, route_by_groups_of_ties_and_nan) {
  RoutingRules rules(2);
  rules.sigmoid = true, rules.groups = 4, rules.used_groups = 2;
  const Tensor logits = listed<float>({1, 0, 3, 0, 3, 3, 3, 0, 0, 0, 0, kNan, 0, 1, 1, 0}, DType::f32).reshaped({2, 8});
  const Routing r = cpu->route(logits, rules);
  EXPECT_TRUE(std::ranges::equal(r.chosen.values<std::int32_t>(), std::vector<std::int32_t>{2, 4, 3, 5}));
  EXPECT_EQ(r.shares.row<float>(0)[0], 0.5f);
  EXPECT_TRUE(std::isnan(r.shares.row<float>(1)[0]));
}

TEST_P(ParityExperts, grouped_linear) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::i8}) {
    for (const auto& [out, in] : {std::pair(70, 96), std::pair(33, 55), std::pair(640, 64)}) {
      const std::vector<Weight> weights = some_weights(kExperts, out, in, dtype, 3);
      const ExpertWeights fast = experts_on(*cpu, weights), slow = experts_on(reference, weights);
      for (const int rows : {0, 1, 2, 9, 40}) {
        const Routing r = cpu->route(random_tensor({rows, kExperts}, unsigned(rows)), kUsed, true);
        for (const bool by_row : {true, false}) {
          const Tensor x = random_tensor({by_row ? rows : rows * kUsed, in + 5}, 7).columns(2, in);
          const Tensor y = cpu->grouped_linear(x, r, fast);
          EXPECT_TRUE(same_bits(y, pair_by_pair(*cpu, x, r, fast))) << name_of(dtype) << ", " << rows << " rows";
          const Tensor truth = reference.grouped_linear(rounds() && dtype != DType::f32 ? through_bf16(x) : x, r, slow);
          EXPECT_TRUE(rows == 0 || distance(y, truth) < 5e-6) << name_of(dtype) << ", " << rows << " rows";
        }
      }
    }
  }
  const ExpertWeights w = experts_on(*cpu, some_weights(kExperts, 8, 8, DType::f32, 3));
  const Routing r = cpu->route(random_tensor({2, kExperts}, 1), kUsed, true);
  EXPECT_TRUE(
      says(sentence_of([&] { cpu->grouped_linear(random_tensor({3, 8}, 1), r, w); }), "grouped_linear: [3, 8]"));
  EXPECT_FALSE(sentence_of([&] { cpu->grouped_linear(random_tensor({2, 9}, 1), r, w); }).empty());
}

TEST_P(ParityExperts, add_shares) {
  for (const int rows : {0, 1, 13}) {
    const Routing r = cpu->route(random_tensor({rows, kExperts}, unsigned(rows)), kUsed, false);
    const Tensor before = random_tensor({rows, 40}, 1), y = random_tensor({rows * kUsed, 33}, 2), x = copy_of(before);
    cpu->add_shares(x.columns(4, 33), y, r);
    for (int row = 0; row < rows; ++row)
      for (int i = 0; i < 40; ++i) {
        double sum = before.row<float>(row)[i];
        for (int j = 0; i >= 4 && i < 37 && j < kUsed; ++j)
          sum += double(r.shares.row<float>(row)[j]) * y.row<float>(row * kUsed + j)[i - 4];
        EXPECT_NEAR(x.row<float>(row)[i], sum, 2e-6);
      }
  }
  const Routing r = cpu->route(random_tensor({2, kExperts}, 1), kUsed, false);
  EXPECT_TRUE(says(sentence_of([&] { cpu->add_shares(random_tensor({2, 4}, 1), random_tensor({5, 4}, 1), r); }),
                   "add_shares: [5, 4] to [2, 4]"));
}

TEST_P(ParityExperts, add_gated) {
  const Tensor before = random_tensor({9, 40}, 1), y = random_tensor({9, 33}, 2), gates = random_tensor({9, 1}, 3, 4),
               x = copy_of(before), slow = copy_of(before);
  cpu->add_gated(x.columns(4, 33), y, gates);
  reference.add_gated(slow.columns(4, 33), y, gates);
  EXPECT_LT(distance(x, slow), 1e-6);
  for (int r = 0; r < 9; ++r)
    EXPECT_NEAR(x.row<float>(r)[36],
                before.row<float>(r)[36] + y.row<float>(r)[32] / (1 + std::exp(-double(*gates.row<float>(r)))), 2e-6);
  EXPECT_TRUE(says(sentence_of([&] { cpu->add_gated(x, y, gates); }), "add_gated: [9, 33]"));
}

TEST_P(ParityExperts, expert_feed_forward) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::i8}) {
    for (const int width : {64, 48, 11}) {  // two panels, and halves that end inside a panel
      const ExpertWeights gate_up = experts_on(*cpu, some_weights(kExperts, 2 * width, 96, dtype, 3)),
                          down = experts_on(*cpu, some_weights(kExperts, 96, width, dtype, 30));
      for (const int rows : {0, 1, 2, 33}) {
        const Tensor before = random_tensor({rows, 96}, 5), h = random_tensor({rows, 96}, 6), fused = copy_of(before),
                     plain = copy_of(before);
        const Routing r = cpu->route(random_tensor({rows, kExperts}, unsigned(rows)), kUsed, true);
        cpu->expert_feed_forward(fused, h, r, gate_up, down);
        cpu->add_shares(plain, cpu->grouped_linear(cpu->silu_mul(cpu->grouped_linear(h, r, gate_up)), r, down), r);
        EXPECT_TRUE(same_bits(fused, plain)) << name_of(dtype) << ", width " << width << ", " << rows << " rows";
        EXPECT_FALSE(rows > 0 && same_bits(fused, before));
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Cpu, ParityExperts, ::testing::ValuesIn(cpu_instructions()),
                         [](const auto& i) { return i.param; });

}  // namespace
}  // namespace foretoken::test
