// What every verifier of the project states of itself.
#include <algorithm>

#include <gtest/gtest.h>

#include "experiments/conformance/components.h"
#include "experiments/conformance/scenario.h"

namespace foretoken::test {

using namespace conformance;

namespace {

class Stated : public testing::TestWithParam<std::string> {};

TEST_P(Stated, WhichNodesItTakesAndWhatItPromises) {
  const Registries registries = all_registries();
  for (const nlohmann::json& verifier : configurations(registries.verifiers, GetParam())) {
    const Soundness s = soundness_of(registries, verifier);
    const auto takes = [&](Drawn d) { return std::ranges::find(s.takes, d) != s.takes.end(); };
    EXPECT_TRUE(takes(Drawn::certain)) << "certain guesses are trees that every drafter may propose";
    EXPECT_TRUE(takes(Drawn::chain)) << "a tree drafter of a shape without siblings draws chains";
    EXPECT_FALSE(takes(Drawn::aside));
    EXPECT_EQ(s.exact(), s.acceptance != Acceptance::other) << "exact verifiers state a formula of their acceptance";
    EXPECT_EQ(s.exact(), !s.promise.starts_with("lossy: "));
    EXPECT_EQ(s.exact(), !s.induced) << "lossy verifiers state the distribution that they induce";
  }
}

INSTANTIATE_TEST_SUITE_P(Verifiers, Stated, testing::ValuesIn(all_registries().verifiers.names()),
                         [](const auto& instance) { return instance.param; });

}  // namespace
}  // namespace foretoken::test
