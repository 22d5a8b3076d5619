// The offers of Host to components, and the errors of needs that are not implemented.
#include "tests/framework/engine/offers_scenario.h"
#include "tests/support/around.h"
#include "tests/support/states.h"

namespace foretoken::test {
namespace {

TEST_F(Offers, ADrafterMadeOfAnother) {
  const Tokens plain = text(0);
  const json inner = configs.drafter;
  draft_with([&](Host& h) { return std::make_unique<test::Around>(h.drafter(inner)); }, {.proposes = {Drawn::chain}});
  EXPECT_EQ(text(0), plain);
  EXPECT_EQ(text(1).size(), 15u);
  draft_with([](Host& h) { return std::make_unique<test::Around>(h.drafter({{"name", "ngrm"}})); });
  EXPECT_TRUE(says(sentence([&] { engine(); }), "did you mean 'ngram'?"));
}

TEST_F(Offers, AVerifierMadeOfAnother) {
  registries.verifiers.add(
      "mine",
      entry_that<Verifier>(states_those_of(registries.verifiers, {{"name", "speculative_sampling"}}),
                           [](const json&, Host& host) { return host.verifier({{"name", "speculative_sampling"}}); }));
  const Tokens plain = text(1);
  configs.verifier = {{"name", "mine"}};
  EXPECT_EQ(text(1), plain);
}

TEST_F(Offers, TheTargetItself) {
  draft_with([&](Host& host) {
    EXPECT_EQ(host.target_model(), models.target);
    EXPECT_EQ(host.cache(host.target_model())->info().name, models.target->info().name);
    return host.drafter({{"name", "ngram"}});
  });
  engine();
}

TEST_F(Offers, KeptObjectsAreMadeOnceForAKeyAndOutliveAnEngine) {
  int made = 0;
  std::vector<const void*> seen;
  draft_with([&](Host& host) {
    const auto table = host.keep<std::vector<int>>("a table of three", [&] {
      ++made;
      return std::make_unique<std::vector<int>>(3);
    });
    seen.push_back(table.get());
    return host.drafter({{"name", "ngram"}});
  });
  const auto kept = std::make_shared<Kept>();
  const auto make = [&](const std::shared_ptr<Kept>& k) {
    Engine(*backend, models.target, registries, configs, options, models.load, k);
  };
  make(kept), make(kept);
  EXPECT_EQ(made, 1);
  EXPECT_EQ(seen[0], seen[1]);
  make({});
  EXPECT_EQ(made, 2) << "an engine without `kept` shares nothing";
  kept->forget_unused(), make(kept), kept->forget_unused(), make(kept);
  EXPECT_EQ(made, 2) << "objects that were requested since are kept";
  kept->forget_unused(), kept->forget_unused(), make(kept);
  EXPECT_EQ(made, 3);
}

TEST_F(Offers, AKeptObjectHasOneTypeAndIsNotNull) {
  const auto keep = [&](auto thing, bool nothing) {
    using T = decltype(thing);
    draft_with([=](Host& host) {
      host.keep<T>("key", [=] { return nothing ? nullptr : std::make_shared<T>(thing); });
      return host.drafter({{"name", "ngram"}});
    });
  };
  const auto kept = std::make_shared<Kept>();
  const auto make = [&] { Engine(*backend, models.target, registries, configs, options, models.load, kept); };
  keep(1, true);
  EXPECT_TRUE(says(sentence(make), "'reference", "key'", "returned null"));
  keep(1, false);
  make();
  keep(1.5, false);
  EXPECT_TRUE(says(sentence(make), "another type", "another key"));
}

TEST_F(Offers, NoRanksComeWithoutNeedsRanks) {
  const auto see = [](const Outcome& o) { EXPECT_FALSE(o.ranks); };
  draft_with([&](Host& h) { return std::make_unique<Needing>(h.backend(), see); });
  text(1);
}

TEST_F(Offers, NeedsThatAreNotImplementedAreErrors) {
  EXPECT_TRUE(
      says(refusal({.proposes = {Drawn::certain, Drawn::aside}}), "the drafter 'mine'", "'aside'", "leave them out"));
  EXPECT_TRUE(says(refusal({.proposes = {Drawn::certain}, .ranks = -1}), "the drafter 'mine'", "-1 ranks"));
}

// Needs that Entry::traits states are checked before the verifier is compared and before anything is made.
TEST_F(Offers, DeclaredNeedsThatAreNotImplementedAreErrorsBeforeAnythingIsMade) {
  int made = 0;
  const auto refused = [&](const Needs& needs) {
    registries.drafters.replace("mine", entry_that<Drafter>(states(needs), [&made](const json&, Host& h) {
                                  ++made;
                                  return h.drafter({{"name", "ngram"}});
                                }));
    configs.drafter = {{"name", "mine"}};
    return sentence([&] { engine(); });
  };
  EXPECT_TRUE(says(refused({.proposes = {Drawn::aside}}), "the drafter 'mine'", "leave them out"));
  EXPECT_TRUE(says(refused({.proposes = {Drawn::certain}, .hidden = {0, 7}}), "after layer 7", "has 1 layers"));
  EXPECT_EQ(made, 0);
}

TEST(BareHost, RefusesWhatItsEngineDoesNotOffer) {
  const auto backend = make_reference_backend();
  PagePool pool(*backend, 64, 1);
  ModelInfo info;
  info.name = "t";
  Host host(*backend, pool, info, {}, false);
  EXPECT_TRUE(says(test::sentence_of([&] { host.drafter({{"name", "none"}}); }), "no way to make another drafter"));
  EXPECT_TRUE(says(test::sentence_of([&] { host.verifier({{"name", "none"}}); }), "no way to make another verifier"));
  EXPECT_TRUE(says(test::sentence_of([&] { (void)host.target_model(); }), "does not offer its target"));
  EXPECT_EQ(*host.keep<int>("one", [] { return std::make_unique<int>(1); }), 1);
}

}  // namespace
}  // namespace foretoken::test
