// Pieces of a transformer that some families have: what is computed with them, and where they are refused.
#include <algorithm>

#include <gtest/gtest.h>

#include "framework/model/head_rows.h"
#include "framework/model/inflation.h"
#include "framework/model/open_model.h"
#include "framework/model/unit_offset.h"
#include "kernels/reference/reference_backend.h"
#include "tests/framework/model/chain.h"
#include "tests/framework/model/golden.h"
#include "tests/support/sentence.h"

namespace foretoken::test {
namespace {

// Remembers by what embeddings are multiplied.
class Scaling final : public ReferenceBackend {
 public:
  void scale(Tensor x, float by) override {
    factors.push_back(by);
    ReferenceBackend::scale(x, by);
  }
  std::vector<float> factors;
};

// 48 features: the root is 6.9282, or 6.9375 in bf16, to which Transformers rounds it beside weights in bf16.
TEST(Pieces, EmbeddingsAreMultipliedInTheTypeOfTheirTable) {
  for (const auto& [dtype, factor] : {std::pair("f32", std::sqrt(48.0f)), std::pair("bf16", 6.9375f)}) {
    Scaling backend;
    Transformer model = golden_model(backend, kTinyModels / "gemma2", {.dtype = dtype});
    Chain(backend, model, 4).feed(std::vector<Token>{5, 6, 7});
    EXPECT_EQ(backend.factors, std::vector<float>{factor}) << dtype;
  }
  Scaling backend;
  Transformer model = golden_model(backend, kTinyModels / "llama2", {});
  Chain(backend, model, 4).feed(std::vector<Token>{5, 6, 7});
  EXPECT_TRUE(backend.factors.empty());
}

// Before weights are read: here there are none.
TEST(Pieces, ThatGpusLackAreRefusedBeforeWeightsAreRead) {
  struct Gpu final : ReferenceBackend {
    std::string name() const override { return "a device"; }
    std::string lacks(const AttentionNeeds& needs) const override {
      return needs.softcap            ? "a cap of scores"
             : needs.partial_rotation ? "heads rotated in part"
             : needs.sinks            ? "sinks"
                                      : "";
    }
  } gpu;
  ReferenceBackend reference;
  const auto refused = [&](const Backend& backend, const std::string& name) {
    return sentence_of([&] { (void)model_info(ModelConfig::load(kTinyModels / name), backend, name, 0, "auto"); });
  };
  for (const auto& [name, lack] : {std::pair("gemma2", "a cap of scores"), std::pair("phi3", "heads rotated in part"),
                                   std::pair("gpt_oss", "sinks")}) {
    EXPECT_TRUE(says(refused(gpu, name), "a device: the model ", name, lack, "does not compute; use another device"));
    EXPECT_EQ(refused(reference, name), "");
  }
  EXPECT_EQ(refused(gpu, "gemma3"), "");
}

// Random numbers are rounded by scales of the type that their source says.
TEST(Pieces, GainsLessOneKeepTheTypeOfScales) {
  struct Scaled : TensorSource {
    Tensor tensor(const std::string&, const Shape& expected) const override {
      return Tensor::host(expected, DType::f32);
    }
    DType scales() const override { return DType::f16; }
    std::vector<std::string> names() const override { return {}; }
    std::string where() const override { return "here"; }
  } const source{};
  EXPECT_EQ(UnitOffset(source).scales(), DType::f16);
  OpenModel open;
  open.config.vocab = 4, open.tensors = std::make_shared<Scaled>(source);
  EXPECT_EQ(with_head_rows(std::move(open), 5).tensors->scales(), DType::f16);
}

// Not by the config.json alone: the checkpoint holds its tensors, and none of them is read.
TEST(Pieces, OfAVisionTowerAreLeftOutAndSaidSo) {
  ReferenceBackend reference;
  const auto files = ModelFiles::open(kTinyModels / "gemma3_vision");
  const auto whole = Checkpoint::open(kTinyModels / "gemma3_vision").names();
  const auto seen = [](const std::string& name) { return name.find("vision_tower") != name.npos; };
  EXPECT_TRUE(std::ranges::any_of(whole, seen));
  EXPECT_FALSE(std::ranges::any_of(files->tensors()->names(), seen));
  const ModelInfo info = model_info(files->config(), reference, "m", 0);
  EXPECT_TRUE(says(info.notice, "m is its language model alone", "vision tower is not computed"));
  EXPECT_EQ(model_info(ModelConfig::load(kTinyModels / "gemma3"), reference, "m", 0).notice, "");
}

TEST(Pieces, EndsThatHeadsWouldReadOtherwiseAreRefused) {
  const auto backend = make_reference_backend();
  for (const char* name : {"gemma2", "gemma3"}) {
    Transformer model = golden_model(*backend, kTinyModels / name, {});
    EXPECT_TRUE(says(sentence_of([&] { (void)model.ends(*backend); }), "the target " + std::string(name),
                     "choose a drafter that is no head"));
  }
  Transformer phi = golden_model(*backend, kTinyModels / "phi3", {});
  EXPECT_NE(phi.ends(*backend), nullptr);
}

TEST(Pieces, ThatNoInflatedModelHasAreRefused) {
  const ModelConfig llama = ModelConfig::load(kTinyModels / "llama2");
  const auto refused = [&](const ModelConfig& small, const ModelConfig& shape) {
    return sentence_of([&] { (void)inflated_config(small, shape, "the model tiny", "large"); });
  };
  for (const char* name : {"gemma2", "gemma3", "phi3"}) {
    const ModelConfig own = ModelConfig::load(kTinyModels / name);
    EXPECT_TRUE(says(refused(own, llama), "the model tiny cannot be inflated to large: the small model has ",
                     "random weights of the shape"))
        << name;
  }
  EXPECT_TRUE(says(refused(llama, ModelConfig::load(kTinyModels / "gemma2")), "the shape has norms behind"));
  ModelConfig fused = llama;
  fused.fused = true;
  EXPECT_EQ(refused(llama, fused), "") << "a shape whose matrices are fused has the same products";
  for (const auto& change : std::vector<std::function<void(ModelConfig&)>>{
           [](ModelConfig& m) { m.activation = Activation::gelu; }, [](ModelConfig& m) { m.attention_softcap = 5; },
           [](ModelConfig& m) { m.logit_softcap = 5; }, [](ModelConfig& m) { m.scaled_embedding = true; },
           [](ModelConfig& m) { m.gains_less_one = true; }, [](ModelConfig& m) { m.global_layers = {0}; },
           [](ModelConfig& m) { m.local_theta = 5; }}) {
    ModelConfig shape = llama;
    change(shape);
    EXPECT_TRUE(says(refused(llama, shape), "the shape has "));
  }
}

// Else every norm would double what it normalizes.
TEST(Pieces, RandomGainsAreWhatTheyAre) {
  const std::string folder = (kTinyModels / "gemma2").string();
  const OpenModel random =
      open_model(ModelChoice::read({{"random", folder}}), [](const std::string& directory) { return directory; });
  EXPECT_FALSE(random.config.gains_less_one);
  EXPECT_EQ(random.tensors->tensor("model.norm.weight", {48}).values<float>()[5], 1);
  EXPECT_TRUE(ModelConfig::load(folder).gains_less_one);
}

}  // namespace
}  // namespace foretoken::test
