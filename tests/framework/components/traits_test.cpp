// What components say of themselves: what they begin with, whose word counts, and which of them fit.
#include <atomic>
#include <thread>

#include "framework/components/host.h"
#include "framework/components/pairing.h"
#include "framework/model/model.h"
#include "tests/support/sentence.h"
#include "tests/support/states.h"

namespace foretoken::test {
namespace {

using nlohmann::json;
using test::sentence_of;

TEST(Traits, BeginWithTheLeast) {
  const Needs needs;
  EXPECT_TRUE(needs.proposes.empty() && needs.hidden.empty());
  EXPECT_EQ(needs.ranks, 0);
  EXPECT_FALSE(needs.learns || needs.confidence || needs.waits || needs.below_drafts || needs.own_trees);
  EXPECT_FALSE(needs.races);
  const Soundness sound;
  EXPECT_TRUE(sound.takes.empty() && !sound.induced);
  EXPECT_TRUE(sound.exact() && !sound.path_identical());
  EXPECT_FALSE(sound.race || sound.raw || sound.first_children);
  EXPECT_EQ(sound.acceptance, Acceptance::overlap);
  EXPECT_TRUE((Soundness{.takes = {}, .promise = "exact, path-identical"}).path_identical());
  EXPECT_FALSE((Soundness{.takes = {}, .promise = "lossy: exact"}).exact());
  EXPECT_FALSE(PolicyTraits().most.drafts() || PolicyTraits().learns);
}

TEST(Traits, WhatAComponentIsGivenBeginsWithNothing) {
  const PastOnly past;
  for (const int n : {past.length, past.batch, past.rounds, past.drafted, past.accepted}) EXPECT_EQ(n, 0);
  EXPECT_EQ(past.id, 0u);
  EXPECT_EQ(past.acceptance, -1) << "no level was tested";
  EXPECT_EQ(past.room, Budget());
  const DraftRequest request;
  EXPECT_EQ(request.sequence, nullptr);
  EXPECT_EQ(request.rows, 0);
  EXPECT_TRUE(!request.race && request.hidden.rows() == 0 && !request.budget.drafts());
  Verdict verdict;
  EXPECT_EQ(verdict.length, 0);
  EXPECT_EQ(verdict.next, -1);
}

// The draw of a node is named by its number and its place among siblings, and lies where its token would: a node of
// depth 1 after `length` tokens is the token number `length`.
TEST(Traits, ADrawIsNamedByItsNodeAndPosition) {
  Sequence sequence;
  sequence.tokens = {4, 5, 6};
  const DraftRequest request{.sequence = &sequence, .budget = {}, .draws = {1, 2, 9, 0}, .race = true};
  const TokenDraw first = request.draw(1, 1), deep = request.draw(7, 3, 2);
  EXPECT_EQ(first.position, 3u);
  EXPECT_EQ(deep.position, 5u);
  EXPECT_TRUE(first.name.role == Role::draft && first.name.node == 1 && first.name.index == 0);
  EXPECT_TRUE(deep.name.role == Role::draft && deep.name.node == 7 && deep.name.index == 2);
  EXPECT_TRUE(first.race);
  EXPECT_EQ(first.draws.root, 9u);
}

TEST(Traits, BareRootsHaveRoomForTheirBudget) {
  const auto backend = make_reference_backend();
  Sequence one, two;
  one.tokens = {4, 5}, two.tokens = {6};
  std::vector<DraftRequest> requests(3);
  requests[0].sequence = &one, requests[0].budget = {4, 2};
  requests[1].sequence = &two, requests[1].budget = {1, 5};
  requests[2].sequence = &one, requests[2].budget = {5, 0};
  std::vector<DraftTree> trees = rooted(*backend, requests);
  ASSERT_EQ(trees.size(), 3u);
  const Token roots[] = {5, 6, 5};
  const int room[] = {3, 0, 0};
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(trees[i].nodes, 1);
    EXPECT_EQ(*trees[i].known.row<Token>(0), roots[i]);
    for (int k = 0; k < room[i]; ++k) trees[i].guess(0, 1);
    EXPECT_NE(sentence_of([&] { trees[i].guess(0, 1); }), "") << "tree " << i << " has room for " << room[i];
  }
}

const Option kDrafterPart{"inner", "drafter", nullptr, "", true}, kPolicyPart{"policy", "policy", nullptr, "", true},
    kVerifierPart{"verifier", "verifier", nullptr, "", true};

// Components that nobody makes.
struct Stated : Registries {
  template <class T> static void add(Registry<T>& registry, const char* name, std::vector<Option> options,
                                     const typename T::Traits& traits) {
    registry.add(name, {"", "", std::move(options), {}, states(traits)});
  }
  Needs needs(const json& config) const { return drafters.traits(config, {}); }
};

TEST(Traits, OfAComponentMadeOfOthersHaveWhatTheseNeed) {
  Stated r;
  r.add(r.drafters, "outer", {kDrafterPart, kVerifierPart},
        {.proposes = {Drawn::certain}, .ranks = 2, .hidden = {1, 3, 1}, .confidence = true, .whole = {3, 2}});
  r.add(r.drafters, "inner", {kDrafterPart},
        {.proposes = {Drawn::chain}, .ranks = 1, .hidden = {3, 2}, .waits = true, .whole = {9, 8}});
  r.add(r.drafters, "innermost", {},
        {.proposes = {Drawn::marginals},
         .learns = true,
         .ranks = 5,
         .hidden = {2, 0},
         .views_target = true,
         .page_bounds = true});
  const Needs alone = r.needs({{"name", "outer"}});
  EXPECT_EQ(alone.hidden, (std::vector<Tap>{1, 3})) << "each once";
  EXPECT_TRUE(alone.ranks == 2 && !alone.waits && !alone.learns && !alone.views_target);
  const json inner{{"name", "inner"}};
  const Needs two = r.needs({{"name", "outer"}, {"inner", inner}});
  EXPECT_EQ(two.hidden, (std::vector<Tap>{1, 3, 2}));
  EXPECT_TRUE(two.ranks == 2 && two.waits && !two.learns && !two.views_target && !two.page_bounds);
  json deep = inner;
  deep["inner"] = {{"name", "innermost"}};
  const Needs all = r.needs({{"name", "outer"}, {"inner", deep}});
  EXPECT_EQ(all.hidden, (std::vector<Tap>{1, 3, 2, 0}));
  EXPECT_TRUE(all.ranks == 5 && all.waits && all.learns && all.views_target && all.page_bounds);
  EXPECT_TRUE(all.proposes == alone.proposes && all.confidence && all.whole == alone.whole) << "its own";
}

TEST(Traits, OfPartsOfAnotherKindAreThatTheyLearn) {
  Stated r;
  r.add(r.policies, "learning", {}, {{7, 2}, true});
  r.add(r.policies, "outer", {kPolicyPart}, Budget{3, 1});
  r.add(r.verifiers, "raw", {}, {.takes = {}, .raw = true});
  r.add(r.verifiers, "outer", {kVerifierPart, kPolicyPart}, {.takes = {Drawn::chain}});
  r.add(r.drafters, "outer", {kPolicyPart, kVerifierPart}, {});
  const json learning{{"name", "learning"}}, raw{{"name", "raw"}};
  const PolicyTraits policy = r.policies.traits({{"name", "outer"}, {"policy", learning}}, {});
  EXPECT_TRUE(policy.learns && policy.most == (Budget{3, 1}));
  EXPECT_FALSE(r.policies.traits({{"name", "outer"}}, {}).learns);
  const Soundness both = r.verifiers.traits({{"name", "outer"}, {"verifier", raw}, {"policy", learning}}, {});
  EXPECT_TRUE(both.raw && both.takes == std::vector{Drawn::chain});
  EXPECT_FALSE(r.verifiers.traits({{"name", "outer"}}, {}).raw);
  EXPECT_FALSE(r.needs({{"name", "outer"}, {"verifier", raw}}).learns);
  EXPECT_TRUE(r.needs({{"name", "outer"}, {"verifier", {{"name", "outer"}, {"policy", learning}}}}).learns);
}

TEST(Traits, OfAPartThatNothingServesAreRefused) {
  Stated r;
  r.add(r.drafters, "outer", {kDrafterPart}, {.proposes = {Drawn::certain}});
  r.add(r.drafters, "inner", {}, {.proposes = {Drawn::certain}, .ranks = -1});
  EXPECT_EQ(sentence_of([&] { (void)r.needs({{"name", "outer"}, {"inner", {{"name", "inner"}}}}); }),
            "the drafter 'inner' needs -1 ranks (Needs::ranks); it must be 0 or more");
}

// An engine gives ranks, hidden states and views to its drafter, whoever names another one.
TEST(Traits, OfADrafterWithinAnotherKindAreRefusedWhereTheEngineGivesThemToItsDrafterAlone) {
  Stated r;
  r.add(r.policies, "outer", {kDrafterPart}, Budget{3, 1});
  r.add(r.verifiers, "outer", {kDrafterPart}, {.takes = {Drawn::chain}});
  r.add(r.drafters, "ranks", {}, {.ranks = 1});
  r.add(r.drafters, "states", {}, {.hidden = {1}});
  r.add(r.drafters, "views", {}, {.views_target = true});
  r.add(r.drafters, "learns", {}, {.learns = true, .waits = true});
  const auto of = [&](const char* drafter) { return json{{"name", "outer"}, {"inner", {{"name", drafter}}}}; };
  for (const char* drafter : {"ranks", "states", "views"}) {
    EXPECT_TRUE(says(sentence_of([&] { (void)r.policies.traits(of(drafter), {}); }), "within a policy or a verifier"));
    EXPECT_TRUE(says(sentence_of([&] { (void)r.verifiers.traits(of(drafter), {}); }), "within a policy or a verifier"));
  }
  EXPECT_TRUE(r.policies.traits(of("learns"), {}).learns);
}

// All verifiers inside a drafter judge tokens of one path, which are drawn in one way.
TEST(Traits, OfADrafterWithAnInnerVerifierAreThatItsDrawsAreRacesOrNot) {
  Stated r;
  r.add(r.verifiers, "races", {}, {.takes = {}, .race = true});
  r.add(r.verifiers, "draws", {}, {.takes = {}});
  r.add(r.drafters, "outer", {kDrafterPart, kVerifierPart}, {});
  const auto of = [](const char* verifier, const json& inner = nullptr) {
    return json{{"name", "outer"}, {"verifier", {{"name", verifier}}}, {"inner", inner}};
  };
  EXPECT_EQ(r.needs({{"name", "outer"}}).races, std::nullopt);
  EXPECT_EQ(r.needs(of("races")).races, true);
  EXPECT_EQ(r.needs(of("draws")).races, false);
  EXPECT_EQ(r.needs(of("races", of("races"))).races, true);
  EXPECT_TRUE(says(sentence_of([&] { (void)r.needs(of("draws", of("races"))); }), "would be drawn in two ways"));
}

const ComponentConfigs kThree{{{"name", "d"}}, {{"name", "p"}}, {{"name", "v"}}};

TEST(Pairing, EveryKindOfNodeMustBeTaken) {
  const auto refusal = [](std::vector<Drawn> proposes, std::vector<Drawn> takes) {
    return sentence_of([&] { expect_sound(kThree, {.proposes = proposes}, {.takes = takes}); });
  };
  EXPECT_EQ(refusal({}, {}), "");
  EXPECT_EQ(refusal({Drawn::chain}, {Drawn::certain, Drawn::chain}), "");
  EXPECT_EQ(refusal({Drawn::certain, Drawn::independent}, {Drawn::certain, Drawn::chain}),
            "the verifier 'v' is not sound for the drafter 'd', whose nodes are drawn 'independent', while it takes "
            "those drawn 'certain, chain'; choose another verifier or drafter");
}

TEST(Pairing, AnInnerVerifierDrawsAsTheOuterOne) {
  for (const bool inner : {false, true})
    for (const bool outer : {false, true}) {
      const std::string why =
          sentence_of([&] { expect_sound(kThree, Needs{.races = inner}, Soundness{.takes = {}, .race = outer}); });
      EXPECT_EQ(why.empty(), inner == outer) << why;
      if (inner != outer) {
        EXPECT_TRUE(says(why, "the drafter 'd' has an inner verifier", "the verifier 'v'"));
      }
    }
}

TEST(Pairing, ConfidenceMustBeServed) {
  const auto refusal = [](float confidence, bool served) {
    return sentence_of([&] { expect_confidence(kThree, {4, 3, confidence}, {.proposes = {}, .confidence = served}); });
  };
  EXPECT_EQ(refusal(0, false), "");
  EXPECT_EQ(refusal(0.5f, true), "");
  EXPECT_EQ(refusal(0.5f, false),
            "the policy 'p' sets Budget::confidence, which the drafter 'd' does not serve; choose a drafter that does "
            "(Needs::confidence), or another policy");
}

// Before anything is made.
TEST(Pairing, FitsAreExpectedOfWhatEntriesState) {
  Needs needs{.proposes = {Drawn::chain}};
  Budget most{4, 3};
  Soundness sound{.takes = {Drawn::chain}};
  const auto refusal = [&] {
    Stated r;
    r.add(r.drafters, "d", {}, needs), r.add(r.policies, "p", {}, most), r.add(r.verifiers, "v", {}, sound);
    return sentence_of([&] { (void)fitting_traits(r, kThree, {}); });
  };
  EXPECT_EQ(refusal(), "");
  most.confidence = 0.5f;
  EXPECT_TRUE(test::says(refusal(), "Budget::confidence"));
  sound.takes = {Drawn::certain};
  EXPECT_TRUE(test::says(refusal(), "is not sound"));
  needs.ranks = -2;
  EXPECT_EQ(refusal(), "the drafter 'd' needs -2 ranks (Needs::ranks); it must be 0 or more");
}

TEST(Kept, IsMadeOncePerKeyAndForgottenUnlessItIsAskedFor) {
  Kept kept;
  int made = 0;
  const auto find = [&](const std::string& key) {
    return kept.find(key, typeid(int), [&] { return std::make_shared<const int>(++made); });
  };
  const auto first = find("a");
  EXPECT_EQ(find("a"), first);
  EXPECT_NE(find("b"), first);
  EXPECT_EQ(made, 2);
  kept.forget_unused();
  EXPECT_EQ(find("a"), first) << "it was asked for since the beginning";
  kept.forget_unused();
  EXPECT_EQ(find("a"), first) << "it was asked for since";
  EXPECT_EQ(made, 2);
  find("b");
  EXPECT_EQ(made, 3) << "it was not";
  kept.forget_unused(), kept.forget_unused();
  EXPECT_NE(find("a"), first);
  EXPECT_TRUE(test::says(sentence_of([&] { kept.find("a", typeid(float), [] { return nullptr; }); }),
                         "'a' is kept as another type"));
  EXPECT_EQ(sentence_of([&] { kept.find("c", typeid(int), [] { return nullptr; }); }),
            "the maker of 'c' returned null; return an object from Host::keep's maker");
}

TEST(Kept, IsMadeOnceWhereSeveralThreadsAskForIt) {
  Kept kept;
  std::atomic<int> made = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 200; ++i)
        kept.find(std::to_string(i), typeid(int), [&]() -> std::shared_ptr<const void> {
          kept.find("inner", typeid(int), [&] { return std::make_shared<const int>(++made); });
          return std::make_shared<const int>(++made);
        });
    });
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(made, 201);
}

TEST(Hosts, ServeWhatTheyWereGiven) {
  const auto backend = make_reference_backend();
  PagePool pool(*backend, 64, 4);
  ModelInfo target;
  target.name = "big", target.vocab = 9;
  Host host(*backend, pool, target, {}, false);
  const auto kept = [&](Host& h) { return h.keep<int>("k", [] { return std::make_shared<const int>(3); }); };
  EXPECT_EQ(kept(host), kept(host));
  EXPECT_TRUE(test::says(sentence_of([&] { host.target_model(); }), "does not offer its target, big, to drafters"));
  EXPECT_TRUE(test::says(sentence_of([&] { host.ends(); }), "does not offer its target, big, to drafters"));
  EXPECT_EQ(sentence_of([&] { host.load({"a/b"}); }), "this engine was given no way to load the model 'a/b'");
  for (const auto& make :
       {std::function([&] { host.drafter({{"name", "x"}}); }), std::function([&] { host.verifier({{"name", "x"}}); })})
    EXPECT_TRUE(test::says(sentence_of(make), "this engine was given no way to make another"));
}

TEST(Round, ChildrenAreThoseOfTheNodeWithoutAbsentOnes) {
  Round r;
  r.parents = {-1, 0, 0, 1, 0, 2};
  r.tokens = {0, 3, -1, 0, 0, 1};
  EXPECT_EQ(r.nodes(), 6);
  EXPECT_EQ(r.children(0), (std::vector<int>{1, 4}));
  EXPECT_EQ(r.children(1), (std::vector<int>{3}));
  EXPECT_EQ(r.children(2), (std::vector<int>{5}));
  EXPECT_EQ(r.children(5), std::vector<int>{});
}

}  // namespace
}  // namespace foretoken::test
