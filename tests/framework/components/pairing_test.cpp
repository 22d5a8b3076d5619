// What of a user's choice is refused before any component is made: a drafter's shape beside a policy's largest budget.
#include "framework/components/pairing.h"

#include <gtest/gtest.h>

#include "tests/support/sentence.h"

namespace foretoken::test {
namespace {

using nlohmann::json;

class WholeShapes : public ::testing::Test {
 protected:
  WholeShapes() { register_drafters(registries_), register_verifiers(registries_); }

  std::string refusal(const json& options, const json& policy) {
    json drafter = {{"name", "draft_tree"}, {"model", "anything"}, {"shape", {2, 1, 1}}};
    drafter.update(options);
    const ComponentConfigs configs{registries_.drafters.complete(drafter), registries_.policies.complete(policy),
                                   registries_.verifiers.complete({{"name", "speculative_sampling"}})};
    return test::sentence_of([&] { expect_fit_whole(registries_, configs, target_); });
  }
  static json fixed(int length, const json& nodes) { return {{"name", "fixed"}, {"length", length}, {"nodes", nodes}}; }

  Registries registries_;
  ModelInfo target_ = [] {
    ModelInfo info;
    info.name = "small", info.vocab = 8, info.positions = 4;
    return info;
  }();
};

TEST_F(WholeShapes, a_shape_beyond_every_budget_of_the_policy_is_refused) {
  EXPECT_EQ(refusal(json::object(), fixed(3, 7)), "");
  EXPECT_EQ(refusal(json::object(), fixed(64, 256)), "");
  EXPECT_EQ(refusal(json::object(), fixed(3, 6)),
            "the drafter 'draft_tree' has a shape of 7 nodes (the root included) and 3 levels, but the policy 'fixed' "
            "gives at most 6 nodes (the root included) and 3 levels, so it would never be drafted whole; raise the "
            "policy's budget, choose a smaller shape, or say in the drafter's options that it may be cut");
  EXPECT_TRUE(test::says(refusal(json::object(), fixed(2, 7)), "3 levels, but the policy", "and 2 levels, so"));
  EXPECT_TRUE(test::says(refusal(json::object(), fixed(4, nullptr)), "at most 5 nodes"));
}

TEST_F(WholeShapes, what_entries_state_is_asked_once) {
  int asked = 0;
  const auto count = [&](auto& registry, const char* name) {
    auto entry = registry.entries().at(name);
    entry.traits = [&asked, traits = entry.traits](const json& options, const ModelInfo& target) {
      ++asked;
      return traits(options, target);
    };
    registry.replace(name, entry);
  };
  count(registries_.drafters, "draft_tree");
  count(registries_.policies, "fixed");
  count(registries_.verifiers, "speculative_sampling");
  EXPECT_EQ(refusal(json::object(), fixed(3, 7)), "");
  EXPECT_EQ(asked, 3);
}

TEST_F(WholeShapes, a_shape_that_may_be_cut_and_a_policy_that_never_drafts_are_not) {
  EXPECT_EQ(refusal({{"cut", true}}, fixed(2, 3)), "");
  EXPECT_EQ(refusal(json::object(), fixed(0, nullptr)), "");
}

TEST_F(WholeShapes, a_shape_deeper_than_the_context_is_refused_even_if_it_may_be_cut) {
  EXPECT_EQ(refusal({{"shape", {1, 1, 1, 1}}, {"cut", true}}, fixed(4, nullptr)),
            "the shape of the drafter 'draft_tree' has 4 levels below the root, which the context of small, 4 tokens, "
            "can never hold; choose a shape of fewer levels");
}

}  // namespace
}  // namespace foretoken::test
