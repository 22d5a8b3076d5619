// Temperature, top-k, top-p and min-p against the oracle: their order, the mass that each is taken of, and ties.

#include <gtest/gtest.h>

#include "kernels/backend.h"
#include "tests/oracle/oracle.h"

namespace foretoken::oracle {
namespace {

std::vector<std::unique_ptr<Backend>> devices() {
  std::vector<std::unique_ptr<Backend>> all;
  all.push_back(make_reference_backend()), all.push_back(make_cpu_backend(1));
  return all;
}

// What a device makes of logits.
Numbers computed(Backend& device, const Numbers& z, const Sampling& s) {
  const int vocab = int(z.size());
  const Tensor row = Tensor::host({1, vocab}, DType::f32);
  std::copy(z.begin(), z.end(), row.data<float>());
  Warp warp;
  warp.temperature = s.temperature, warp.top_k = s.top_k, warp.top_p = s.top_p, warp.min_p = s.min_p;
  const Distributions all = device.distributions(row, std::vector{warp});
  Numbers p;
  for (Token x = 0; x < vocab; ++x) p.push_back(all[0](x));
  return p;
}

void expect_near(const Numbers& have, const Numbers& want, const std::string& where) {
  ASSERT_EQ(have.size(), want.size());
  for (std::size_t x = 0; x < want.size(); ++x)
    EXPECT_NEAR(have[x], want[x], 1e-6) << where << ", token " << x;  // of p; the product's exp is a float's
}

void expect_distribution(const Numbers& z, const Sampling& s, const Numbers& want) {
  expect_near(warped(z, Cuts(s)), want, "the oracle");
  for (const auto& device : devices()) expect_near(computed(*device, z, s), want, device->name());
}

Numbers logs(const Numbers& p) {
  Numbers z;
  for (const double x : p) z.push_back(std::log(x));
  return z;
}

const Numbers kFalling = logs({.4, .3, .2, .1});

// Of the three that top-k leaves the first two have .78 of the mass; of all four only .7.
TEST(Cuts, top_p_is_of_the_mass_that_top_k_leaves) {
  expect_distribution(kFalling, {.temperature = 1, .top_k = 3, .top_p = .75f}, {.4 / .7, .3 / .7, 0, 0});
}

// Before min-p the first has .4 of the mass, after it .57, and top-p would keep it alone.
TEST(Cuts, top_p_is_of_the_mass_before_min_p) {
  expect_distribution(kFalling, {.temperature = 1, .top_p = .5f, .min_p = .6f}, {.4 / .7, .3 / .7, 0, 0});
}

// At temperature 1/2 the masses are 16, 9, 4 and 1 of 30, at temperature 1 the first is not half.
TEST(Cuts, top_p_is_of_the_mass_at_the_temperature) {
  expect_distribution(kFalling, {.temperature = .5f, .top_p = .52f}, {1, 0, 0, 0});
  expect_distribution(kFalling, {.temperature = 1, .top_p = .52f}, {.4 / .7, .3 / .7, 0, 0});
}

// (1/2)^2 of the greatest is below .3, 1/2 is not.
TEST(Cuts, min_p_is_of_the_greatest_at_the_temperature) {
  expect_distribution(kFalling, {.temperature = .5f, .min_p = .3f}, {16. / 25, 9. / 25, 0, 0});
  expect_distribution(kFalling, {.temperature = 1, .min_p = .3f}, {.4 / .9, .3 / .9, .2 / .9, 0});
}

TEST(Cuts, ties_at_a_threshold_stay) {
  const Numbers tied = logs({.1, .2, .2, .4, .1});
  expect_distribution(tied, {.temperature = 1, .top_k = 2}, {0, .25, .25, .5, 0});
  expect_distribution(tied, {.temperature = 1, .top_k = 4}, {.1, .2, .2, .4, .1});
  expect_distribution(tied, {.temperature = 1, .top_p = .45f}, {0, .25, .25, .5, 0});
  expect_distribution({1, 1, 1}, {.temperature = 1, .top_k = 1}, {1. / 3, 1. / 3, 1. / 3});
  expect_distribution({1, 1, 1}, {.temperature = 1, .top_p = .01f}, {1. / 3, 1. / 3, 1. / 3});
  expect_distribution({0, 1, 1}, {.temperature = 1, .min_p = .999f}, {0, .5, .5});
}

TEST(Cuts, greedy_takes_the_lowest_of_equals_whatever_the_cuts) {
  expect_distribution({1, 3, 3, 2}, {.temperature = 0}, {0, 1, 0, 0});
  expect_distribution({1, 3, 3, 2}, {.temperature = 0, .top_k = 3, .top_p = .01f, .min_p = .9f}, {0, 1, 0, 0});
}

// Logits are multiples of 1/4, so that many are equal, and of more than one tile of a vocabulary.
TEST(Cuts, any_combination_is_the_oracles) {
  Below below(7);
  const auto all = devices();
  int cut = 0;
  for (int i = 0; i < 1200; ++i) {
    Numbers z(std::size_t(2 + below(i % 10 ? 30 : 600)));
    for (double& x : z) x = .25 * below(24) - 3;
    Sampling s{.temperature = std::vector{.5f, .7f, 1.f, 1.8f}[std::size_t(below(4))]};
    if (below(3)) s.top_k = 1 + below(int(z.size()) + 2);
    if (below(3)) s.top_p = float(1 + below(99)) / 100;
    if (below(2)) s.min_p = float(1 + below(99)) / 100;
    double nearest = 1;
    const Numbers want = warped(z, Cuts(s), &nearest);
    if (nearest < 1e-5) continue;  // sums in another order may decide otherwise
    for (const auto& device : all) expect_near(computed(*device, z, s), want, device->name());
    if (::testing::Test::HasFailure())
      FAIL() << "case " << i << ": top_k " << s.top_k << ", top_p " << s.top_p << ", min_p " << s.min_p
             << ", temperature " << s.temperature;
    cut += std::count(want.begin(), want.end(), 0.0) > 0;
  }
  EXPECT_GT(cut, 700);
}

}  // namespace
}  // namespace foretoken::oracle
