// Correct components of kinds that no built-in one is of: `foretoken check` refuses none of them.
#include "tests/support/correct_plugins.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "experiments/conformance/check.h"
#include "tests/support/sentence.h"

namespace foretoken::test {

using namespace conformance;

namespace correct_plugins_law {

using nlohmann::json;

CheckReport checked(const json& drafter, const json& policy, const json& verifier,
                    const std::vector<std::string>& laws) {
  Environment environment;
  environment.devices.push_back({"cpu", [] { return make_cpu_backend(1); }});
  environment.most_ways = 2000;
  return check(candidates({with_correct_plugins(all_registries()), drafter, policy, verifier}), environment,
               {2, 600, laws});
}

// No law is broken, and each of these was shown with cases of its own.
void expect_holds(const CheckReport& report, const std::vector<std::string>& shown) {
  for (const std::string& sentence : report.sentences) ADD_FAILURE() << sentence;
  for (const std::string& law : shown)
    EXPECT_TRUE(std::ranges::any_of(report.laws, [&](const LawReport& r) {
      return r.law == law && r.ruling == LawReport::Ruling::holds && r.cases > 0;
    })) << law;
}

const json kSampling{{"name", "speculative_sampling"}}, kCoupled{{"name", "coupled"}};

TEST(CorrectPlugins, APolicyThatLearnsFromMeasuredTimes) {
  const std::vector<std::string> laws{"exact", "options", "device", "batch", "greedy"};
  for (const char* name : {"fastest", "goodput", "bandit_length"})
    expect_holds(checked(nullptr, {{"name", name}}, kSampling, laws), laws);
}

TEST(CorrectPlugins, ADrafterThatLearnsFromMeasuredTimes) {
  const std::vector<std::string> laws{"exact", "options", "device", "batch", "limits"};
  expect_holds(checked({{"name", "timed"}}, nullptr, kSampling, laws), laws);
}

TEST(CorrectPlugins, ADrafterOfMarginals) {
  const std::vector<std::string> laws{"exact", "memory", "causal", "limits", "acceptance", "device"};
  for (const json& verifier : {kSampling, kCoupled, json{{"name", "block_verification"}}})
    expect_holds(checked({{"name", "marginals"}}, nullptr, verifier, laws), {"exact", "memory", "limits"});
}

TEST(CorrectPlugins, BudgetsOfManyLevels) {
  const std::vector<std::string> laws{"memory", "cache", "batch"};
  expect_holds(checked({{"name", "draft_model"}, {"model", "table:other"}}, {{"name", "fixed"}, {"length", 14}},
                       kSampling, laws),
               laws);
  for (const int levels : {20, 40, 64})
    expect_holds(checked(nullptr, {{"name", "long"}, {"levels", levels}}, kSampling, laws), laws);
}

TEST(CorrectPlugins, APolicyThatSetsConfidenceIsCheckedBesideADrafterThatServesIt) {
  const std::vector<std::string> laws{"exact", "memory", "greedy"};
  const CheckReport report = checked({{"name", "confident"}}, {{"name", "demanding"}}, kSampling, laws);
  expect_holds(report, laws);
  for (const std::string& subject : report.subjects)
    EXPECT_TRUE(subject.starts_with("confident, demanding")) << subject;
}

TEST(CorrectPlugins, AnInnerModelThatIsSkippedInOddRounds) {
  const std::vector<std::string> laws{"exact", "memory", "cache", "batch", "limits", "acceptance", "device", "causal"};
  for (const char* name : {"skipping", "alternating"})
    expect_holds(checked({{"name", name}}, nullptr, kSampling, laws), laws);
  expect_holds(checked({{"name", "pausing"}}, nullptr, kSampling, laws),
               {"exact", "cache", "batch", "limits", "device"});
}

}  // namespace correct_plugins_law
}  // namespace foretoken::test
