// sampled: end to end with the engine's own draws, the joint distribution of the next tokens is the target's. The
// sample detects a total variation of 0.01 with 99 % power; Holm's correction over all registered components.
#include <gtest/gtest.h>

#include "experiments/conformance/components.h"
#include "experiments/conformance/laws.h"
#include "experiments/conformance/statistics.h"
#include "tests/laws/subjects.h"
#include "tests/support/in_turn.h"
#include "tests/support/tiny_models.h"

namespace foretoken::test {

using namespace conformance;

namespace {

constexpr double kLevel = 1e-3;

void expect_sampled(const TableModel::Options& target, const std::vector<Subject>& all, HostBackend& backend,
                    double found) {
  std::vector<Finding> findings;
  std::vector<double> p_values;
  long accepted = 0, rejected = 0;
  for (const Subject& s : all) {
    findings.push_back(sampled(
        s,
        {.target = target, .prompt = {0, 1, 0, 1}, .tokens = 2, .found = found, .level = kLevel / double(all.size())},
        backend));
    p_values.push_back(findings.back().measure);
    accepted += findings.back().accepted, rejected += findings.back().rejected;
  }
  const std::vector<double> adjusted = holm_adjusted(p_values);
  for (std::size_t i = 0; i < all.size(); ++i)
    EXPECT_GT(adjusted[i], kLevel) << findings[i].what << ", p = " << p_values[i];
  if (!every_scenario()) return;  // a few may accept nothing
  EXPECT_GT(accepted, 0);
  EXPECT_GT(rejected, 0);
}

TEST(Sampled, JointLawOfTwoTokens) {
  ReferenceBackend b;
  const Registries registries = with_scripted(all_registries());
  expect_sampled({.vocab = 3, .seed = 61, .impossible = 0.1},
                 in_turn(subjects(registries, 2, configurations(registries.drafters)), 4), b, 0.01);
}

TEST(SampledOnCpu, JointLawOfTwoTokens) {
  const auto b = cpu_backend(1);
  const std::vector<Subject> all = subjects(all_registries(), 2, {{{"name", "draft_model"}, {"model", "table:far"}}});
  expect_sampled({.vocab = 3, .seed = 62, .impossible = 0.1}, in_turn(all, 3), *b, 0.015);
}

TEST(Statistics, SampleSizeAndHolm) {
  EXPECT_NEAR(double(sample_size(625, 0.01, 1e-3, 0.99)), 550e3, 30e3);
  const std::vector<double> p = {0.02, 1e-4, 0.5, 0.0003};
  const std::vector<double> adjusted = holm_adjusted(p);
  EXPECT_TRUE(adjusted[0] > 1e-3 && adjusted[1] <= 1e-3 && adjusted[2] > 1e-3 && adjusted[3] <= 1e-3);
  const std::vector<long> counts = {50, 30, 20, 1};
  const std::vector<double> law = {0.5, 0.3, 0.2, 0};
  EXPECT_EQ(chi_square(counts, law).p_value, 0);
  const std::vector<long> fair = {480, 310, 210};
  const ChiSquare c = chi_square(fair, std::vector<double>{0.5, 0.3, 0.2});
  EXPECT_EQ(c.freedom, 2);
  EXPECT_NEAR(c.statistic, 400.0 / 500 + 100.0 / 300 + 100.0 / 200, 1e-9);
}

}  // namespace
}  // namespace foretoken::test
