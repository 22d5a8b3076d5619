// Drafters made of drafters by hand: longest, first_hit and merge over scripted arms.
#include <gtest/gtest.h>

#include "tests/drafters/lookup_by_hand.h"
#include "tests/drafters/parts_by_hand.h"

namespace foretoken::test {
namespace {

json made_of(const std::string& name, const std::vector<json>& arms, const json& more = json::object()) {
  json config{{"name", name}, {"drafters", arms}};
  config.update(more);
  return config;
}
std::string drawn(PartsByHand& parts, const Budget& budget) { return PartsByHand::text(parts.draft({budget}).front()); }

constexpr float kConfidence = 0.1f;

TEST(Longest, IsTheDeepestAndTheFirstAmongEquals) {
  PartsByHand parts(made_of("longest", {arm(0, {{5}, {6}, {7}}), arm(1, {{8, 9}}), arm(2, {{3, 4}})}));
  EXPECT_EQ(drawn(parts, {9, 4}), "0>8 1>9");
  EXPECT_EQ(drawn(parts, {9, 1}), "0>5 0>6 0>7") << "all are of one level";
  EXPECT_EQ(drawn(parts, {1, 0}), "");
  EXPECT_EQ(parts.log(0).drafted.size(), 2u);
  for (int k = 0; k < 3; ++k) EXPECT_EQ(parts.log(k).read, std::vector<SequenceId>{1}) << "all keep up";
}

// Else the tokens that made a draft long would be kept more often than they were drawn.
TEST(Longest, TakesADrawnTreeForAsLongAsItsBudgetWhereItsTokensMayDecideThat) {
  const json guesses = arm(0, {{5, 6}}), draws = arm(1, {{7}}, {{"drawn", true}});
  json waits = draws;
  waits["waits"] = true;
  PartsByHand fixed(made_of("longest", {guesses, draws})), unknown(made_of("longest", {guesses, waits}));
  EXPECT_EQ(drawn(fixed, {9, 4}), "0>5 1>6");
  EXPECT_EQ(drawn(fixed, {9, 4, kConfidence}), "0>7");
  EXPECT_EQ(drawn(unknown, {9, 4}), "0>7");
  EXPECT_EQ(drawn(unknown, {9, 2}), "0>5 1>6") << "as long as the budget, too";
}

TEST(FirstHit, AsksTheNextOneOnlyWhereThoseBeforeFindTooLittle) {
  PartsByHand parts(made_of("first_hit", {arm(0, {{5}}), arm(1, {{8, 9}}), arm(2, {{3, 4, 2}})}, {{"least", 2}}));
  const std::vector<DraftTree> trees = parts.draft({{9, 4}, {9, 1}, {1, 0}});
  EXPECT_EQ(PartsByHand::text(trees[0]), "0>8 1>9");
  EXPECT_EQ(PartsByHand::text(trees[1]), "0>5") << "it is as long as the budget";
  EXPECT_EQ(PartsByHand::text(trees[2]), "");
  EXPECT_EQ(parts.log(0).drafted, (std::vector<SequenceId>{1, 2}));
  EXPECT_EQ(parts.log(1).drafted, (std::vector<SequenceId>{1}));
  EXPECT_EQ(parts.log(2).drafted, (std::vector<SequenceId>{}));
  for (int k = 0; k < 3; ++k) EXPECT_EQ(parts.log(k).read, std::vector<SequenceId>{3}) << "all keep up";
}

TEST(FirstHit, TakesTheLongestWhereNobodyFindsEnough) {
  PartsByHand parts(made_of("first_hit", {arm(0, {{5, 6}}), arm(1, {{8}}), arm(2, json::array())}, {{"least", 3}}));
  EXPECT_EQ(drawn(parts, {9, 4}), "0>5 1>6");
  PartsByHand nothing(made_of("first_hit", {arm(0, json::array())}));
  EXPECT_EQ(drawn(nothing, {9, 4}), "");
}

TEST(Combinations, GiveOutcomesToWhoDrewTheTreeAndToWhoReadsAll) {
  for (const char* name : {"longest", "first_hit"}) {
    PartsByHand parts(made_of(name, {arm(0, {{5}}), arm(1, {{8, 9}}), arm(2, json::array(), {{"any_tree", true}})},
                              name == std::string("longest") ? json::object() : json{{"least", 2}}));
    const std::vector<DraftTree> trees = parts.draft({{9, 4}, {9, 1}});
    parts.observe(0, trees[0]), parts.observe(1, trees[1]);
    EXPECT_EQ(parts.log(0).observed, (std::vector<int>{2}));
    EXPECT_EQ(parts.log(1).observed, (std::vector<int>{3}));
    EXPECT_EQ(parts.log(2).observed, (std::vector<int>{3, 2}));
    const auto backend = make_reference_backend();
    const DraftTree foreign = DraftTree::rooted(*backend, 2, 4);
    parts.observe(0, foreign);
    EXPECT_EQ(parts.log(1).observed.size(), 1u) << "another one's tree";
    EXPECT_EQ(parts.log(2).observed.size(), 3u);
    parts.drafter().observe_step({}), parts.drafter().forget(parts.sequence(0));
    parts.observe(0, trees[0]);
    for (int k = 0; k < 3; ++k) EXPECT_TRUE(parts.log(k).steps == 1 && parts.log(k).forgotten == 1);
    EXPECT_EQ(parts.log(1).observed.size(), 1u) << "it was forgotten";
  }
}

TEST(Combinations, DrawInScopesOfTheirOwn) {
  for (const char* name : {"longest", "merge", "bandit"}) {
    PartsByHand parts(made_of(name, {arm(0, {{5}}), arm(1, {{5}}, {{"drawn", true}})}));
    parts.draft({{9, 4}});
    EXPECT_EQ(parts.log(0).draws.at(0).scope, Draws{}.within(0).scope);
    if (name == std::string("bandit")) continue;
    EXPECT_EQ(parts.log(1).draws.at(0).scope, Draws{}.within(1).scope);
  }
}

TEST(Merge, SharesNodesOfEqualPaths) {
  PartsByHand parts(made_of("merge", {arm(0, {{5, 6}}), arm(1, {{5, 7}, {8}}), arm(2, {{8, 6}, {5, 6, 4}})}));
  EXPECT_EQ(drawn(parts, {9, 4}), "0>5 1>6 1>7 0>8 4>6 2>4");
  EXPECT_EQ(drawn(parts, {4, 4}), "0>5 1>6 1>7") << "those listed first, and nothing below what has no room";
  EXPECT_EQ(drawn(parts, {9, 1}), "0>5 0>8");
  EXPECT_EQ(drawn(parts, {1, 0}), "");
}

TEST(Merge, GivesWhatGuessesLeaveToTheOneThatDraws) {
  const json draws = arm(0, {{5, 6, 7, 8}}, {{"drawn", true}}), guesses = arm(1, {{5, 9}, {4}, {3}});
  PartsByHand half(made_of("merge", {draws, guesses})), one(made_of("merge", {draws, guesses}, {{"guesses", 1}}));
  const DraftTree tree = std::move(half.draft({{8, 4}}).front());
  EXPECT_EQ(PartsByHand::text(tree), "0>5 1>9 0>4 0>5 4>6 5>7 6>8") << "a draw shares no node with a guess";
  for (int n = 1; n < tree.nodes; ++n)
    EXPECT_EQ(Drawn(*tree.q.drawn.row<std::uint8_t>(n)), n < 4 ? Drawn::certain : Drawn::independent);
  EXPECT_EQ(half.log(0).budgets.at(0), (Budget{5, 4}));
  EXPECT_EQ(drawn(one, {8, 4}), "0>5 0>5 2>6 3>7 4>8");
  EXPECT_EQ(one.log(1).budgets.at(0), (Budget{2, 4}));
  EXPECT_EQ(drawn(one, {2, 1}), "0>5") << "the guess";
  EXPECT_EQ(one.log(0).read.size(), 1u) << "nothing is left to draw";
}

TEST(Combinations, StateWhatTheirPartsPropose) {
  ArmLogs logs;
  const Registries r = with_arms(logs);
  const json draws = arm(0, {{5}}, {{"drawn", true}}), guesses = arm(1, {{5}});
  const auto needs = [&](const json& config) { return r.drafters.traits(config, {}); };
  const Needs longest = needs(made_of("longest", {guesses, draws}));
  EXPECT_EQ(longest.proposes, (std::vector{Drawn::certain, Drawn::chain}));
  EXPECT_TRUE(longest.confidence && !longest.learns && !longest.waits && !longest.any_tree);
  EXPECT_FALSE(needs(made_of("longest", {guesses, {{"name", "ngram"}}})).confidence) << "a lookup serves none";
  const Needs merge = needs(made_of("merge", {draws, guesses}));
  EXPECT_EQ(merge.proposes, (std::vector{Drawn::independent, Drawn::certain}));
  EXPECT_TRUE(needs(made_of("bandit", {guesses})).learns);
  const json tree{{"name", "draft_tree"}, {"model", "m"}, {"shape", {3, 2}}};
  EXPECT_EQ(needs(made_of("first_hit", {guesses, tree})).whole, needs(tree).whole);
  EXPECT_TRUE(needs(made_of("first_hit", {made_of("longest", {arm(0, {{5}}, {{"any_tree", true}})})})).any_tree);
  EXPECT_TRUE(needs(made_of("first_hit", {{{"name", "ngram"}}, tree})).below_drafts);
  EXPECT_FALSE(needs(made_of("first_hit", {{{"name", "ngram"}}, guesses})).below_drafts) << "as each of its parts";
}

TEST(Combinations, PassOnWhatTheirPartsHaveToSay) {
  Registries r = conformance::all_registries();
  const json part{{"name", "suffix"}, {"tokens", 2}};
  for (const char* name : {"longest", "first_hit", "merge", "bandit"}) {
    LookupByHand of(r.drafters.complete(made_of(name, {part})));
    of.finish({1, 2, 3, 4}, 1);
    EXPECT_TRUE(says(of.notice(), "evicted 1 tokens")) << name;
  }
}

TEST(Combinations, WhatCannotBeMadeIsOneSentence) {
  ArmLogs logs;
  const Registries r = with_arms(logs);
  const json a = arm(0, {{5}}), draws = arm(1, {{5}}, {{"drawn", true}});
  const auto refusal = [&](const json& config) { return sentence_of([&] { (void)r.drafters.traits(config, {}); }); };
  EXPECT_EQ(refusal(made_of("longest", {a})), "");
  EXPECT_EQ(refusal(made_of("longest", {})),
            "the drafter 'longest' is made of no drafter; name at least one in its 'drafters'");
  EXPECT_EQ(refusal(made_of("merge", std::vector<json>(8, a))), "");
  EXPECT_EQ(refusal(made_of("merge", std::vector<json>(9, a))),
            "the drafter 'merge' is made of 9 drafters, but only 8 have names for their draws; take some of them out");
  EXPECT_EQ(refusal(made_of("longest", {made_of("merge", {made_of("longest", {a})})})),
            "the drafter 'longest' is inside another one of its name; list its inner drafters in the outer one");
  json deep = made_of("longest", {made_of("first_hit", {made_of("merge", {made_of("bandit", {a})})})});
  EXPECT_EQ(refusal(deep), "");
  ArmLogs more;
  EXPECT_TRUE(says(refusal(made_of("merge", {a, draws, draws})),
                   "the drafter 'merge' has several inner drafters that draw", "keep one of them"));
  EXPECT_TRUE(
      says(refusal(made_of("merge", {a, {{"name", "lookahead"}}})), "\"lookahead\", which learns from its own"));
  EXPECT_EQ(refusal(made_of("merge", {a, {{"name", "recycling"}}})), "");
  const json both = made_of("first_hit", {{{"name", "lookahead"}}, {{"name", "recycling"}}});
  EXPECT_TRUE(says(refusal(made_of("merge", {a, both})), "\"first_hit\", which learns from its own trees alone"));
  EXPECT_TRUE(
      says(refusal(made_of("merge", {a, made_of("longest", {both})})), "\"longest\", which learns from its own"));
  json tree{{"name", "draft_tree"}, {"model", "m"}, {"shape", {3, 2}}, {"draws", "certain"}};
  EXPECT_TRUE(
      says(refusal(made_of("merge", {a, tree})), "\"draft_tree\" with a shape that may not be cut", "\"cut\": true"));
  tree["cut"] = true;
  EXPECT_EQ(refusal(made_of("merge", {a, tree})), "");
  EXPECT_TRUE(says(refusal(made_of("bandit", {a}, {{"rule", "ucb2"}})), "no rule 'ucb2'", "ucb, thompson"));
}

TEST(DraftersOption, IsCheckedAndCompletedElementByElement) {
  const Registries r = conformance::all_registries();
  const json ngram = r.drafters.complete({{"name", "ngram"}});
  const json whole = r.drafters.complete(made_of("longest", {{{"name", "ngram"}}, {{"name", "none"}}}));
  EXPECT_EQ(whole.at("drafters").at(0), ngram);
  EXPECT_EQ(r.drafters.complete(whole), whole);
  const auto refusal = [&](const json& drafters) {
    return sentence_of([&] { (void)r.drafters.complete({{"name", "longest"}, {"drafters", drafters}}); });
  };
  EXPECT_TRUE(says(refusal("ngram"), "option 'drafters' of drafter 'longest' must be drafters", "not \"ngram\""));
  EXPECT_TRUE(says(refusal({"ngram"}), "option 'drafters' of drafter 'longest' must be drafters"));
  EXPECT_TRUE(says(refusal(nullptr), "option 'drafters' of drafter 'longest' must be drafters"));
  EXPECT_TRUE(says(refusal({{{"name", "ngram"}}, {{"name", "ngam"}}}),
                   "option 'drafters/1' of drafter 'longest': unknown drafter 'ngam'"));
  EXPECT_TRUE(
      says(refusal({{{"name", "ngram"}, {"longst", 2}}}), "option 'drafters/0' of drafter 'longest'", "'longst'"));
}

TEST(DraftersOption, FilesAreThoseOfAllElements) {
  const Registries r = conformance::all_registries();
  const json whole = r.drafters.complete(
      made_of("longest", {{{"name", "draft_model"}, {"model", "m"}}, {{"name", "eagle3"}, {"head", "h"}}}));
  const ComponentFiles files = r.drafters.files(whole);
  ASSERT_EQ(files.models.size(), 1u);
  EXPECT_EQ(files.models[0].directory, "m");
  EXPECT_EQ(files.paths, std::vector<std::string>{"h"});
  const json found = r.drafters.with_paths(whole, [](const std::string& path) { return "/there/" + path; });
  EXPECT_EQ(found.at("drafters").at(1).at("head"), "/there/h");
}

}  // namespace
}  // namespace foretoken::test
