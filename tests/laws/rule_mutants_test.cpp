// Planted bugs in the rules of verifiers, each killed by the law `rounds` as `foretoken check` runs it. The same rule
// without the bug holds in every case.
#include "tests/support/rule_mutants.h"

#include <numeric>

#include <gtest/gtest.h>

#include "experiments/conformance/law_table.h"
#include "tests/support/in_turn.h"

namespace foretoken::test {

using namespace conformance;

namespace {

Candidate candidate_of(MutantRule rule, RuleBug bug) {
  return candidate(
      {with_mutant_rule(all_registries(), rule, bug), {{{"name", "none"}}, {{"name", "fixed"}}, {{"name", "rule"}}}},
      false);
}

class CorrectRules : public testing::TestWithParam<MutantRule> {};
TEST_P(CorrectRules, HoldInEveryRound) {
  long outcomes = 0;
  for (const LawCase& c : in_turn(round_cases(candidate_of(GetParam(), RuleBug::none), {}), 8)) {
    const Finding f = c.run();
    EXPECT_TRUE(f.holds) << f.what.substr(0, 500);
    outcomes += f.cases;
  }
  EXPECT_GT(outcomes, every_scenario() ? 1000 : 0);
}
INSTANTIATE_TEST_SUITE_P(Rules, CorrectRules,
                         testing::Values(MutantRule::recursive, MutantRule::block, MutantRule::traversal,
                                         MutantRule::k_seq, MutantRule::kept_above, MutantRule::profile));

class RuleMutants : public testing::TestWithParam<int> {};
TEST_P(RuleMutants, IsKilledByRounds) {
  const RuleBug bug = RuleBug(GetParam());
  int broken = 0;
  for (const LawCase& c : round_cases(candidate_of(rule_of(bug), bug), {})) {
    if (broken > 0) break;
    const Finding f = c.run();
    const auto says = [&](const char* reason) { return f.what.find(reason) != std::string::npos; };
    broken += !f.holds && (says("total variation") || says("chi-square") || says(" is off: "));
  }
  EXPECT_GT(broken, 0);
}
std::vector<int> bugs() {
  std::vector<int> all(std::size_t(RuleBug::count) - 1);
  std::iota(all.begin(), all.end(), 1);
  return in_turn(all, 16);
}
INSTANTIATE_TEST_SUITE_P(Bugs, RuleMutants, testing::ValuesIn(bugs()),
                         [](const auto& instance) { return std::string(name_of(RuleBug(instance.param))); });

// The rule "rule" without a bug, which says that it judges first children alone.
Candidate saying_first_children(MutantRule rule) {
  Registries registries = with_mutant_rule(all_registries(), rule, RuleBug::none);
  Entry<Verifier> entry = registries.verifiers.entries().at("rule");
  entry.traits = [traits = entry.traits](const nlohmann::json& o, const ModelInfo& target) {
    Soundness soundness = traits(o, target);
    soundness.first_children = true;
    return soundness;
  };
  registries.verifiers.replace("rule", entry);
  return candidate({registries, {{{"name", "none"}}, {{"name", "fixed"}}, {{"name", "rule"}}}}, false);
}

TEST(FirstChildren, ARuleThatSaysSoAndJudgesSiblingsIsKilledByRounds) {
  const auto broken = [](MutantRule rule) {
    int cases = 0, broken = 0;
    for (const LawCase& c : round_cases(saying_first_children(rule), {})) {
      if (!c.scenario.ends_with("first children alone")) continue;
      const Finding f = c.run();
      ++cases, broken += !f.holds && f.what.find("Soundness::first_children") != std::string::npos;
    }
    EXPECT_GT(cases, 0);
    return broken;
  };
  EXPECT_EQ(broken(MutantRule::block), 0);
  EXPECT_GT(broken(MutantRule::recursive), 0);
}

}  // namespace
}  // namespace foretoken::test
