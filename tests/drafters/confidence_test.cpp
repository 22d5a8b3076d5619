// Budget::confidence: a node has children where the draft's greatest probability after it is large enough, whatever
// token it is itself.
#include <algorithm>
#include <set>

#include <gtest/gtest.h>

#include "experiments/conformance/components.h"
#include "experiments/conformance/devices.h"
#include "tests/drafters/recorded_trees.h"

namespace foretoken::test {
namespace {

struct TreesUnderConfidence : ::testing::TestWithParam<json> {
  static json drafter() {
    json all = GetParam();
    if (!all.contains("head")) all["model"] = "table:other";
    return all;
  }
};

std::vector<Proposed> proposals_where_sure(TreeScenario s, const json& drafter, float confidence) {
  s.budget.confidence = confidence;
  const auto backend = make_reference_backend();
  return proposals(s, drafter, *backend, random_requests(6, 6, 10, 30, 1));
}

// Of a table the test knows every distribution. The same rounds without confidence have the nodes that are left out.
TEST_P(TreesUnderConfidence, ANodeHasChildrenWhereTheDraftIsSure) {
  constexpr float kLeast = 0.45f;
  for (const float temperature : {1.0f, 0.6f, 0.0f}) {
    TreeScenario s;
    s.sampling.temperature = temperature;
    if (drafter().value("draws", "") == "without_replacement") s.verifier = "block_verification";
    const TableModel draft = s.draft_of("table:other");
    int without = 0, with = 0, ended = 0;
    for (const Proposed& p : proposals_where_sure(s, drafter(), 0)) without += p.tree.nodes - 1;
    for (const Proposed& p : proposals_where_sure(s, drafter(), kLeast)) {
      std::vector<bool> parent(std::size_t(p.tree.nodes), false);
      for (int n = 1; n < p.tree.nodes; ++n) parent[std::size_t(p.parent(n))] = true;
      for (int n = 0; n < p.tree.nodes; ++n) {
        if (!p.request.budget.drafts() || p.tokens[std::size_t(n)] < 0) continue;
        if (n > 0 && p.drawn(n) == Drawn::certain) {  // it holds the token of its place
          const std::vector<double> above = draft.distribution(p.context(p.parent(n)), Warp{1});
          const double own = above[std::size_t(p.tokens[std::size_t(n)])];
          EXPECT_EQ(std::ranges::count_if(above, [&](double other) { return other > own; }), p.rank(n));
        }
        const std::vector<double> q = draft.distribution(p.context(n), Warp{1});
        const bool sure = std::ranges::max(q) >= double(kLeast);
        EXPECT_TRUE(sure || !parent[std::size_t(n)]) << p.depth(n);
        ended += !sure;
      }
      with += p.tree.nodes - 1;
    }
    EXPECT_GT(with, 60);
    EXPECT_LT(with, without);
    EXPECT_GT(ended, 20);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Drafters, TreesUnderConfidence,
    testing::Values(json{{"name", "draft_model"}}, json{{"name", "draft_tree"}, {"shape", {3, 2, 1, 1}}, {"cut", true}},
                    json{{"name", "draft_tree"},
                         {"shape", json::parse("[[0], [1], [2], [0, 0], [0, 1], [1, 0], [0, 0, 0], [1, 0, 0]]")},
                         {"draws", "without_replacement"},
                         {"cut", true}},
                    json{{"name", "draft_dynamic"}, {"width", 3}, {"expand", 2}}),
    [](const auto& instance) {
      return instance.param.at("name").template get<std::string>() + std::to_string(instance.index);
    });

// What a chain does by hand: it grows until the first node that is unsure, and up to the budget where none is.
TEST(UnderConfidence, AChainGoesOnAsLongAsTheDraftIsSure) {
  TreeScenario s;
  const TableModel draft = s.draft_of("table:other");
  int whole = 0, bare = 0;
  for (const Proposed& p : proposals_where_sure(s, {{"name", "draft_model"}, {"model", "table:other"}}, 0.45f)) {
    if (!p.request.budget.drafts()) continue;
    const int last = p.tree.nodes - 1;
    const double sure = std::ranges::max(draft.distribution(p.context(last), Warp{1}));
    EXPECT_TRUE(last == p.request.budget.chain() || sure < 0.45) << last << " nodes, then " << sure;
    whole += last == p.request.budget.chain(), bare += last == 0;
  }
  EXPECT_GT(whole, 5);
  EXPECT_GT(bare, 5);
}

// Every drafter with distributions states it, so that the laws of the kit look at it.
TEST(UnderConfidence, EveryDrafterWithAModelServesIt) {
  const Registries r = all_registries();
  const std::set<std::string> without{"lookahead", "ngram", "none", "recycling", "rest"};
  int serve = 0;
  for (const json& config : configurations(r.drafters)) {
    if (!refusal_of(r, r.drafters, config).empty()) continue;
    const std::string name = config.at("name");
    // Also as a part of another, but for one that drafts for the drafter's own model.
    json proposes = config;
    proposes.erase("inner");
    const bool lacks = std::ranges::any_of(without, [dump = proposes.dump()](const std::string& one) {
      return dump.find("\"name\":\"" + one + "\"") != std::string::npos;
    });
    EXPECT_EQ(needs_of(r, config).confidence, !lacks) << name;
    serve += needs_of(r, config).confidence;
  }
  EXPECT_GT(serve, 10);
}

// Chains and trees wait once a level and once for the verdicts; heads whose levels come at once wait once more.
TEST(UnderConfidence, WaitsAreOneALevelOrOneARound) {
  TreeScenario s;
  const auto device = [&](const json& drafter, float confidence) {
    s.budget.confidence = confidence;
    SimulatedDevice waiting;
    int most = 0;
    (void)proposals(s, drafter, waiting, random_requests(4, 6, 10, 20, 1),
                    [&](Engine&, const StepReport& r, auto) { most = std::max(most, r.waits); });
    return most;
  };
  const json chain{{"name", "draft_model"}, {"model", "table:other"}},
      masks{{"name", "pard"}, {"model", "table:other"}, {"mask", 0}};
  EXPECT_EQ(device(chain, 0), 1);
  EXPECT_EQ(device(chain, 0.3f), 1 + s.budget.depth);
  EXPECT_EQ(device(masks, 0), 1);
  EXPECT_EQ(device(masks, 0.3f), 2);
}

}  // namespace
}  // namespace foretoken::test
