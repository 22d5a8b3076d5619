// Several tokens from one distribution without replacement: their joint distribution, their names, their order in a
// race; the most probable tokens; rows of numbers by address.
#include <algorithm>
#include <cmath>
#include <map>

#include <gtest/gtest.h>

#include "experiments/conformance/enumerator.h"
#include "kernels/lane.h"
#include "kernels/reference/reference_backend.h"
#include "tests/kernels/scenario.h"
#include "tests/support/sentence.h"

namespace foretoken::test {
namespace {

using Tokens = std::vector<Token>;

Tensor logits_of(std::span<const double> p) {
  const Tensor logits = Tensor::host({1, std::int64_t(p.size())}, DType::f32);
  for (std::size_t x = 0; x < p.size(); ++x) logits.data<float>()[x] = p[x] > 0 ? float(std::log(p[x])) : -1e4f;
  return logits;
}

TokenDraw siblings(int n, bool race, Token* to, std::uint32_t position = 7) {
  return {.draws = {3, 5, 11, 0},
          .name = {Role::draft, 4, 2},
          .position = position,
          .race = race,
          .siblings = std::uint8_t(n),
          .row = 0,
          .to = to};
}

// Enumerates every outcome of every draw of n siblings.
std::map<Tokens, double> law_of(std::span<const double> p, int n, bool race) {
  ReferenceBackend backend;
  conformance::Enumerator chance;
  backend.set_chance(&chance);
  const Warp warp{1};
  const Distributions q = backend.distributions(logits_of(p), {&warp, 1});
  std::map<Tokens, double> law;
  do {
    Tokens drawn(std::size_t(n), -9);
    const TokenDraw draw = siblings(n, race, drawn.data());
    backend.draw(q, {&draw, 1}, {});
    law[drawn] += chance.weight();
  } while (chance.next());
  return law;
}

// Draws without replacement: each from the remaining distribution, normalized; -1 once no mass is left.
double expected(std::span<const double> p, const Tokens& drawn) {
  double weight = 1, left = 1;
  std::vector<double> rest(p.begin(), p.end());
  for (const Token x : drawn) {
    const bool some = std::ranges::any_of(rest, [](double v) { return v > 0; });
    if (!some || x < 0) {
      weight *= some == (x < 0) ? 0 : 1;
      continue;
    }
    weight *= rest[std::size_t(x)] / left, left -= rest[std::size_t(x)], rest[std::size_t(x)] = 0;
  }
  return weight;
}

TEST(Siblings, JointLawIsThatOfDrawsWithoutReplacement) {
  const std::vector<std::vector<double>> all = {
      {0.5, 0.25, 0.125, 0.125}, {0.75, 0, 0.25, 0}, {0, 1, 0}, {0.0625, 0.0625, 0.375, 0.25, 0.25}};
  for (const bool race : {false, true})
    for (const auto& p : all)
      for (const int n : {2, 3}) {
        double sum = 0;
        for (const auto& [drawn, weight] : law_of(p, n, race)) {
          EXPECT_NEAR(weight, expected(p, drawn), 1e-6) << race << " " << n;  // the exp of a logit has 24 bits
          sum += weight;
        }
        EXPECT_NEAR(sum, 1, 1e-12);
      }
}

// The distribution and the names that single draws would have; the first sibling is the single draw.
TEST(Siblings, EachHasTheNameOfItsNodeAndIndex) {
  const auto backend = make_cpu_backend(1);
  const int vocab = 700;
  const Tensor logits = random_tensor({1, vocab}, 4, 2);
  const Warp warp{0.9f, 300};
  const Distributions q = backend->distributions(logits, {&warp, 1});
  for (std::uint32_t seed = 0; seed < 50; ++seed) {
    Tokens drawn(5), single(1);
    TokenDraw draw = siblings(5, false, drawn.data());
    draw.draws.seed = seed;
    backend->draw(q, {&draw, 1}, {});
    TokenDraw first = draw;
    first.siblings = 1, first.to = single.data();
    backend->draw(q, {&first, 1}, {});
    EXPECT_EQ(drawn[0], single[0]);
    std::vector<bool> gone(std::size_t(vocab), false);
    double left = 1;
    for (std::uint32_t j = 0; j < 5; ++j) {
      const double u = draw.draws.uniform({Role::draft, 4 + j, 2 + j}) * left;
      double cdf = 0;
      Token x = -1;
      while (cdf <= u)
        if (!gone[std::size_t(++x)]) cdf += q[0](x);
      EXPECT_EQ(drawn[j], x) << "sibling " << j;
      gone[std::size_t(x)] = true, left -= q[0](x);
    }
  }
}

TEST(Siblings, OfARaceAreItsPlaces) {
  const auto backend = make_cpu_backend(1);
  const int vocab = 300;
  const Tensor logits = random_tensor({1, vocab}, 9, 2);
  const Warp warp{1, 40};
  const Distributions q = backend->distributions(logits, {&warp, 1});
  for (std::uint32_t position = 0; position < 50; ++position) {
    Tokens drawn(45), single(1);
    const TokenDraw draw = siblings(45, true, drawn.data(), position);
    backend->draw(q, {&draw, 1}, {});
    TokenDraw first = draw;
    first.siblings = 1, first.to = single.data();
    backend->draw(q, {&first, 1}, {});
    EXPECT_EQ(drawn[0], single[0]);
    std::vector<std::pair<double, Token>> times;
    for (Token x = 0; x < vocab; ++x)
      if (q[0](x) > 0) times.emplace_back(-std::log(draw.draws.noise(position, std::uint32_t(x))) / q[0](x), x);
    std::ranges::sort(times);
    ASSERT_EQ(times.size(), 40u);
    for (std::size_t j = 0; j < 45; ++j) EXPECT_EQ(drawn[j], j < 40 ? times[j].second : -1) << "place " << j;
  }
}

// The same tokens on both host backends, for rows with every kind of invalid or extreme logits, several draws of each
// row.
TEST(Siblings, AreThoseOfTheReference) {
  ReferenceBackend reference;
  const auto cpu = make_cpu_backend(2);
  for (const int vocab : {1, 5, 256, 1030})
    for (const Warp& warp : {Warp{}, Warp{1}, Warp{0.7f, 20}}) {
      const Tensor logits = wicked_logits(vocab, unsigned(vocab));
      const std::vector<Warp> warps(kWickedRows, warp);
      const Distributions a = cpu->distributions(logits, warps), b = reference.distributions(logits, warps);
      constexpr int kEach = 4, kDraws = 2 * kWickedRows;
      Tokens fast(kDraws * kEach, -9), slow(kDraws * kEach, -9);
      std::vector<TokenDraw> draws;
      for (int i = 0; i < kDraws; ++i) {
        draws.push_back(siblings(kEach, i % 4 == 1, fast.data() + i * kEach, std::uint32_t(i)));
        draws.back().draws.stream = std::uint64_t(i), draws.back().row = i / 2;
      }
      cpu->draw(a, draws, {});
      for (int i = 0; i < kDraws; ++i) draws[std::size_t(i)].to = slow.data() + i * kEach;
      reference.draw(b, draws, {});
      EXPECT_EQ(fast, slow) << vocab;
      for (int i = 0; i < kDraws; ++i)
        for (int j = 0; j < kEach; ++j)
          for (int k = 0; k < j; ++k) {
            const Token x = fast[std::size_t(i * kEach + j)];
            EXPECT_TRUE(x == -1 || x != fast[std::size_t(i * kEach + k)]) << "a token came twice";
          }
    }
}

TEST(Siblings, WhatCannotBeDrawnIsRefusedInASentence) {
  const auto backend = make_cpu_backend(1);
  const Tensor logits = random_tensor({2, 9}, 1);
  const Distributions q = backend->distributions(logits, std::vector<Warp>(2));
  const Tensor to = Tensor::host({1}, DType::i32);
  const auto sentence = [&](int row, std::uint8_t siblings) {
    TokenDraw draw;
    draw.row = row, draw.siblings = siblings;
    return test::sentence_of([&] { backend->draw(q, {&draw, 1}, to); });
  };
  EXPECT_TRUE(test::says(sentence(2, 1), "row 2 of 2", "TokenDraw::row"));
  EXPECT_TRUE(test::says(sentence(-2, 1), "row -2 of 2"));
  EXPECT_TRUE(test::says(sentence(0, 0), "no token", "TokenDraw::siblings"));
  EXPECT_TRUE(test::says(sentence(0, 2), "no destination", "TokenDraw::to"));
  EXPECT_EQ(sentence(-1, 1), "");
}

TEST(Siblings, WhatHasNoNameOfItsOwnIsRefusedInASentence) {
  const auto backend = make_cpu_backend(1);
  const Distributions q = backend->distributions(random_tensor({1, 9}, 1), std::vector<Warp>(1, Warp{1}));
  const auto sentence = [&](DrawName name, int n, bool race) {
    Tokens drawn(4);
    TokenDraw draw = siblings(n, race, drawn.data());
    draw.name = name;
    return test::sentence_of([&] { backend->draw(q, {&draw, 1}, {}); });
  };
  EXPECT_TRUE(test::says(sentence({Role::draft, 4096, 0}, 1, false), "number 0", "node 4096", "Draws::within"));
  EXPECT_TRUE(test::says(sentence({Role::draft, 4093, 2045}, 4, false), "node 4096", "index 2048"));
  EXPECT_EQ(sentence({Role::draft, 4092, 2044}, 4, false) + sentence({Role::draft, 4096, 0}, 1, true), "");
}

class ParityOfRanks : public ::testing::TestWithParam<std::string> {
 protected:
  std::unique_ptr<Backend> backend =
      GetParam() == "reference" ? make_reference_backend() : make_cpu_backend(2, GetParam());
};

// The order of the logits, with the lowest token among equals.
TEST_P(ParityOfRanks, rank) {
  for (const int vocab : {1, 5, 256, 1030})
    for (const int k : {1, 7}) {
      const Tensor logits = wicked_logits(vocab, unsigned(vocab));
      const Distributions raw = backend->distributions(logits, std::vector<Warp>(kWickedRows, Warp{1}));
      const Tensor tokens = Tensor::host({kWickedRows, k}, DType::i32), q = Tensor::host({kWickedRows, k}, DType::f32);
      backend->rank(raw, k, tokens, q);
      for (int r = 0; r < kWickedRows; ++r) {
        std::vector<std::pair<float, Token>> order;
        for (Token x = 0; x < vocab && raw[r].row.greedy >= 0; ++x)
          if (raw[r](x) > 0) order.emplace_back(-logits.row<float>(r)[x], x);
        std::ranges::sort(order);
        for (std::size_t j = 0; j < std::size_t(k); ++j) {
          const Token x = j < order.size() ? order[j].second : -1;
          ASSERT_EQ(tokens.row<Token>(r)[j], x) << "vocab " << vocab << " row " << r << " rank " << j;
          ASSERT_EQ(q.row<float>(r)[j], x < 0 ? 0 : float(raw[r](x)));
        }
        EXPECT_EQ(tokens.row<Token>(r)[0], raw[r].row.greedy);
      }
    }
}

TEST_P(ParityOfRanks, rank_refuses_other_shapes_in_a_sentence) {
  const Distributions raw = backend->distributions(random_tensor({2, 9}, 1), std::vector<Warp>(2));
  EXPECT_TRUE(test::says(test::sentence_of([&] {
                           backend->rank(raw, 3, Tensor::host({2, 2}, DType::i32), Tensor::host({2, 3}, DType::f32));
                         }),
                         "[2, 3]", "k columns"));
}

// Rows of any type from their addresses, zeros where there is none.
TEST_P(ParityOfRanks, recall) {
  const Tensor store = Tensor::host({5, 3}, DType::bf16), to = Tensor::host({4, 6}, DType::bf16).columns(2, 3);
  for (int i = 0; i < 15; ++i) store.data<bf16>()[i] = bf16(float(i + 1));
  const Tensor at = Tensor::host({4}, DType::u64);
  const int rows[] = {3, -1, 0, 3};
  for (int i = 0; i < 4; ++i)
    *at.row<std::uint64_t>(i) = rows[i] < 0 ? 0 : reinterpret_cast<std::uint64_t>(store.row<bf16>(rows[i]));
  backend->recall(at, to, to.dtype());
  for (int i = 0; i < 4; ++i)
    for (int c = 0; c < 3; ++c)
      EXPECT_EQ(float(to.row<bf16>(i)[c]), rows[i] < 0 ? 0.0f : float(3 * rows[i] + c + 1)) << i << " " << c;
  const Tensor wide = Tensor::host({4, 3}, DType::f32);
  backend->recall(at, wide, DType::bf16);
  for (int i = 0; i < 4; ++i)
    for (int c = 0; c < 3; ++c)
      EXPECT_EQ(wide.row<float>(i)[c], rows[i] < 0 ? 0.0f : float(3 * rows[i] + c + 1)) << i << " " << c;
  EXPECT_TRUE(test::says(test::sentence_of([&] { backend->recall(at, to, DType::f32); }), "F32 do not become BF16"));
  EXPECT_TRUE(test::says(test::sentence_of([&] { backend->recall(Tensor::host({3}, DType::u64), to, to.dtype()); }),
                         "address"));
}

// Columns of a part of a vocabulary.
TEST_P(ParityOfRanks, spread) {
  const Tensor from = Tensor::host({2, 3}, DType::f32), ids = Tensor::host({3}, DType::i32),
               to = Tensor::host({2, 5}, DType::f32);
  for (int i = 0; i < 6; ++i) from.data<float>()[i] = float(i);
  for (int j = 0; j < 3; ++j) ids.data<std::int32_t>()[j] = std::array{4, 0, 3}[std::size_t(j)];
  backend->spread(from, ids, to);
  const float none = -std::numeric_limits<float>::infinity();
  EXPECT_EQ(std::vector<float>(to.data<float>(), to.data<float>() + 10),
            (std::vector<float>{1, none, none, 2, 0, 4, none, none, 5, 3}));
  EXPECT_TRUE(test::says(test::sentence_of([&] { backend->spread(from, Tensor::host({2}, DType::i32), to); }),
                         "an I32 id for each column"));
  ids.data<std::int32_t>()[1] = -1;
  backend->spread(from, ids, to);
  EXPECT_EQ(std::vector<float>(to.data<float>(), to.data<float>() + 10),
            (std::vector<float>{none, none, none, 2, 0, none, none, none, 5, 3}));
}

TEST_P(ParityOfRanks, translate) {
  const std::vector<std::int32_t> tokens{3, -1, 0, 4, -3}, ids{7, -1, 8, 9};
  const Tensor to = backend->translate(Tensor::host_copy<std::int32_t>(tokens, DType::i32),
                                       Tensor::host_copy<std::int32_t>(ids, DType::i32));
  EXPECT_EQ(std::vector<std::int32_t>(to.data<std::int32_t>(), to.data<std::int32_t>() + 5),
            (std::vector<std::int32_t>{9, -1, 7, -1, -1}));
}

TEST(Lane, SeveralSumsInOnePassAreTheSumsOneByOne) {
  const auto backend = make_reference_backend();
  for (const int vocab : {1, 7, 256, 1000, 4097}) {
    const Tensor a = random_tensor({1, vocab}, 1), b = random_tensor({1, vocab}, 2, 100);
    const auto f = [&](Token x) { return double(a.data<float>()[x]); };
    const auto g = [&](Token x) { return double(b.data<float>()[x]); };
    HostLane lane(*backend, vocab, {});
    const auto both = lane.sums<2>([&](Token x) { return std::array<double, 2>{f(x), g(x)}; });
    EXPECT_EQ(both[0], lane.sum(f));
    EXPECT_EQ(both[1], lane.sum(g));
  }
}

// Against the definition: scale, subtract, clamp at 0, divide by the sum.
TEST(Lane, AResidualOfAScaledDistributionHasItsClosedForm) {
  const int vocab = 300;
  const Tensor a = random_tensor({1, vocab}, 1), b = random_tensor({1, vocab}, 2);
  const Distribution p{a.data<float>(), normalize(a.data<float>(), vocab, {1}), vocab},
      q{b.data<float>(), normalize(b.data<float>(), vocab, {1, 50}), vocab};
  const auto backend = make_reference_backend();
  HostLane lane(*backend, vocab, {});
  auto r = lane.open(p, q);
  r.scale = 0.7;
  std::vector<double> truth;
  for (Token x = 0; x < vocab; ++x) truth.push_back(p(x));
  const auto refuse = [&](double scale, double left, Token child) {
    double mass = 0;
    for (Token x = 0; x < vocab; ++x) {
      double& t = truth[std::size_t(x)];
      t = x == child ? 0 : std::max(0.0, scale * t - (left > 0 && t > 0 ? q(x) / left : 0));
      mass += t;
    }
    for (Token x = 0; x < vocab; ++x)
      ASSERT_NEAR(r(x), truth[std::size_t(x)] /= mass, 1e-13) << "token " << x << " after " << child;
  };
  lane.reject_draw(r), refuse(0.7, 1, -1), lane.reject_guess(r, 17), refuse(1, 0, 17);
  lane.reject_once(r, 31, 0.6), refuse(1, 0.6, 31);
  lane.reject_once(r, 32, 0), refuse(1, 0, 32);
  EXPECT_EQ(r(17) + r(31) + r(32), 0);
}

std::vector<std::string> host_backends() {
  std::vector<std::string> all = cpu_instructions();
  all.push_back("reference");
  return all;
}

INSTANTIATE_TEST_SUITE_P(Host, ParityOfRanks, ::testing::ValuesIn(host_backends()),
                         [](const auto& i) { return i.param; });

}  // namespace
}  // namespace foretoken::test
