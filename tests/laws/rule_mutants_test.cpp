// Planted bugs in the rules of verifiers, each killed by the law `rounds` as `foretoken check` runs it. The same rule
// without the bug holds in every case.
#include "tests/support/rule_mutants.h"

#include <gtest/gtest.h>

#include "experiments/conformance/law_cases.h"

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
  for (const LawCase& c : round_cases(candidate_of(GetParam(), RuleBug::none), {})) {
    const Finding f = c.run();
    EXPECT_TRUE(f.holds) << f.what.substr(0, 500);
    outcomes += f.cases;
  }
  EXPECT_GT(outcomes, 1000);
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
    broken += !f.holds &&
              (f.what.find("total variation") != std::string::npos || f.what.find("chi-square") != std::string::npos);
  }
  EXPECT_GT(broken, 0);
}
INSTANTIATE_TEST_SUITE_P(Bugs, RuleMutants, testing::Range(1, int(RuleBug::count)),
                         [](const auto& instance) { return std::string(name_of(RuleBug(instance.param))); });

}  // namespace
}  // namespace foretoken::test
