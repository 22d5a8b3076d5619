// Planted bugs in lossy verifiers as a plugin brings them, with the distribution that they state: each is killed by the
// law that the test names, as `foretoken check` runs it. The same rule without the bug holds.
#include <algorithm>

#include <gtest/gtest.h>

#include "experiments/conformance/check.h"
#include "tests/support/states.h"

namespace foretoken::test {

using namespace conformance;

namespace {

using nlohmann::json;

struct Bugs {
  bool rule_reversed = false, law_reversed = false, no_law = false;
  bool next_is_raw = false;  // the token after the path is drawn from the distribution before the warp
};

// Keeps a chain's tokens of a probability of at least `least`, without the warp.
struct Kept {
  double least;
  Bugs bugs;
  template <class Lane> Verdict operator()(Lane& lane, const Trial& t) const {
    Verdict v;
    int node = 0;
    for (int c = t.child(0, 0); c >= 0 && (t.raw(node)(t.tokens[c]) >= least) != bugs.rule_reversed;
         c = t.child(node, node))
      v.follow(node = c, t.tokens[c]);
    v.finish(lane.draw(bugs.next_is_raw ? t.raw(node) : t.p(node), {Role::bonus, std::uint32_t(node), 0}));
    return v;
  }
};

EmittedLaw kept(const Round& round, double least, bool reversed) {
  std::vector<Token> path;
  std::size_t node = 0;
  for (std::vector<int> below = round.children(0); !below.empty(); below = round.children(int(node))) {
    const Token x = round.tokens[std::size_t(below[0])];
    if ((round.raw[node][std::size_t(x)] >= least) == reversed) break;
    path.push_back(x);
    node = std::size_t(below[0]);
  }
  EmittedLaw law;
  for (std::size_t x = 0; x < round.p[node].size(); ++x) {
    path.push_back(Token(x));
    if (round.p[node][x] > 0) law[path] = round.p[node][x];
    path.pop_back();
  }
  return law;
}

CheckReport checked(double least, Bugs bugs, const std::vector<std::string>& laws) {
  Registries r = all_registries();
  Soundness soundness{.takes = {Drawn::certain, Drawn::chain}, .promise = "lossy: tokens with p >= least", .raw = true};
  soundness.acceptance = Acceptance::other;
  if (!bugs.no_law) soundness.induced = [=](const Round& round) { return kept(round, least, bugs.law_reversed); };
  r.verifiers.add("kept", entry_that<Verifier>(states(soundness), [=](const json&, Host&) {
                    return std::make_unique<RuleVerifier<Kept>>(Kept{least, bugs});
                  }));
  const json drafter{{"name", "draft_model"}, {"model", "table:other"}};
  return check(candidates({r, drafter, nullptr, {{"name", "kept"}}}), {}, {1, 600, laws});
}

// The law is broken, and for this reason.
void killed_by(const std::string& law, const std::string& reason, double least, const Bugs& bugs) {
  const CheckReport report = checked(least, bugs, {law});
  ASSERT_EQ(report.sentences.size(), 1u);
  EXPECT_NE(report.sentences[0].find("the law '" + law + "' is broken by draft_model table:other, "),
            std::string::npos);
  EXPECT_NE(report.sentences[0].find(reason), std::string::npos) << report.sentences[0];
}

TEST(LossyMutants, WithoutAFaultHold) {
  for (const double least : {0.3, 0.6}) {
    const CheckReport report = checked(least, {}, {"rounds", "greedy", "batch", "cache"});
    EXPECT_TRUE(report.holds()) << report.sentences[0];
    const auto greedy = std::ranges::find(report.laws, "greedy", &LawReport::law);
    EXPECT_EQ(greedy->ruling, least < 0.5 ? LawReport::Ruling::inapplicable : LawReport::Ruling::holds) << least;
  }
}

TEST(LossyMutants, AReversedThresholdIsKilledByRounds) {
  killed_by("rounds", "total variation", 0.3, {.rule_reversed = true});
}

TEST(LossyMutants, AThresholdThatIsReversedInRuleAndLawIsKilledByRounds) {
  for (const double least : {0.3, 0.6})
    killed_by("rounds", "a threshold is the wrong way round", least, {.rule_reversed = true, .law_reversed = true});
}

TEST(LossyMutants, ALossyRuleWithoutALawIsKilledByRounds) {
  killed_by("rounds", "let Soundness::induced compute it", 0.3, {.no_law = true});
}

// A token of more than one half is the greedy one, so the stated distribution is greedy at temperature 0.
TEST(LossyMutants, AWrongTokenAtTemperature0IsKilledByGreedyWhereTheLawIsGreedy) {
  killed_by("greedy", "against plain decoding: text ", 0.6, {.rule_reversed = true});
}

TEST(LossyMutants, ANextTokenWithoutTheWarpIsKilledByRounds) {
  killed_by("rounds", "total variation", 0.6, {.next_is_raw = true});
}

}  // namespace
}  // namespace foretoken::test
