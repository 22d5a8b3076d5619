// rounds: every verifier alone, on deep, wide and branching trees of every kind that it takes.
#include "experiments/conformance/rounds.h"

#include <gtest/gtest.h>

#include "experiments/conformance/components.h"
#include "experiments/conformance/law_table.h"
#include "tests/support/in_turn.h"

namespace foretoken::test {

using namespace conformance;

namespace {

class Rounds : public testing::TestWithParam<std::string> {};

TEST_P(Rounds, EmitWhatTheVerifierPromises) {
  const Registries registries = all_registries();
  for (const nlohmann::json& verifier : configurations(registries.verifiers, GetParam())) {
    const Candidate c = candidate({registries, {{{"name", "none"}}, {{"name", "fixed"}}, verifier}}, false);
    long outcomes = 0;
    for (const LawCase& law_case : in_turn(round_cases(c, {}), 6)) {
      const Finding f = law_case.run();
      EXPECT_TRUE(f.holds) << f.what.substr(0, 600);
      outcomes += f.cases;
    }
    EXPECT_GT(outcomes, every_scenario() ? 300 : 0);
  }
}

std::vector<std::string> verifiers() { return all_registries().verifiers.names(); }

INSTANTIATE_TEST_SUITE_P(Verifiers, Rounds, testing::ValuesIn(verifiers()),
                         [](const auto& instance) { return instance.param; });

}  // namespace
}  // namespace foretoken::test
