// Rounds too large to be enumerated, drawn and judged with Philox: the score that is off is named, and correct rules
// pass. A lossy rule against the distribution that it states.
#include <gtest/gtest.h>

#include "experiments/conformance/laws.h"
#include "experiments/conformance/rounds.h"
#include "tests/support/rule_mutants.h"
#include "tests/support/sentence.h"

namespace foretoken::test {

using namespace conformance;

namespace {

Subject with_bug(RuleBug bug, MutantRule rule = MutantRule::recursive) {
  return {with_mutant_rule(all_registries(), rule, bug), {{{"name", "none"}}, {{"name", "fixed"}}, {{"name", "rule"}}}};
}

TEST(ScoredRounds, OfCorrectRulesHold) {
  for (const Drawn d : {Drawn::chain, Drawn::independent, Drawn::without_replacement}) {
    const Finding f = scored_round(with_bug(RuleBug::none), large_round({d}, 20, 3), 1500, 1e-6);
    EXPECT_TRUE(f.holds) << f.what;
    EXPECT_EQ(f.cases, 1500);
    EXPECT_EQ(f.what, "{\"name\":\"rule\"}, tree of 20 nodes, " + std::string(name_of(d)) + ", seed 3");
  }
}

TEST(ScoredRounds, NameTheScoreThatIsOff) {
  const Finding squared = scored_round(with_bug(RuleBug::squared_ratio), full_chain(Drawn::chain, 16, 2), 3000, 1e-6);
  EXPECT_FALSE(squared.holds);
  EXPECT_TRUE(says(squared.why, "the score ", " is off: sum ", ", deviation ", ", probability at most 0.000000"));
  const Finding siblings =
      scored_round(with_bug(RuleBug::squared_ratio), large_round({Drawn::independent}, 20, 3), 3000, 1e-6);
  EXPECT_FALSE(siblings.holds);
  EXPECT_TRUE(says(siblings.what, "the score q / p of level 1 is off")) << siblings.what;
}

// The bound of a probability is not more than 1, and few samples prove nothing.
TEST(ScoredRounds, OfTwoSamplesProveNothing) {
  EXPECT_TRUE(scored_round(with_bug(RuleBug::squared_ratio), full_chain(Drawn::chain, 16, 2), 2, 1e-6).holds);
}

// At temperature 0 the target has one token; a rule that draws another emits what the target never does.
TEST(ScoredRounds, ATokenThatTheTargetNeverEmitsIsNamed) {
  RoundCase c = full_chain(Drawn::chain, 4, 2);
  c.logits = [](std::span<const Token>, bool draft) {
    return draft ? std::vector<float>{0, 0, 0, 0, 0, 0} : std::vector<float>{0, 0, 0, -1e4f, -1e4f, -1e4f};
  };
  const Finding f = scored_round(with_bug(RuleBug::threshold_reversed, MutantRule::kept_above), c, 200, 1e-6);
  EXPECT_FALSE(f.holds);
  EXPECT_TRUE(says(f.why, "a token was emitted that the target never emits: [")) << f.why;
}

TEST(SampledRounds, AreHeldAgainstTheStatedDistribution) {
  const auto found = [](RuleBug bug) {
    RoundCase c = random_round({Drawn::chain, Drawn::independent}, 8, 6, 41);
    c.warp.temperature = 0.8f;
    return sampled_round(with_bug(bug, MutantRule::kept_above), c, 20000, 1e-6);
  };
  const Finding sane = found(RuleBug::none), planted = found(RuleBug::threshold_reversed);
  EXPECT_TRUE(sane.holds) << sane.what;
  EXPECT_EQ(sane.cases, 20000);
  EXPECT_FALSE(planted.holds);
  EXPECT_TRUE(says(planted.why, "a chi-square of 20000 rounds against the induced distribution gives p = 0.000000"))
      << planted.why;
}

}  // namespace
}  // namespace foretoken::test
