// What components need that are made of others: served where an option names the inner one, refused in a sentence else.
#include "tests/framework/engine/engine_scenario.h"
#include "tests/support/states.h"

namespace foretoken::test {
namespace {

using nlohmann::json;

// Guesses the last token again and looks at what it learns.
class NeedsRanks : public Drafter {
 public:
  using See = std::function<void(const Outcome&)>;
  NeedsRanks(Backend& backend, See see) : backend_(backend), see_(std::move(see)) {}
  std::vector<DraftTree> draft(std::span<const DraftRequest> requests) override {
    std::vector<DraftTree> trees = rooted(backend_, requests);
    for (std::size_t i = 0; i < trees.size(); ++i)
      if (requests[i].budget.drafts()) trees[i].guess(0, requests[i].sequence->last());
    return trees;
  }
  void observe(std::span<const Outcome> outcomes) override {
    for (const Outcome& o : outcomes) see_(o);
  }

 private:
  Backend& backend_;
  See see_;
};

// Reads the raw distribution and draws from the target's.
struct Raw {
  template <class Lane> FORETOKEN_HD Verdict operator()(Lane& lane, const Trial& t) const {
    Verdict v;
    v.finish(t.raw(0)(0) >= 0 ? lane.draw(t.p(0), {Role::bonus, 0, 0}) : 0);
    return v;
  }
};

class AlwaysTwo : public LengthPolicy {
  std::vector<Budget> budgets(std::span<const PastOnly> past) override {
    return std::vector<Budget>(past.size(), {3, 2});
  }
};

struct InnerComponents : EngineScenario {
  // The drafter "outer", which needs `outer`, is that of its option, or where `hidden` the drafter "inner" all the
  // same, which needs `inner`.
  void draft_with(
      const Needs& inner, const Needs& outer, const NeedsRanks::See& see = [](const Outcome&) {}, bool hidden = false) {
    const auto make = [see](const json&, Host& host) { return std::make_unique<NeedsRanks>(host.backend(), see); };
    registries.drafters.replace("inner", {"", "", {}, make, states(inner)});
    registries.drafters.replace(
        "outer", {"", "", part("drafter", hidden),
                  [](const json& o, Host& host) { return host.drafter(o.value("inner", json{{"name", "inner"}})); },
                  states(outer)});
    configs.drafter = {{"name", "outer"}};
  }
  void judge_with(bool hidden) {
    const auto raw = [](bool reads) {
      return states(Soundness{.takes = {Drawn::certain, Drawn::chain}, .raw = reads});
    };
    registries.verifiers.replace("inner", entry_that<Verifier>(raw(true), [](const json&, Host&) {
                                   return std::make_unique<RuleVerifier<Raw>>();
                                 }));
    registries.verifiers.replace(
        "outer", {"", "", part("verifier", hidden),
                  [](const json& o, Host& host) { return host.verifier(o.value("inner", json{{"name", "inner"}})); },
                  raw(false)});
    configs.verifier = {{"name", "outer"}};
  }
  // The policy "outer", whose part learns.
  void choose_with(bool hidden) {
    registries.policies.replace(
        "inner", entry_that<LengthPolicy>(states(PolicyTraits({3, 2}, true)),
                                          [](const json&, Host&) { return std::make_unique<AlwaysTwo>(); }));
    registries.policies.replace(
        "outer", {"", "", part("policy", hidden),
                  [](const json& o, Host& host) { return host.policy(o.value("inner", json{{"name", "inner"}})); },
                  states(Budget{3, 2})});
    configs.policy = {{"name", "outer"}};
  }
  static std::vector<Option> part(const char* kind, bool hidden) {
    if (hidden) return {};
    return {{"inner", kind, {{"name", "inner"}}, "its part"}};
  }
  Sequence finished() {
    const auto e = engine();
    e->submit(request({1, 2, 3}, 12));
    while (!e->idle())
      for (Sequence& s : e->step().finished) return std::move(s);
    return {};
  }
};

TEST_F(InnerComponents, WhatNothingServesIsRefusedOfAnInnerDrafterToo) {
  draft_with({.proposes = {Drawn::certain}, .ranks = -1}, {.proposes = {Drawn::certain}});
  EXPECT_TRUE(says(sentence([&] { engine(); }), "the drafter 'inner'", "-1 ranks"));
}

TEST_F(InnerComponents, RanksAreAsManyAsTheInnerOrTheOuterDrafterNeeds) {
  const Needs one{.proposes = {Drawn::certain}, .ranks = 1}, two{.proposes = {Drawn::certain}, .ranks = 2};
  int seen = 0;
  const auto see = [&](const Outcome& o) {
    ASSERT_TRUE(o.ranks);
    EXPECT_EQ(o.ranks.dim(1), 2);
    ++seen;
  };
  for (const auto& [inner, outer] : {std::pair(one, two), {two, one}, {two, two}}) {
    draft_with(inner, outer, see);
    EXPECT_EQ(finished().finish, Finish::length);
  }
  EXPECT_GT(seen, 15);
}

TEST_F(InnerComponents, RawDistributionsAreThereForAnInnerVerifier) {
  judge_with(false);
  EXPECT_EQ(finished().finish, Finish::length);
}

TEST_F(InnerComponents, AnEngineLearnsWhereAnInnerPolicyDoes) {
  EXPECT_FALSE(engine()->learns());
  choose_with(false);
  EXPECT_TRUE(engine()->learns());
}

// Whatever else the outer ones state: the engine would not know of it.
TEST_F(InnerComponents, PartsThatNeedSomethingAreNamedByAnOption) {
  const Needs guesses{.proposes = {Drawn::certain}};
  for (const auto& change : {+[](Needs& n) { n.ranks = 1; }, +[](Needs& n) { n.hidden = {1}; },
                             +[](Needs& n) { n.views_target = true; }, +[](Needs& n) { n.page_bounds = true; },
                             +[](Needs& n) { n.learns = true; }, +[](Needs& n) { n.waits = true; }}) {
    Needs inner = guesses;
    change(inner);
    draft_with(inner, guesses, [](const Outcome&) {}, true);
    EXPECT_EQ(sentence([&] { engine(); }),
              "the drafter 'inner' is part of another component, and its Entry::traits asks the engine for something; "
              "let an option of the type \"drafter\" name it, so that the engine serves it");
  }
  draft_with(guesses, guesses, [](const Outcome&) {}, true);
  EXPECT_EQ(finished().finish, Finish::length) << "one that needs nothing";
  judge_with(true);
  EXPECT_TRUE(says(sentence([&] { engine(); }), "the verifier 'inner' is part of another component"));
  configs.verifier = {{"name", "speculative_sampling"}};
  choose_with(true);
  EXPECT_TRUE(says(sentence([&] { engine(); }), "the policy 'inner' is part of another component"));
}

// What the drafter's options name serves the drafter: a policy that makes it too, unnamed, would get nothing of it.
TEST_F(InnerComponents, PartsAreNamedByTheComponentThatMakesThem) {
  draft_with({.proposes = {Drawn::certain}, .ranks = 1}, {.proposes = {Drawn::certain}});
  EXPECT_EQ(finished().finish, Finish::length);
  registries.policies.replace("making", entry_that<LengthPolicy>(states(Budget{3, 2}), [](const json&, Host& host) {
                                (void)host.drafter({{"name", "inner"}});
                                return std::make_unique<AlwaysTwo>();
                              }));
  configs.policy = {{"name", "making"}};
  EXPECT_TRUE(says(sentence([&] { engine(); }), "the drafter 'inner' is part of another component"));
}

}  // namespace
}  // namespace foretoken::test
