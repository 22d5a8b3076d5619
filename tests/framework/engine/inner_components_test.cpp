// What components need that are made of others: served where the outer one says it too, refused in a sentence else.
#include "framework/components/pairing.h"
#include "tests/framework/engine/engine_scenario.h"

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

struct InnerComponents : EngineScenario {
  // The drafter "outer" is the drafter "inner", which needs `inner`, and says that it needs `outer`.
  void draft_with(const Needs& inner, const Needs& outer, const NeedsRanks::See& see = [](const Outcome&) {}) {
    registries.drafters.replace(
        "inner", {"",
                  "",
                  {},
                  [see](const json&, Host& host) { return std::make_unique<NeedsRanks>(host.backend(), see); },
                  [inner](const json&, const ModelInfo&) { return inner; }});
    registries.drafters.replace("outer", {"",
                                          "",
                                          {},
                                          [](const json&, Host& host) { return host.drafter({{"name", "inner"}}); },
                                          [outer](const json&, const ModelInfo&) { return outer; }});
    configs.drafter = {{"name", "outer"}};
  }
  void judge_with(bool inner, bool outer) {
    const auto says = [](bool raw) {
      return [raw](const json&, const ModelInfo&) {
        return Soundness{.takes = {Drawn::certain, Drawn::chain}, .raw = raw};
      };
    };
    registries.verifiers.replace(
        "inner", {"", "", {}, [](const json&, Host&) { return std::make_unique<RuleVerifier<Raw>>(); }, says(inner)});
    registries.verifiers.replace(
        "outer", {"", "", {}, [](const json&, Host& host) { return host.verifier({{"name", "inner"}}); }, says(outer)});
    configs.verifier = {{"name", "outer"}};
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
  const Needs guesses{.proposes = {Drawn::certain}};
  draft_with({.proposes = {Drawn::certain}, .hidden = {1}}, guesses);
  EXPECT_TRUE(says(sentence([&] { engine(); }), "the drafter 'outer'", "hidden state at point 1"));
  draft_with({.proposes = {Drawn::certain}, .ranks = -1}, guesses);
  EXPECT_TRUE(says(sentence([&] { engine(); }), "the drafter 'inner'", "-1 ranks"));
}

TEST_F(InnerComponents, RanksOfAnInnerDrafterAreThoseOfTheOuterOne) {
  const Needs one{.proposes = {Drawn::certain}, .ranks = 1}, two{.proposes = {Drawn::certain}, .ranks = 2};
  int seen = 0;
  const auto see = [&](const Outcome& o) {
    ASSERT_TRUE(o.ranks);
    EXPECT_EQ(o.ranks.dim(1), 2) << "as many as the outer one asked for";
    ++seen;
  };
  draft_with(two, one, see);
  EXPECT_TRUE(says(sentence([&] { engine(); }), "the drafter 'outer'", "2 ranks", "asks for 1", "Needs::ranks"));
  for (const Needs& inner : {one, two}) {
    draft_with(inner, two, see);
    EXPECT_EQ(finished().finish, Finish::length);
  }
  EXPECT_GT(seen, 10);
}

TEST_F(InnerComponents, RawDistributionsOfAnInnerVerifierAreAskedForByTheOuterOne) {
  judge_with(true, false);
  EXPECT_TRUE(says(sentence([&] { engine(); }), "the verifier 'outer'", "raw distributions", "Soundness::raw"));
  judge_with(true, true);
  EXPECT_EQ(finished().finish, Finish::length);
}

}  // namespace
}  // namespace foretoken::test
