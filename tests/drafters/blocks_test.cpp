// Heads that draft blocks in their published layouts: logits along a decode, as tests/golden/blocks_golden.py has them,
// and what is refused.
#include <gtest/gtest.h>

#include "tests/drafters/block_by_hand.h"
#include "tests/framework/text/temporary_folder.h"
#include "tests/support/sentence.h"

namespace foretoken::test {
namespace {

namespace fs = std::filesystem;

struct Blocks : ::testing::TestWithParam<const char*> {
  static nlohmann::json golden() { return golden_of(GetParam()); }
};

TEST_P(Blocks, GiveTheLogitsOfTheirPapers) {
  BlockByHand by_hand(make_reference_backend());
  by_hand.open(GetParam());
  EXPECT_EQ(by_hand.head->form().taps, golden().at("taps").get<std::vector<Tap>>());
  EXPECT_EQ(by_hand.head->form().first, golden().at("first").get<int>());
  EXPECT_LT(golden_error(by_hand, golden()), 2e-5);
}

TEST_P(Blocks, GiveThemOnTheCpu) {
  BlockByHand by_hand(cpu_backend(2));
  by_hand.open(GetParam());
  EXPECT_LT(golden_error(by_hand, golden()), 0.05);
}

INSTANTIATE_TEST_SUITE_P(Layouts, Blocks,
                         testing::Values("dflash_zlab", "dflash_sliding", "dflash_deepspec", "dspark_deepspec",
                                         "dflash_speculators", "dspark_speculators"),
                         [](const auto& instance) { return std::string(instance.param); });

// Rows of the target's states are made over several rounds where one may not make them all, and drafts wait for the
// last.
TEST(BlockModel, CatchesUpWithoutDrafting) {
  BlockByHand slow(make_reference_backend()), fast(make_reference_backend());
  slow.open("dflash_zlab"), fast.open("dflash_zlab");
  const Tokens tokens{1, 7, 33, 20, 5, 60};
  for (int round = 0; round < 2; ++round) {
    const DraftRequest r = slow.request(tokens, 2);
    EXPECT_TRUE(slow.model->run({&r, 1}).active.empty()) << round;
  }
  const DraftRequest r = slow.request(tokens, 2);
  const BlockModel::Round round = slow.model->run({&r, 1});
  ASSERT_EQ(round.active.size(), 1u);
  const Tensor logits = slow.model->logits(round, 1);
  EXPECT_EQ(std::vector<float>(logits.row<float>(0), logits.row<float>(0) + logits.dim(1)),
            fast.round(tokens, {40, 9, 3}).at(0));
}

// A shorter block is another question: its logits differ, but only in what the rows attend to.
TEST(BlockModel, OtherNumbersOfRowsChangeTheLogits) {
  BlockByHand whole(make_reference_backend()), part(make_reference_backend());
  whole.open("dflash_zlab"), part.open("dflash_zlab", 3);
  const auto a = whole.round({1, 7, 33, 20}, {40, 9, 3}), b = part.round({1, 7, 33, 20}, {40, 9, 3});
  EXPECT_EQ(a.size(), 3u);
  ASSERT_EQ(b.size(), 2u);
  EXPECT_NE(a[0], b[0]);
}

TEST(BlockModel, DraftsNothingWhereTheBlockLeavesTheContext) {
  BlockByHand by_hand(make_reference_backend());
  by_hand.open("dflash_zlab");
  const int positions = by_hand.model->info().positions;
  by_hand.sequence.tokens.assign(std::size_t(positions) - 3, 5), by_hand.sequence.prompt_length = 1;
  const DraftRequest fits{&by_hand.sequence, {8, 7}, 1, {}, false, {}};
  EXPECT_EQ(by_hand.model->drafts(fits), 3);
  by_hand.sequence.tokens.push_back(5);
  EXPECT_EQ(by_hand.model->drafts(fits), 0);
}

// A copy of a head with another config.
struct Changed {
  explicit Changed(const std::string& name, const std::function<void(nlohmann::json&)>& change) {
    nlohmann::json config = nlohmann::json::parse(std::ifstream(kHeads / name / "config.json"));
    change(config);
    folder.write("config.json", config.dump());
    fs::copy_file(kHeads / name / "model.safetensors", folder.path() / "model.safetensors");
  }
  std::string error(bool corrects) const {
    BlockByHand by_hand(make_reference_backend());
    return sentence_of([&] { open_block(folder.path().string(), corrects, by_hand.models.target->info()); });
  }
  BlockForm form(bool corrects) const {
    BlockByHand by_hand(make_reference_backend());
    return open_block(folder.path().string(), corrects, by_hand.models.target->info()).form;
  }
  TemporaryFolder folder;
};

TEST(BlockFiles, OfTheOtherKindNameItsDrafter) {
  BlockByHand by_hand(make_reference_backend());
  const ModelInfo& target = by_hand.models.target->info();
  EXPECT_TRUE(says(sentence_of([&] { open_block((kHeads / "dflash_zlab").string(), true, target); }),
                   "no correction by the token before", "use the drafter 'dflash'"));
  EXPECT_TRUE(says(sentence_of([&] { open_block((kHeads / "dspark_deepspec").string(), false, target); }),
                   "has a correction", "use the drafter 'dspark'"));
}

TEST(BlockFiles, OfAnotherTargetAreRefused) {
  EXPECT_TRUE(says(Changed("dflash_zlab", [](auto& c) { c["num_target_layers"] = 36; }).error(false),
                   "'num_target_layers' is 36", "the target has 2 layers", "another target"));
  EXPECT_TRUE(says(Changed("dflash_deepspec", [](auto& c) { c["target_layer_ids"] = {1, 9, 17}; }).error(false),
                   "target_layer_ids", "2 layers", "another target"));
  BlockByHand by_hand(make_reference_backend());
  ModelInfo other = by_hand.models.target->info();
  other.width = 48;
  const auto load = [&](const std::string& name) {
    return sentence_of([&] { BlockHead(*by_hand.backend, by_hand.files(name), by_hand.host.ends(), other, "f32"); });
  };
  EXPECT_TRUE(says(load("dflash_zlab"), "states of 64 numbers", "have 48", "another target"));
  other = by_hand.models.target->info(), other.vocab = 90;
  EXPECT_TRUE(says(load("dflash_zlab"), "mask token", "95", "90 tokens", "another target"));
  EXPECT_TRUE(says(load("dflash_deepspec"), "vocabulary of 96", "90", "another target"));
}

TEST(BlockFiles, WithoutTheirStatesHaveTheUsualOnes) {
  ModelInfo target;
  target.vocab = 96, target.width = 64, target.kv = KvShape(36, 1, 16, DType::f32);
  const Changed head("dflash_zlab", [](auto& c) {
    c["dflash_config"].erase("target_layer_ids"), c.erase("num_target_layers");
    c["num_hidden_layers"] = 5, c.erase("layer_types");
  });
  const auto taps = [&](int layers) {
    target.kv = KvShape(layers, 1, 16, DType::f32);
    return open_block(head.folder.path().string(), false, target).form.taps;
  };
  EXPECT_EQ(taps(36), (std::vector<Tap>{2, 10, 18, 26, 34}));
  EXPECT_EQ(taps(32), (std::vector<Tap>{2, 9, 16, 23, 30}));
  EXPECT_EQ(taps(6), (std::vector<Tap>{2, 3, 3, 3, 4})) << "halves are rounded to even: 1, 1.5, 2, 2.5, 3";
}

// Which slot predicts the token after the anchor is read from the file, never guessed.
TEST(BlockFiles, SayWhichSlotPredictsWhichToken) {
  const auto without = [](auto& c) { c.erase("sample_from_anchor"), c.erase("speculators_config"); };
  EXPECT_EQ(Changed("dflash_speculators", without).form(false).first, 1);
  EXPECT_TRUE(says(Changed("dspark_speculators", without).error(true), "first slot", "sample_from_anchor"));
  const auto all = [](auto& c) { c["speculators_config"]["proposal_methods"][0]["speculative_tokens"] = 4; };
  EXPECT_EQ(Changed("dspark_speculators", all).form(true).first, 0);
  const auto nested = [](auto& c) {
    c["dflash_config"] = {{"target_layer_ids", c["target_layer_ids"]}, {"mask_token_id", 95}};
    c.erase("target_layer_ids"), c.erase("architectures");
  };
  EXPECT_EQ(Changed("dspark_deepspec", nested).form(true).first, 0) << "SpecForge's DSpark";
  EXPECT_EQ(Changed("dflash_deepspec", nested).form(false).first, 1) << "SpecForge's DFlash";
}

TEST(BlockFiles, WindowsOfSomeLayersAreRefused) {
  const auto mixed = [](auto& c) { c["layer_types"] = {"full_attention", "sliding_attention"}; };
  EXPECT_TRUE(says(Changed("dflash_zlab", mixed).error(false), "layer_types", "windows of some layers only"));
  const auto both_ways = [](auto& c) { c["sliding_window_non_causal"] = true; };
  EXPECT_TRUE(says(Changed("dflash_sliding", both_ways).error(false), "sliding_window_non_causal", "only false"));
}

// Half a head is silent, so a tensor that nothing reads is an error.
TEST(BlockFiles, TensorsThatNothingReadsAreListed) {
  const Changed head("dflash_zlab", [](auto& c) { c["num_hidden_layers"] = 1, c.erase("layer_types"); });
  BlockByHand by_hand(make_reference_backend());
  const ModelInfo& target = by_hand.models.target->info();
  const BlockFiles files = open_block(head.folder.path().string(), false, target);
  EXPECT_TRUE(says(sentence_of([&] { BlockHead(*by_hand.backend, files, by_hand.host.ends(), target, "f32"); }),
                   "looks like a DFlash head", "layers.1.mlp.down_proj.weight", "not known"));
}

TEST(BlockFiles, RelativesAreNamed) {
  const auto error = [](const std::string& tensor) {
    const nlohmann::json header{{tensor, {{"dtype", "F32"}, {"shape", {1}}, {"data_offsets", {0, 4}}}}};
    const std::string text = header.dump();
    std::string file(8, '\0');
    file[0] = char(text.size());
    const TemporaryFolder folder;
    folder.write("config.json", "{}"), folder.write("model.safetensors", file + text + std::string(4, '\0'));
    BlockByHand by_hand(make_reference_backend());
    return sentence_of([&] { open_block(folder.path().string(), false, by_hand.models.target->info()); });
  };
  EXPECT_TRUE(says(error("candidate_selector.hidden_projection.weight"), "a DFlash 2 head", "not supported"));
  EXPECT_TRUE(says(error("model.prefix_gru.weight_hh_l0"), "a Domino head", "not supported"));
  EXPECT_TRUE(says(error("logit_head.gate_proj.bias"), "\"gated\"", "vanilla"));
  EXPECT_TRUE(says(error("markov_head.joint_proj.bias"), "\"rnn\"", "vanilla"));
}

TEST(BlockFiles, OtherHeadsAreNamed) {
  BlockByHand by_hand(make_reference_backend());
  const ModelInfo& target = by_hand.models.target->info();
  EXPECT_TRUE(says(sentence_of([&] { open_block((kHeads / "eagle1").string(), false, target); }), "eagle1",
                   "has the tensors fc.bias, fc.weight", "fc.weight and hidden_norm.weight", "z-lab's"));
  const TemporaryFolder folder;
  folder.write("config.json", "{}"), folder.write("pytorch_model.bin", "PK");
  EXPECT_TRUE(says(sentence_of([&] { open_block(folder.path().string(), false, target); }),
                   "pytorch_model.bin is a Python pickle", "experiments/models/convert_head.py"));
}

}  // namespace
}  // namespace foretoken::test
