// Small checkpoints of every kind, inflated to larger shapes of every kind, compute the same function.
#include <cmath>

#include "framework/model/convert.h"
#include "tests/framework/model/inflate.h"
#include "tests/framework/text/temporary_folder.h"

namespace foretoken::test {
namespace {

const std::filesystem::path kModels = std::filesystem::path(FORETOKEN_SOURCE_DIR) / "tests" / "data" / "models";

const std::vector<Token> kTokens{1,  5,  93, 17, 17, 40, 2, 66, 31, 8, 90, 12,
                                 54, 77, 3,  29, 61, 44, 9, 70, 95, 0, 23, 38};

class Inflation : public testing::TestWithParam<const char*> {
 protected:
  std::filesystem::path directory_ = kModels / GetParam();
  bool tied_ = ModelConfig::load(directory_).tied_head;
};

TEST_P(Inflation, ComputesTheSame) {
  Pair pair(directory_, [](const ModelConfig& small) { return larger(small, 33, false); });
  expect_same_logits(pair, kTokens);
  EXPECT_EQ(greedy(*pair.backend, pair.small, kTokens, 24), greedy(*pair.backend, pair.large, kTokens, 24));
  EXPECT_EQ(pair.large.info().positions, pair.small.info().positions);
  EXPECT_EQ(pair.large.info().stop_tokens, pair.small.info().stop_tokens);
}

TEST_P(Inflation, WithOneMatrixForEmbeddingAndHead) {
  if (!tied_) GTEST_SKIP() << "two matrices do not fit one";
  Pair pair(directory_, [](const ModelConfig& small) { return larger(small, 33, true); });
  expect_same_logits(pair, kTokens);
}

TEST_P(Inflation, WithoutNewTokens) {
  Pair pair(directory_, [](const ModelConfig& small) { return larger(small, 0, small.tied_head); });
  expect_same_logits(pair, kTokens);
}

TEST_P(Inflation, IntoItsOwnShapeIsTheModelItself) {
  Pair pair(directory_, [](const ModelConfig& small) { return small; });
  expect_same_logits(pair, kTokens, 1e-7);
}

// A group of queries that is larger than the shape's gets several copies of its key-value head.
TEST_P(Inflation, IntoSmallerGroups) {
  Pair pair(directory_, [](const ModelConfig& small) {
    ModelConfig large = larger(small, 5, false);
    large.kv_heads = small.heads, large.heads = small.heads;  // groups of one
    return large;
  });
  expect_same_logits(pair, kTokens);
}

INSTANTIATE_TEST_SUITE_P(Models, Inflation,
                         testing::Values("llama2", "llama3", "linear", "sharded", "bf16", "f16", "qwen2", "qwen3",
                                         "biased"),
                         [](const auto& info) { return info.param; });

TEST(InflatedWeights, KeepTheTypeOfTheSmallModel) {
  Pair pair(kModels / "bf16", [](const ModelConfig& small) { return larger(small, 33, false); }, "auto");
  const ModelConfig& c = pair.weights.config();
  for (const std::string at : {"model.layers.0.", "model.layers.4."}) {
    EXPECT_EQ(pair.weights.tensor(at + "mlp.down_proj.weight", {c.width, c.ffn}).dtype(), DType::bf16);
    EXPECT_EQ(pair.weights.tensor(at + "mlp.up_proj.weight", {c.ffn, c.width}).dtype(), DType::bf16);
  }
  EXPECT_EQ(pair.weights.tensor("model.norm.weight", {c.width}).dtype(), DType::f32);
}

// The cost must be that of the shape: unused hidden units, heads and layers are random, except where zeros are needed.
TEST(InflatedWeights, AreRandomWhereTheSmallModelIsNot) {
  Pair pair(kModels / "llama3", [](const ModelConfig& small) { return larger(small, 33, false); });
  const ModelConfig &c = pair.weights.config(), &s = pair.config;
  const auto deviation = [](const Tensor& t, std::int64_t row) {
    double sum = 0;
    for (std::int64_t i = 0; i < t.dim(1); ++i) sum += t.row<float>(row)[i] * t.row<float>(row)[i];
    return std::sqrt(sum / double(t.dim(1)) * double(t.dim(1)));
  };
  const Tensor up = pair.weights.tensor("model.layers.1.mlp.up_proj.weight", {c.ffn, c.width});
  for (int row = s.ffn; row < c.ffn; ++row) EXPECT_NEAR(deviation(up, row), 1, 0.3);
  const Tensor key = pair.weights.tensor("model.layers.4.self_attn.k_proj.weight", {c.kv_heads * c.head_size, c.width});
  for (int row = 0; row < int(key.dim(0)); ++row) EXPECT_NEAR(deviation(key, row), 1, 0.3);
}

// Gains of the small model times sqrt(small width / large width), for the mean of squares is over more features; 1 for
// features that it lacks. Where tokens are new, the last two features are constants, which only the last norm lets by.
TEST(InflatedWeights, GainsAreThoseOfTheSmallModelAndOne) {
  for (const int extra_tokens : {0, 33}) {
    Pair pair(kModels / "llama2", [&](const ModelConfig& small) { return larger(small, extra_tokens, false); });
    const int small = pair.config.width, large = pair.weights.config().width, constants = extra_tokens > 0 ? 2 : 0;
    for (const std::string name : {"model.norm.weight", "model.layers.0.input_layernorm.weight"}) {
      const Tensor from = converted(pair.checkpoint->tensor(name, {small}), DType::f32);
      const Tensor gains = pair.weights.tensor(name, {large});
      const std::span<const float> have = gains.values<float>();
      for (int i = 0; i < small; ++i)
        EXPECT_FLOAT_EQ(have[std::size_t(i)],
                        float(double(from.data<float>()[i]) * std::sqrt(double(small) / double(large))));
      for (int i = small; i < large - constants; ++i) EXPECT_EQ(have[std::size_t(i)], 1) << name << ", " << i;
      if (constants == 0) continue;
      const float one = have[std::size_t(large - 2)], other = have[std::size_t(large - 1)];
      EXPECT_EQ(one, -other);
      EXPECT_EQ(one > 0, name == "model.norm.weight") << one;
    }
  }
}

std::string refusal(const std::function<void(ModelConfig&)>& change, const char* model = "llama3") {
  const auto config = ModelConfig::load(kModels / model);
  ModelConfig shape = larger(config, 3, false);
  change(shape);
  return sentence_of([&] {
    InflatedWeights(std::make_shared<Checkpoint>(Checkpoint::open(kModels / model)), config, shape, "tiny", "large");
  });
}

TEST(InflatedWeights, RefuseAShapeThatIsTooSmall) {
  const auto config = ModelConfig::load(kModels / "llama3");
  const std::vector<std::pair<std::function<void(ModelConfig&)>, std::string>> cases = {
      {[&](ModelConfig& m) { m.vocab = config.vocab - 1; }, "tokens in its vocabulary"},
      {[&](ModelConfig& m) { m.width = config.width + 1; }, "it has " + std::to_string(config.width + 1) +
                                                                " features, and " + std::to_string(config.width + 2) +
                                                                " are needed"},
      {[&](ModelConfig& m) { m.layers = config.layers - 1; }, "layers"},
      {[&](ModelConfig& m) { m.ffn = config.ffn - 1; }, "hidden units"},
      {[&](ModelConfig& m) { m.head_size = config.head_size + 2; }, "is no multiple of"},
      {[&](ModelConfig& m) { m.heads = m.kv_heads = 1; }, "key-value heads"},
  };
  for (const auto& [change, words] : cases)
    EXPECT_TRUE(says(refusal(change), "the model tiny cannot be inflated to large: ", words));
  EXPECT_TRUE(says(refusal([](ModelConfig& m) { m.tied_head = true; }, "llama2"), "two matrices"));
  EXPECT_EQ(refusal([](ModelConfig&) {}), "");
}

TEST(InflatedWeights, RefuseBiasesAndHeadNormsOfOneModelAlone) {
  const std::string norms = "the shape has norms of its heads (q_norm, k_norm)", biases = "the shape has biases";
  EXPECT_TRUE(says(refusal([](ModelConfig& m) { m.head_norms = true; }), "tiny cannot be inflated to large: ", norms,
                   "of one family"));
  EXPECT_TRUE(says(refusal([](ModelConfig& m) { m.qkv_bias = true; }), biases));
  EXPECT_TRUE(says(refusal([](ModelConfig& m) { m.out_bias = true; }), biases));
  EXPECT_TRUE(says(refusal([](ModelConfig& m) { m.mlp_bias = true; }), biases));
  EXPECT_TRUE(
      says(refusal([](ModelConfig& m) { m.head_norms = false; }, "qwen3"), "the small model has norms of its heads"));
  EXPECT_TRUE(says(refusal([](ModelConfig& m) { m.mlp_bias = false; }, "biased"), "the small model has biases"));
}

TEST(InflatedWeights, RefuseUnknownTensors) {
  Pair pair(kModels / "llama3", [](const ModelConfig& small) { return larger(small, 33, false); });
  EXPECT_TRUE(says(sentence_of([&] { pair.weights.tensor("model.layers.0.self_attn.q_norm", {8}); }), "q_norm"));
  EXPECT_TRUE(says(sentence_of([&] { pair.weights.tensor("visual.weight", {8, 8}); }), "visual.weight"));
}

}  // namespace
}  // namespace foretoken::test
