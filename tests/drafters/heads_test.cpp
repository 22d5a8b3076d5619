// Heads on states of the target in their published layouts: logits along a decode with accepted and rejected drafts, as
// tests/golden/heads_golden.py has them, and what is refused.
#include <gtest/gtest.h>

#include "tests/drafters/golden_logits.h"
#include "tests/drafters/head_by_hand.h"
#include "tests/framework/text/temporary_folder.h"
#include "tests/support/sentence.h"

namespace foretoken::test {
namespace {

namespace fs = std::filesystem;

struct Heads : ::testing::TestWithParam<const char*> {
  static nlohmann::json golden() { return golden_of(GetParam()); }
};

TEST_P(Heads, GiveTheLogitsOfTheirPapers) {
  HeadByHand by_hand(make_reference_backend());
  by_hand.open(GetParam());
  EXPECT_EQ(by_hand.taps, golden().at("taps").get<std::vector<Tap>>());
  EXPECT_LT(golden_error(by_hand, golden()), 2e-5);
}

TEST_P(Heads, GiveThemOnTheCpu) {
  HeadByHand by_hand(cpu_backend(2));
  by_hand.open(GetParam());
  EXPECT_LT(golden_error(by_hand, golden()), 0.05);
}

INSTANTIATE_TEST_SUITE_P(Layouts, Heads,
                         testing::Values("eagle1", "eagle3", "eagle3_speculators", "eagle31", "mtp_mimo", "mtp_qwen",
                                         "mtp_deepseek", "medusa1", "medusa2", "medusa_legacy", "hydra", "hydra_prefix",
                                         "kangaroo"),
                         [](const auto& instance) { return std::string(instance.param); });

// Of a target that is a mixture of experts.
TEST(EagleHeads, ReadTheirOwnWeightsAlone) {
  HeadByHand by_hand(make_reference_backend());
  ModelInfo target = by_hand.models.target->info();
  target.expert_bytes = target.weight_bytes / 2;
  target.used_experts = 0.25;
  const Ends& ends = by_hand.host.ends();
  const EagleFiles eagle = open_eagle(directory_of_golden("eagle3"), 3, target, true);
  const HydraFiles hydra = open_hydra(directory_of_golden("hydra"), target, ends.epsilon);
  EXPECT_EQ(EagleHead(*by_hand.backend, eagle, ends, target, "f32").info().spared_bytes(1), 0);
  EXPECT_EQ(HydraHead(*by_hand.backend, hydra, ends, target, "f32").info().spared_bytes(1), 0);
  EXPECT_GT(target.spared_bytes(1), 0);
}

TEST(EagleFiles, OfAnotherGenerationNameItsDrafter) {
  HeadByHand by_hand(make_reference_backend());
  const ModelInfo& target = by_hand.models.target->info();
  EXPECT_TRUE(says(sentence_of([&] { open_eagle((kHeads / "eagle1").string(), 3, target); }), "eagle1",
                   "use the drafter 'eagle'"));
  EXPECT_TRUE(says(sentence_of([&] { open_eagle((kHeads / "eagle3").string(), 1, target); }), "eagle3",
                   "use the drafter 'eagle3'"));
}

TEST(EagleFiles, OfAnotherTargetAreRefused) {
  HeadByHand by_hand(make_reference_backend());
  ModelInfo other = by_hand.models.target->info();
  other.vocab = 90;
  EXPECT_TRUE(says(sentence_of([&] { open_eagle((kHeads / "eagle3").string(), 3, other); }), "'d2t'", "to 95",
                   "the target lacks"));
  other = by_hand.models.target->info(), other.width = 48;
  EagleFiles files = open_eagle((kHeads / "eagle3").string(), 3, other);
  EXPECT_TRUE(says(sentence_of([&] { EagleHead(*by_hand.backend, files, by_hand.host.ends(), other, "f32"); }),
                   "states of 64 numbers", "have 48", "another target"));
  other = by_hand.models.target->info(), other.kv.layers.resize(1);
  EXPECT_TRUE(says(sentence_of([&] { open_eagle((kHeads / "eagle3").string(), 3, other); }),
                   "eagle_aux_hidden_state_layer_ids", "1 layers"));
}

TEST(HeadFiles, APickleIsRefusedWithItsRemedy) {
  const TemporaryFolder folder;
  folder.write("config.json", "{}"), folder.write("pytorch_model.bin", "PK");
  HeadByHand by_hand(make_reference_backend());
  EXPECT_TRUE(says(sentence_of([&] { open_eagle(folder.path().string(), 3, by_hand.models.target->info()); }),
                   "pytorch_model.bin is a Python pickle", "experiments/models/convert_head.py"));
}

TEST(HeadFiles, WhatIsNoHeadIsNamed) {
  HeadByHand by_hand(make_reference_backend());
  const ModelInfo& target = by_hand.models.target->info();
  const std::string llama = (fs::path(FORETOKEN_SOURCE_DIR) / "tests/data/models/llama2").string();
  EXPECT_TRUE(says(sentence_of([&] { open_eagle(llama, 3, target); }), "no head of the EAGLE family"));
  EXPECT_TRUE(says(sentence_of([&] { open_mtp(llama, target); }), "no module for multi-token prediction",
                   "model.layers.2.eh_proj"));
}

}  // namespace
}  // namespace foretoken::test
