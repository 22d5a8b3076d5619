// Operations of a lane that verifiers are made of, each by its definition.
#include "kernels/lane.h"

#include <cmath>

#include <gtest/gtest.h>

#include "tests/kernels/scenario.h"

namespace foretoken::test {
namespace {

// Probabilities as a distribution: the softmax of their logarithms.
struct Law {
  explicit Law(const std::vector<double>& p) : logits(Tensor::host({1, std::int64_t(p.size())}, DType::f32)) {
    for (std::size_t x = 0; x < p.size(); ++x) logits.data<float>()[x] = float(std::log(p[x]));
  }
  Distribution operator*() const {
    const float* const l = logits.data<float>();
    return {l, normalize(l, int(logits.dim(1)), {1}), int(logits.dim(1))};
  }
  Tensor logits;
};

struct Lanes : ::testing::Test {
  std::unique_ptr<Backend> backend = make_reference_backend();
  HostLane lane{*backend, 4, Draws{7, 1, 3, 0}};
  const Law p{{0.4, 0.3, 0.2, 0.1}}, q{{0.1, 0.2, 0.3, 0.4}};

  template <class R> void expect(const R& r, std::vector<double> weights) const {
    double sum = 0;
    for (const double w : weights) sum += w;
    for (std::size_t x = 0; x < weights.size(); ++x) EXPECT_NEAR(r(Token(x)), weights[x] / sum, 1e-6) << x;
  }
};

TEST_F(Lanes, EveryHoldsWhereEachHolds) {
  const auto odd = [](int i) { return i % 2 == 1; };
  const auto small = [](int i) { return i < 3; };
  EXPECT_TRUE(lane.every(0, odd)) << "of nothing";
  EXPECT_TRUE(lane.every(3, small));
  EXPECT_FALSE(lane.every(4, small)) << "all but the last";
  EXPECT_FALSE(lane.every(2, odd)) << "all but the first";
  std::vector<int> met;
  lane.each(3, [&](int i) { met.push_back(i); });
  EXPECT_EQ(met, (std::vector<int>{0, 1, 2}));
}

TEST_F(Lanes, AGuessHasAllMassOnItsToken) {
  const OneHot guess{2};
  expect(guess, {0, 0, 1, 0});
  auto r = lane.open(*p, guess);
  lane.reject_guess(r, 2);
  expect(r, {0.4, 0.3, 0, 0.1});
  lane.reject_guess(r, 0);
  expect(r, {0, 0.3, 0, 0.1});
  auto drawn = lane.open(*p, guess);
  lane.reject_draw(drawn);  // as if the guess had been drawn from its own law
  expect(drawn, {0.4, 0.3, 0, 0.1});
}

TEST_F(Lanes, ARejectedDrawSubtractsItsLaw) {
  auto r = lane.open(*p, *q);
  expect(r, {0.4, 0.3, 0.2, 0.1});
  lane.reject_draw(r);
  expect(r, {0.3, 0.1, 0, 0});
  lane.reject_draw(r);  // (0.75 - 0.1)+, (0.25 - 0.2)+
  expect(r, {0.65, 0.05, 0, 0});
}

// Siblings without replacement: the second was drawn from q without the first, over what is left of it.
TEST_F(Lanes, ARejectedDrawWithoutReplacementSubtractsWhatWasLeft) {
  auto r = lane.open(*p, *q);
  lane.reject_once(r, 1, 1);
  expect(r, {0.3, 0, 0, 0});  // (p - q)+ is (0.3, 0.1, 0, 0), and token 1 is gone
  auto s = lane.open(*p, *q);
  lane.reject_once(s, 3, 1);  // (0.3, 0.1, 0, 0) over 0.4, of which q / 0.6 without token 3 is subtracted
  lane.reject_once(s, 2, 0.6);
  expect(s, {0.75 - 0.1 / 0.6, 0, 0, 0});
  auto all = lane.open(*p, *q);
  lane.reject_once(all, 3, 0);  // q had nothing else left, but for rounding: the token alone is taken out
  expect(all, {0.4, 0.3, 0.2, 0});
}

// A rejection that had probability 0 but for rounding leaves nothing: the target itself is drawn from.
TEST_F(Lanes, WhereNothingIsLeftTheTargetIs) {
  auto r = lane.open(*p, *p);
  lane.reject_draw(r);
  expect(r, {0.4, 0.3, 0.2, 0.1});
  auto guesses = lane.open(*p, *p);
  for (Token x = 0; x < 4; ++x) lane.reject_guess(guesses, x);
  expect(guesses, {0.4, 0.3, 0.2, 0.1});
}

TEST_F(Lanes, InnerLanesHaveDrawsOfTheirOwnAndShareTheGuesses) {
  HostLane inner = lane.within(1);
  EXPECT_FALSE(lane.overflown());
  auto r = inner.open(*p, *p);
  for (int i = 0; i <= kMostGuesses; ++i) inner.reject_guess(r, 1);
  EXPECT_TRUE(inner.overflown());
  EXPECT_TRUE(lane.overflown());
  int same = 0;
  for (std::uint32_t n = 0; n < 64; ++n) {
    HostLane outer(*backend, 4, Draws{7, 1, n, 0});
    HostLane within = outer.within(1);
    same += outer.draw(*q, {Role::bonus, 1, 0}) == within.draw(*q, {Role::bonus, 1, 0});
  }
  EXPECT_TRUE(same > 5 && same < 40) << "draws agree by chance: about 19 of 64 times, here " << same;
}

TEST_F(Lanes, WeightsWithoutMassGiveNoToken) {
  EXPECT_EQ(lane.draw_weighted([](Token) { return 0.0; }, {Role::bonus, 0, 0}), -1);
  for (std::uint32_t n = 0; n < 32; ++n)
    EXPECT_EQ(lane.draw_weighted([](Token x) { return x == 2 ? 1e-9 : 0.0; }, {Role::bonus, n, 0}), 2);
}

// What is left to draw from ends with the last token that has mass.
TEST_F(Lanes, SiblingsEndWithTheMass) {
  const Law two{{0.7, 0.3, 0, 0}};
  for (const bool race : {false, true}) {
    std::vector<Token> drawn(4, -7);
    const auto write = [&](int j, Token x) { drawn[std::size_t(j)] = x; };
    if (race)
      lane.race_siblings(*two, 4, 9, write);
    else
      lane.siblings(*two, 4, {Role::draft, 1, 0}, write);
    EXPECT_EQ(drawn[0] + drawn[1], 1) << "tokens 0 and 1 in some order";
    EXPECT_NE(drawn[0], drawn[1]);
    EXPECT_TRUE(drawn[2] == -1 && drawn[3] == -1);
  }
}

TEST_F(Lanes, AProbabilityIsThatOfATrueAnswer) {
  int accepted = 0;
  for (std::uint32_t n = 0; n < 1000; ++n) {
    EXPECT_TRUE(lane.accept(1, {Role::accept, n, 0}) && lane.accept(2, {Role::accept, n, 0}));
    EXPECT_FALSE(lane.accept(0, {Role::accept, n, 0}));
    accepted += lane.accept(0.25, {Role::accept, n, 0});
  }
  EXPECT_NEAR(accepted, 250, 55) << "4 standard deviations; the seed is fixed";
}

// Over three tiles, the last of them not whole.
TEST(Lane, SumsAreOfTheWholeVocabulary) {
  const auto backend = make_reference_backend();
  for (const int vocab : {1, 255, 256, 257, 512, 700}) {
    HostLane lane(*backend, vocab, {});
    EXPECT_EQ(lane.sum([](Token x) { return double(x); }), vocab * (vocab - 1) / 2.0);
    const auto both = lane.sums<2>([](Token x) { return std::array<double, 2>{1.0, double(x)}; });
    EXPECT_EQ(both[0], vocab);
    EXPECT_EQ(both[1], vocab * (vocab - 1) / 2.0);
    const auto last = [&](Token x) { return x == vocab - 1 ? 1.0 : 0.0; };
    EXPECT_EQ(lane.draw(last, {Role::bonus, 0, 0}), vocab - 1);
    EXPECT_EQ(lane.race(last, 5), vocab - 1);
  }
}

}  // namespace
}  // namespace foretoken::test
