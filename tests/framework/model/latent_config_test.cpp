// DeepSeek-V2 and V3: what a config.json says, what their cache keeps, and what is refused. Their logits are compared
// by golden_test.cpp.
#include <cmath>
#include <numeric>

#include "framework/model/decoder_layer.h"
#include "framework/model/inflation.h"
#include "framework/model/model_tensors.h"
#include "framework/model/shapes.h"
#include "kernels/formats/format.h"
#include "kernels/reference/reference_backend.h"
#include "tests/framework/model/config_folder.h"
#include "tests/framework/model/golden.h"

namespace foretoken::test {
namespace {

using LatentConfigs = ConfigFolder;

const json kTwo = {{"architectures", {"DeepseekV2ForCausalLM"}},
                   {"model_type", "deepseek_v2"},
                   {"num_experts_per_tok", 6}},
           kThree = {
               {"architectures", {"DeepseekV3ForCausalLM"}}, {"model_type", "deepseek_v3"}, {"num_hidden_layers", 5}};

json with(json config, const json& changes) {
  config.update(changes);
  return config;
}

// Absent keys have Transformers' defaults; a null is another value.
TEST_F(LatentConfigs, HaveTheDefaultsOfTransformers) {
  const ModelConfig two = load(kTwo), three = load(kThree);
  for (const ModelConfig& m : {two, three}) {
    const LatentConfig& l = m.latent.value();
    EXPECT_EQ(std::tuple(l.rank, l.query_rank, l.plain, l.rotated, l.value, l.neighbours),
              std::tuple(512, 1536, 128, 64, 128, true));
    EXPECT_EQ(std::tuple(m.head_size, m.rotary, m.kv_heads), std::tuple(192, 64, 4));
    EXPECT_EQ(m.rope_frequencies().size(), 32u);
  }
  const MixtureConfig &a = two.mixture.value(), &b = three.mixture.value();
  EXPECT_EQ(std::tuple(a.experts, a.used, a.width, a.shared_width), std::tuple(64, 6, 1407, 2 * 1407));
  EXPECT_EQ(std::tuple(b.experts, b.used, b.width, b.shared_width), std::tuple(256, 8, 2048, 2048));
  EXPECT_EQ(std::tuple(a.groups, a.used_groups, a.scale, a.renormalized), std::tuple(1, 1, 1., false));
  EXPECT_EQ(std::tuple(b.groups, b.used_groups, b.scale, b.renormalized), std::tuple(8, 4, 2.5, true));
  EXPECT_FALSE(a.sigmoid || a.sums_two || a.corrected || a.shared_gate || b.shared_gate);
  EXPECT_TRUE(b.sigmoid && b.sums_two && b.corrected);
  EXPECT_EQ(a.dense_layers, std::vector<int>());
  EXPECT_EQ(b.dense_layers, (std::vector<int>{0, 1, 2}));
  EXPECT_EQ(load(with(kTwo, {{"q_lora_rank", nullptr}})).latent->query_rank, 0);
  EXPECT_FALSE(load(with(kThree, {{"rope_interleave", false}})).latent->neighbours);
  EXPECT_FALSE(load(with(kThree, {{"first_k_dense_replace", 5}})).mixture);
}

TEST_F(LatentConfigs, RefuseWhatIsNotComputed) {
  const std::pair<const char*, json> of_both[] = {
      {"attention_bias", true}, {"mlp_bias", true}, {"moe_layer_freq", 2},        {"num_key_value_heads", 2},
      {"qk_rope_head_dim", 7},  {"q_lora_rank", 0}, {"first_k_dense_replace", 9}, {"qk_nope_head_dim", 1 << 23},
      {"topk_method", "other"}};
  for (const json& config : {kTwo, kThree})
    for (const auto& [key, value] : of_both)
      EXPECT_TRUE(says(refusal(with(config, {{key, value}})), std::string("'") + key + "'")) << key;
  EXPECT_TRUE(says(refusal(with(kTwo, {{"norm_topk_prob", true}})), "'norm_topk_prob'", "only false"));
  EXPECT_TRUE(says(refusal(with(kTwo, {{"scoring_func", "sigmoid"}})), "'scoring_func'", "softmax"));
  EXPECT_TRUE(says(refusal(with(kTwo, {{"num_experts_per_tok", "absent"}})), "'num_experts_per_tok'"));
  EXPECT_TRUE(says(refusal(with(kThree, {{"scoring_func", "softmax"}})), "'scoring_func'", "sigmoid"));
  EXPECT_TRUE(says(refusal(with(kThree, {{"n_group", 7}})), "'n_group'", "divide the 256 experts"));
  EXPECT_TRUE(says(refusal(with(kThree, {{"n_group", 256}, {"topk_group", 8}})), "'n_group'", "two or more"));
  EXPECT_TRUE(says(refusal(with(kThree, {{"n_group", 64}, {"topk_group", 1}})), "'topk_group'", "(8) experts"));
}

// As published: 15.7, 236 and 671 billion parameters; 70 KB a token of V3 in bf16 (arXiv 2505.09343).
TEST(LatentShapes, HaveTheirPublishedSizes) {
  const auto parameters = [](const char* name) {
    std::int64_t sum = 0;
    for (const auto& [tensor, shape] : tensors_of(published_shape(name))) sum += shape.elements();
    return sum;
  };
  EXPECT_EQ(parameters("deepseek-v2-lite"), 15706484224);
  EXPECT_EQ(parameters("deepseek-v2"), 235741434880);
  EXPECT_EQ(parameters("deepseek-v3"), 671026419200);
  const KvShape kv = model_info(published_shape("deepseek-v3"), *make_cpu_backend(1), "v3", 0).kv;
  EXPECT_EQ(kv.bytes_per_row(), 61 * 576 * 2);
  EXPECT_EQ(model_info(published_shape("deepseek-v3"), *make_cpu_backend(1), "v3", 0, "int8").kv.bytes_per_row(),
            61 * (576 + 4));
}

// mscale_all_dim: 0.1 * 0.707 * ln(40) + 1, squared, over the root of a query's numbers; of equal scales the factor of
// cosines and sines is 1.
TEST(LatentShapes, SharpenTheirScores) {
  const ModelConfig m = published_shape("deepseek-v2-lite");
  const double sharper = 0.0707 * std::log(40.0) + 1;
  EXPECT_NEAR(double(attention_rules(m).scale), sharper * sharper / std::sqrt(192.0), 1e-8);
  EXPECT_EQ(m.rope_scaling.attention_factor, 1);
}

class WithoutLatents final : public ReferenceBackend {
 public:
  std::string lacks(const AttentionNeeds& needs) const override { return needs.latent ? "latent attention" : ""; }
};

TEST(LatentShapes, AreRefusedBeforeWeightsAreRead) {
  const WithoutLatents device;
  EXPECT_TRUE(says(sentence_of([&] { model_info(published_shape("deepseek-v3"), device, "v3", 0); }),
                   "the model v3 has latent attention"));
  EXPECT_EQ(sentence_of([&] { model_info(published_shape("gemma-2-9b"), device, "g", 0); }), "");
}

TEST(LatentShapes, AreNotInflated) {
  ModelConfig dense = ModelConfig::load(kTinyModels / "deepseek3");
  dense.mixture.reset();
  const auto tensors = std::make_shared<Checkpoint>(Checkpoint::open(kTinyModels / "deepseek3"));
  EXPECT_TRUE(
      says(sentence_of([&] { InflatedWeights(tensors, dense, published_shape("llama-3.2-1b"), "small", "large"); }),
           "the small model has latent attention"));
}

// Rows of rotated numbers in another order: pairs of neighbours as pairs of halves.
class InHalves final : public TensorSource {
 public:
  InHalves(const TensorSource& inner, const ModelConfig& c) : inner_(inner), config_(c) {}
  Tensor tensor(const std::string& name, const Shape& expected) const override {
    const Tensor from = inner_.tensor(name, expected);
    const LatentConfig& l = *config_.latent;
    const bool queries = name.ends_with("q_b_proj.weight") || name.ends_with("q_proj.weight");
    if (!queries && !name.ends_with("kv_a_proj_with_mqa.weight")) return from;
    const std::int64_t size = queries ? config_.head_size : expected[0], begin = size - l.rotated, half = l.rotated / 2;
    const Tensor to = Tensor::host(expected, from.dtype());
    for (std::int64_t r = 0; r < expected[0]; ++r) {
      const std::int64_t i = r % size - begin;
      copy_on_host(from.rows(i < 0 ? r : r - i + (i % half * 2 + i / half), 1), to.rows(r, 1));
    }
    return to;
  }
  std::vector<std::string> names() const override { return inner_.names(); }
  std::string where() const override { return inner_.where(); }

 private:
  const TensorSource& inner_;
  ModelConfig config_;
};

TEST(LatentModels, RotateNeighboursOrHalves) {
  std::vector<Token> prompt(20);
  std::iota(prompt.begin(), prompt.end(), 3);
  for (const char* name : {"deepseek3", "deepseek2_lite"}) {
    ModelConfig config = ModelConfig::load(kTinyModels / name);
    const Checkpoint checkpoint = Checkpoint::open(kTinyModels / name);
    const InHalves halves(checkpoint, config);
    const auto backend = make_reference_backend();
    Transformer model(*backend, config, checkpoint, name, 0);
    config.latent->neighbours = false;
    Transformer other(*backend, config, halves, name, 0);
    const Tensor want = Chain(*backend, model, 20).feed(prompt), logits = Chain(*backend, other, 20).feed(prompt);
    EXPECT_LT(relative_error(logits.values<float>(), want.values<float>()), 1e-6);
  }
}

// The matrices of layers as codes, or as their dense copies.
class LayersInCodes final : public TensorSource {
 public:
  LayersInCodes(const TensorSource& inner, const WeightFormat& format, bool dense)
      : inner_(inner), format_(format), dense_(dense) {}
  Tensor tensor(const std::string& name, const Shape& expected) const override {
    const Tensor stored = inner_.tensor(name, expected);
    return expected.rank() == 2 && is_coded(name) ? dequantized(codes(stored)).values : stored;
  }
  Weight matrix(const std::string& module, const Shape& expected) const override {
    const std::string name = module + ".weight";
    return is_coded(name) && !dense_ ? codes(inner_.tensor(name, expected)) : TensorSource::matrix(module, expected);
  }
  std::vector<std::string> names() const override { return inner_.names(); }
  std::string where() const override { return inner_.where(); }

 private:
  static bool is_coded(const std::string& name) { return name.starts_with("model.layers."); }
  Weight codes(const Tensor& stored) const { return quantize(Weight::dense(stored), format_); }

  const TensorSource& inner_;
  const WeightFormat& format_;
  bool dense_;
};

// Bit for bit, though the matrices of keys and values of heads are multiplied dense.
TEST(LatentModels, InCodesAreTheirDenseCopies) {
  std::vector<Token> prompt(20);
  std::iota(prompt.begin(), prompt.end(), 3);
  const ModelConfig config = ModelConfig::load(kTinyModels / "deepseek3");
  const Checkpoint checkpoint = Checkpoint::open(kTinyModels / "deepseek3");
  const LayersInCodes codes(checkpoint, *find_format("fp8"), false), copies(checkpoint, *find_format("fp8"), true);
  for (const bool fast : {false, true}) {
    const auto backend = fast ? make_cpu_backend(2) : make_reference_backend();
    Transformer coded(*backend, config, codes, "codes", 0), dense(*backend, config, copies, "dense", 0);
    EXPECT_TRUE(same(Chain(*backend, coded, 20).feed(prompt), Chain(*backend, dense, 20).feed(prompt)));
  }
}

}  // namespace
}  // namespace foretoken::test
