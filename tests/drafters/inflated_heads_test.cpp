// Heads beside an inflated target, inflated with it, compute what they compute beside the small one.
#include <gtest/gtest.h>

#include "framework/model/inflation.h"
#include "tests/drafters/block_by_hand.h"
#include "tests/framework/model/inflate.h"
#include "tests/framework/text/temporary_folder.h"
#include "tests/support/sentence.h"

namespace foretoken::test {
namespace {

namespace fs = std::filesystem;

const fs::path kTarget = fs::path(FORETOKEN_SOURCE_DIR) / "tests/data/models/llama2";
constexpr int kExtraTokens = 33;

std::shared_ptr<Model> inflated_target(Backend& backend, bool wide_shape = true) {
  const ModelConfig config = ModelConfig::load(kTarget);
  ModelConfig shape = larger(config, kExtraTokens, false);
  if (!wide_shape) shape.vocab = config.vocab;
  const InflatedWeights weights(std::make_shared<Checkpoint>(Checkpoint::open(kTarget)), config, shape, "llama2",
                                "large", true);
  return std::make_shared<Transformer>(backend, weights.config(), weights, "large", 0,
                                       TransformerOptions{"f32", "f32", "f32"});
}

// The shape of a layer of the inflated target's width.
struct Shapes {
  Shapes() {
    folder.write("config.json",
                 R"({"architectures": ["LlamaForCausalLM"], "vocab_size": 500, "hidden_size": 164,
                     "intermediate_size": 90, "num_hidden_layers": 9, "num_attention_heads": 9,
                     "num_key_value_heads": 3, "head_dim": 32, "max_position_embeddings": 4096, "rms_norm_eps": 1e-5})");
  }
  nlohmann::json head(const std::string& name, nlohmann::json more = nlohmann::json::object()) const {
    more["directory"] = (kHeads / name).string(), more["inflate"] = folder.path().string();
    return more;
  }
  TemporaryFolder folder;
};

// The first columns of its logits; no token beyond them can be drawn.
template <class ByHand> struct OfTheSmallVocabulary {
  ByHand& by_hand;
  std::vector<std::vector<float>> round(const Tokens& tokens, const Tokens& drafts) {
    auto found = by_hand.round(tokens, drafts);
    for (std::vector<float>& row : found) {
      const std::size_t vocab = row.size() - kExtraTokens;
      for (std::size_t i = vocab; i < row.size(); ++i) EXPECT_EQ(row[i], -std::numeric_limits<float>::infinity()) << i;
      row.resize(vocab);
    }
    return found;
  }
};

struct InflatedHeads : ::testing::TestWithParam<const char*> {};

TEST_P(InflatedHeads, GiveTheLogitsOfTheSmallOnes) {
  const Shapes shapes;
  const bool own = std::string(GetParam()) == "eagle3" || std::string(GetParam()) == "eagle31";
  HeadByHand by_hand(make_reference_backend(), [](Backend& b) { return inflated_target(b); });
  by_hand.as_named = [&](const std::string& name) {
    return shapes.head(name, own ? nlohmann::json{{"draft_vocab", 40}} : nlohmann::json::object());
  };
  by_hand.open(GetParam());
  EXPECT_EQ(by_hand.taps, golden_of(GetParam()).at("taps").get<std::vector<Tap>>());
  OfTheSmallVocabulary<HeadByHand> first{by_hand};
  EXPECT_LT(golden_error(first, golden_of(GetParam())), 4e-5);
}

INSTANTIATE_TEST_SUITE_P(Layouts, InflatedHeads,
                         testing::Values("eagle1", "eagle3", "eagle3_speculators", "eagle31", "mtp_mimo", "mtp_qwen"),
                         [](const auto& instance) { return std::string(instance.param); });

struct InflatedBlocks : ::testing::TestWithParam<const char*> {};

TEST_P(InflatedBlocks, GiveTheLogitsOfTheSmallOnes) {
  const Shapes shapes;
  BlockByHand by_hand(make_reference_backend(), [](Backend& b) { return inflated_target(b); });
  by_hand.as_named = [&](const std::string& name) { return shapes.head(name, {{"layers", 3}}); };
  by_hand.open(GetParam());
  EXPECT_EQ(by_hand.head->info().kv.layers.size(), 3u);
  EXPECT_EQ(by_hand.head->form().taps, golden_of(GetParam()).at("taps").get<std::vector<Tap>>());
  OfTheSmallVocabulary<BlockByHand> first{by_hand};
  EXPECT_LT(golden_error(first, golden_of(GetParam())), 4e-5);
}

INSTANTIATE_TEST_SUITE_P(Layouts, InflatedBlocks,
                         testing::Values("dflash_zlab", "dflash_sliding", "dflash_deepspec", "dspark_deepspec",
                                         "dflash_speculators", "dspark_speculators"),
                         [](const auto& instance) { return std::string(instance.param); });

}  // namespace
}  // namespace foretoken::test
