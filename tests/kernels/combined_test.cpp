// Sums and draws over numbers that two distributions give every token: the bits of the same sums token by token, and
// the law of the draws.
#include <algorithm>
#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "experiments/conformance/enumerator.h"
#include "kernels/lane.h"
#include "kernels/reference/reference_backend.h"
#include "tests/kernels/scenario.h"

namespace foretoken::test {
namespace {

// Two rows of logits and their distributions.
struct Pair {
  Tensor a, b;
  Distribution p, q;
  explicit Pair(int vocab)
      : a(random_tensor({1, vocab}, 1, 2)),
        b(random_tensor({1, vocab}, 2, 2)),
        p{a.data<float>(), normalize(a.data<float>(), vocab, {1}), vocab},
        q{b.data<float>(), normalize(b.data<float>(), vocab, {1.2f, 50}), vocab} {}
};

const auto least = [](double p, double q) { return std::min(p, 0.75 * q); };
const auto above = [](double p, double q) { return std::max(0.0, p - 0.75 * q); };

// Every sum of `lane` over f(p, q), alone and among others, is the sum over tokens.
template <class P, class Q> void expect_sums(HostLane& lane, const P& p, const Q& q, int vocab) {
  const auto all = lane.sums<4>(
      combined(p, q, [](double x, double y) { return std::array<double, 4>{least(x, y), above(x, y), x, y}; }));
  const auto token_by_token = [&](const auto& f) {
    return lane.sum([&](Token x) { return f(double(p(x)), double(q(x))); });
  };
  EXPECT_EQ(all[0], token_by_token(least)) << vocab;
  EXPECT_EQ(all[1], token_by_token(above)) << vocab;
  EXPECT_EQ(all[2], token_by_token([](double x, double) { return x; })) << vocab;
  EXPECT_EQ(all[3], token_by_token([](double, double y) { return y; })) << vocab;
  EXPECT_EQ(lane.sum(combined(p, q, above)), all[1]) << vocab;
}

class Combining : public ::testing::TestWithParam<std::string> {};

TEST_P(Combining, SumsAreThoseTokenByToken) {
  const auto backend = GetParam() == "reference" ? make_reference_backend() : make_cpu_backend(1);
  for (const int vocab : {1, 7, 256, 1000, 4097}) {
    const Pair pair(vocab);
    HostLane lane(*backend, vocab, {});
    expect_sums(lane, pair.p, pair.q, vocab);
    auto r = lane.open(pair.p, pair.q);
    lane.reject_guess(r, vocab / 2);
    expect_sums(lane, r, pair.q, vocab);
    lane.reject_draw(r);
    expect_sums(lane, r, OneHot{vocab / 3}, vocab);
  }
}

// The least token at which the running sum of the weights exceeds the same part of their sum.
TEST_P(Combining, AWeightedDrawInvertsTheRunningSum) {
  const auto backend = GetParam() == "reference" ? make_reference_backend() : make_cpu_backend(1);
  const int vocab = 700;
  const Pair pair(vocab);
  const auto weights = combined(pair.p, pair.q, above);
  double mass = 0;
  for (Token x = 0; x < vocab; ++x) mass += weights(x);
  ASSERT_LT(mass, 0.95);  // so that a draw that forgot to scale by it would show
  for (std::uint32_t seed = 0; seed < 100; ++seed) {
    const Draws draws{seed, 1, 2, 0};
    HostLane lane(*backend, vocab, draws);
    const DrawName name{Role::residual, 3, 0};
    double cdf = 0;
    Token x = -1;
    while (cdf <= draws.uniform(name) * mass) cdf += weights(++x);
    EXPECT_EQ(lane.draw_weighted(weights, name), x) << seed;
    EXPECT_EQ(lane.draw_weighted([](Token) { return 0.0; }, name), -1);
  }
}

INSTANTIATE_TEST_SUITE_P(Host, Combining, ::testing::Values("reference", "cpu"), [](const auto& i) { return i.param; });

TEST(Lane, AWeightedDrawHasTheWeightsAsItsLaw) {
  ReferenceBackend backend;
  conformance::Enumerator chance;
  backend.set_chance(&chance);
  const int vocab = 6;
  const Pair pair(vocab);
  const auto weights = combined(pair.p, pair.q, above);
  std::vector<double> law(vocab, 0.0);
  int nothing = 0;
  do {
    HostLane lane(backend, vocab, {});
    nothing += lane.draw_weighted([](Token) { return 0.0; }, {Role::residual, 1, 0}) == -1;
    const Token x = lane.draw_weighted(weights, {Role::residual, 0, 0});
    law[std::size_t(x)] += chance.weight();
  } while (chance.next());
  const double mass = vocabulary_sum(weights, vocab);
  EXPECT_GT(nothing, 1);
  for (Token x = 0; x < vocab; ++x) EXPECT_NEAR(law[std::size_t(x)], weights(x) / mass, 1e-14) << x;
}

}  // namespace
}  // namespace foretoken::test
