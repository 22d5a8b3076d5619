// The books of drafters' forwards: whatever the drafter, the time, number and weights of what its model or head ran.
#include "experiments/conformance/components.h"
#include "tests/framework/engine/engine_scenario.h"

namespace foretoken::test {
namespace {

struct DraftBooks : EngineScenario {
  std::unique_ptr<Engine> served(const nlohmann::json& drafter, double& seconds) {
    configs.drafter = drafter, configs.verifier = {{"name", "target_match"}}, options.pages = 256;
    auto e = engine();
    e->submit(request({1, 2, 3, 1, 2, 3}, 12));
    while (!e->idle()) {
      const StepReport report = without_failures(e->step());
      const bool drafted = std::ranges::any_of(report.sequences, [](const auto& s) { return s.drafted > 0; });
      EXPECT_TRUE(!drafted || e->host().books().empty() || report.phases.draft_forward > 0) << drafter;
      seconds += report.phases.draft_forward;
    }
    return e;
  }
  static bool has_a_model(const Entry<Drafter>& entry) {
    return std::ranges::any_of(entry.options, [](const Option& o) { return o.type == "model" || o.type == "head"; });
  }
};

TEST_F(DraftBooks, have_the_forwards_of_every_model_and_head) {
  std::set<std::string> with_books;
  for (const nlohmann::json& drafter : conformance::configurations(registries.drafters)) {
    if (drafter.contains("drafters")) continue;                              // some of its models rest for many rounds
    if (conformance::needs_of(registries, drafter).races == true) continue;  // it is for the verifier 'coupled'
    const std::string name = drafter.at("name");
    const bool has_a_head = drafter.contains("head") && !drafter.at("head").is_null();
    double seconds = 0;
    const auto e = served(drafter, seconds);
    EXPECT_TRUE(!has_a_model(registries.drafters.find(drafter)) || !e->host().books().empty()) << drafter;
    std::uint64_t with_logits = 0;  // those of what only reads have none
    for (const auto& books : e->host().books()) {
      const ForwardTotals& t = books->totals();
      EXPECT_TRUE(t.forwards > 0 && t.rows >= t.forwards) << drafter;
      with_logits += t.with_logits;
      EXPECT_TRUE(t.with_logits > 0 || name == "snapkv" || name == "h2o") << drafter;
      EXPECT_TRUE(!has_a_head || name == "early_exit" || (t.weight_bytes > 0 && books->weights().bytes > 0)) << drafter;
      with_books.insert(name);
    }
    EXPECT_EQ(with_logits > 0, !e->host().books().empty()) << drafter;
    EXPECT_EQ(seconds > 0, !e->host().books().empty()) << drafter;
  }
  EXPECT_TRUE(with_books.contains("medusa") && with_books.contains("hydra") && with_books.contains("early_exit"));
}

// Its weights are the target's.
TEST_F(DraftBooks, of_a_part_of_the_target_have_no_weights_in_memory) {
  double seconds = 0;
  const auto e = served({{"name", "early_exit"}, {"layers", 0}}, seconds);
  ASSERT_EQ(e->host().books().size(), 1u);
  EXPECT_EQ(e->host().books()[0]->weights().bytes, 0);
}

// What a device recorded for one engine has the addresses of this memory.
TEST_F(DraftBooks, memory_is_the_same_in_the_next_engine_with_these_models) {
  for (const nlohmann::json& drafter : conformance::configurations(registries.drafters)) {
    // A sweep keeps models, this scenario loads them anew.
    if (drafter.contains("model") || drafter.contains("drafters")) continue;
    configs.drafter = drafter, configs.verifier = {{"name", "target_match"}}, options.pages = 256;
    const auto kept = std::make_shared<Kept>();
    std::vector<const ForwardMemory*> memories[2];
    for (auto& of_engine : memories) {
      const auto e = engine(kept);
      for (const auto& books : e->host().books()) of_engine.push_back(&books->memory());
    }
    EXPECT_EQ(memories[0], memories[1]) << drafter;
  }
}

// A block head has a forward for the block, and one for states of the target, which gives no logits.
TEST_F(DraftBooks, of_a_block_are_of_one_forward_with_logits_a_round) {
  configs.policy = {{"name", "fixed"}, {"length", 4}};
  double seconds = 0;
  const auto block = served({{"name", "dflash"}, {"head", {{"random", "small"}, {"block", 5}}}}, seconds);
  const ForwardTotals t = block->host().books()[0]->totals();
  EXPECT_EQ(t.forwards, 2 * t.with_logits);
  EXPECT_LE(t.with_logits, 11u) << "rounds behind the first";
  EXPECT_LT(t.weight_bytes, double(t.forwards) * double(block->host().books()[0]->weights().bytes) +
                                double(t.with_logits) * double(block->host().ends().head.bytes()));
}

}  // namespace
}  // namespace foretoken::test
