// Random weights: reproducible, different for every seed, name and row, and of the magnitude of a trained model's.
#include "framework/model/random_weights.h"

#include <cmath>

#include <nlohmann/json.hpp>

#include "framework/model/open_model.h"
#include "framework/model/shapes.h"
#include "kernels/philox.h"
#include "tests/framework/model/chain.h"
#include "tests/framework/text/temporary_folder.h"
#include "tests/support/sentence.h"

namespace foretoken::test {
namespace {

std::vector<float> numbers(const Tensor& t) {
  std::vector<float> all;
  for (const bf16 x : t.values<bf16>()) all.push_back(float(x));
  return all;
}

TEST(RandomWeights, AreAFunctionOfSeedNameAndElement) {
  const RandomWeights one(1), again(1), two(2);
  const std::string name = "model.layers.3.mlp.up_proj.weight";
  const auto whole = numbers(one.tensor(name, {40, 30}));
  EXPECT_EQ(whole, numbers(again.tensor(name, {40, 30})));
  EXPECT_NE(whole, numbers(two.tensor(name, {40, 30})));
  EXPECT_NE(whole, numbers(one.tensor("model.layers.4.mlp.up_proj.weight", {40, 30})));
  const auto part = numbers(one.tensor(name, {5, 30}));  // independent of other requests
  EXPECT_TRUE(std::equal(part.begin(), part.end(), whole.begin()));
  const Tensor wide = Tensor::host({40, 30}, DType::f32);
  one.fill(name, wide);
  EXPECT_TRUE(std::ranges::equal(wide.values<float>(), whole));
}

// Seed 1, element 0 of the tile, computed by hand from Philox's words.
TEST(RandomWeights, AreTheNumbersOfTheFormulaInTheHeader) {
  const auto tile = [](std::uint32_t i) {
    const Philox p = philox4x32_10(i, 0, 0, 0, 1, 0);
    double sum = -2 * 0x1p32;
    for (const std::uint32_t w : p.word) sum += w;
    return sum * std::sqrt(3.0) / 0x1p32;
  };
  std::uint64_t h = 0xcbf29ce484222325ull;
  for (const char c : std::string("a.weight")) h = (h ^ std::uint8_t(c)) * 0x100000001b3ull;
  const auto row = numbers(RandomWeights(1).tensor("a.weight", {2, 16}));
  const std::uint32_t start =
      philox4x32_10(1, 1, std::uint32_t(h), std::uint32_t(h >> 32), 1, 0).word[0] % RandomWeights::kTile;
  for (std::uint32_t c = 0; c < 16; ++c)
    EXPECT_EQ(row[16 + c], float(bf16(float(tile((start + c) % RandomWeights::kTile)) * 0.25f)));
}

TEST(RandomWeights, HaveTheDeviationOfATrainedModel) {
  const RandomWeights weights(7);
  const auto moments = [](const std::vector<float>& x) {
    double sum = 0, squares = 0, fourth = 0;
    for (const float v : x) sum += v, squares += v * v, fourth += double(v) * v * v * v;
    const double n = double(x.size()), variance = squares / n;
    return std::tuple(sum / n, std::sqrt(variance), fourth / n / variance / variance);
  };
  const auto [mean, deviation, kurtosis] =
      moments(numbers(weights.tensor("model.layers.0.self_attn.q_proj.weight", {2048, 1024})));
  EXPECT_NEAR(mean, 0, 0.001);
  EXPECT_NEAR(deviation, 1.0 / 32, 0.0005);
  EXPECT_NEAR(kurtosis, 2.7, 0.1);  // of a sum of four uniforms
  EXPECT_NEAR(std::get<1>(moments(numbers(weights.tensor("lm_head.weight", {2048, 1024})))), 0.02, 0.0005);
  EXPECT_NEAR(std::get<1>(moments(numbers(weights.tensor("model.embed_tokens.weight", {999, 999})))), 0.02, 0.0005);
  const Tensor gains = weights.tensor("model.norm.weight", {64});
  for (const float gain : gains.values<float>()) EXPECT_EQ(gain, 1);
}

TEST(RandomWeights, HaveRowsThatDiffer) {
  const Tensor t = RandomWeights(1).tensor("x.weight", {512, 512});
  for (int r = 1; r < 512; ++r) {
    double dot = 0, squares = 0;
    for (int c = 0; c < 512; ++c) {
      dot += float(t.row<bf16>(0)[c]) * float(t.row<bf16>(r)[c]);
      squares += float(t.row<bf16>(r)[c]) * float(t.row<bf16>(r)[c]);
    }
    EXPECT_LT(std::abs(dot / squares), 0.3) << r;
  }
}

TEST(RandomWeights, RefuseOtherRanksThanOneAndTwo) {
  EXPECT_TRUE(says(sentence_of([] { RandomWeights(1).tensor("x", {2, 2, 2}); }), "'x'", "[2, 2, 2]"));
}

// At the depth of an 8B model, activations with bf16 weights stay finite and of the order of 1.
TEST(RandomWeights, StayFiniteThroughManyLayers) {
  ModelConfig c = published_shape("llama-3.1-8b");
  c.vocab = 300, c.width = 64, c.ffn = 224, c.heads = 4, c.kv_heads = 1, c.head_size = 16;
  const auto backend = make_reference_backend();
  Transformer model(*backend, c, RandomWeights(1), "random", random_vocabulary(c.vocab));
  EXPECT_EQ(model.info().kv.layers.size(), 32u);
  const std::vector<Token> tokens{1, 2, 3, 200, 299, 7, 7, 7};
  const Tensor logits = Chain(*backend, model, 8).feed(tokens);
  double squares = 0;
  for (const float x : logits.values<float>()) {
    ASSERT_TRUE(std::isfinite(x));
    squares += x * x;
  }
  EXPECT_NEAR(std::sqrt(squares / double(logits.elements())), 0.02 * 8,
              0.05);  // deviation of the head times sqrt(width)
}

const FindDirectory kAsGiven = [](const std::string& path) { return path; };

TEST(OpenModel, OfRandomWeightsOfAnyShape) {
  const OpenModel m = open_model(ModelChoice::read({{"random", "llama-3.2-1b"}}, nullptr), kAsGiven);
  EXPECT_EQ(m.config.width, 2048);
  EXPECT_TRUE(m.config.eos.empty());
  EXPECT_EQ(random_vocabulary(128256), random_vocabulary(128256));
  EXPECT_NE(random_vocabulary(128256), random_vocabulary(151936));

  TemporaryFolder folder;
  std::filesystem::copy_file(std::filesystem::path(FORETOKEN_SOURCE_DIR) / "tests/data/models/llama3/config.json",
                             folder.path() / "config.json");
  EXPECT_EQ(open_model(ModelChoice::read({{"random", folder.path().string()}}, nullptr), kAsGiven).config.vocab, 96);
}

// As checkpoints of GPTQ and FP8 have them.
TEST(OpenModel, RandomWeightsHaveTheScalesOfAType) {
  const nlohmann::json model{{"random", "llama-3.2-1b"}, {"dtype", "int4"}, {"scales", "f16"}};
  const ModelChoice choice = ModelChoice::read(model);
  EXPECT_EQ(choice.document()["scales"], "f16");
  EXPECT_EQ(ModelChoice::read(choice.document()).scales, "f16");
  EXPECT_FALSE(ModelChoice::read({{"random", "llama-3.2-1b"}, {"scales", "bf16"}}).document().contains("scales"));
  EXPECT_EQ(open_model(choice, kAsGiven).tensors->scales(), DType::f16);
  EXPECT_EQ(RandomWeights(1).scales(), DType::bf16);
  EXPECT_TRUE(says(sentence_of([] { ModelChoice::read({{"random", "llama-3.2-1b"}, {"scales", "fp8"}}); }), "'scales'",
                   "bf16, f16 or f32", "fp8"));
}

TEST(TransformerRows, FeaturesAreErrors) {
  ModelConfig c = published_shape("llama-3.1-8b");
  c.vocab = 30, c.width = 16, c.ffn = 32, c.heads = 1, c.kv_heads = 1, c.head_size = 16, c.layers = 1;
  const auto backend = make_reference_backend();
  Transformer model(*backend, c, RandomWeights(1), "small", random_vocabulary(c.vocab));
  Rows fed;
  fed.inputs = Tensor::host({1, 16}, DType::f32);
  EXPECT_TRUE(says(sentence_of([&] { model.forward(*backend, fed, {}); }), "small", "Rows::inputs", "not support"));
}

}  // namespace
}  // namespace foretoken::test
