// Every supported kind of model, on the reference and on the fast CPU backend with each of its instruction sets, gives
// the fp32 logits of Transformers, to 1e-5.
#include "tests/framework/model/golden.h"

#include <map>

#include "framework/model/open_model.h"
#include "framework/text/json_file.h"
#include "tests/support/sentence.h"
#include "tests/support/tiny_models.h"

namespace foretoken::test {
namespace {

class TinyModel : public testing::TestWithParam<std::string> {
 protected:
  std::filesystem::path directory_ = kTinyModels / GetParam();
};

TEST_P(TinyModel, MeetsTheLogitsOfTransformers) {
  const auto backend = make_reference_backend();
  Transformer model = golden_model(*backend, directory_, {});  // weights as the checkpoint stores them, computed in f32
  EXPECT_EQ(meet_transformers(*backend, model, 1e-5, 5), 3);
}

TEST_P(TinyModel, MeetsTheLogitsOfTransformersOnTheFastBackend) {
  for (const std::string& instructions : cpu_instructions()) {
    SCOPED_TRACE(instructions);
    const auto backend = make_cpu_backend(2, instructions);
    Transformer model = golden_model(*backend, directory_, kSingle);
    EXPECT_EQ(meet_transformers(*backend, model, 1e-5, 5), 3);
  }
}

TEST_P(TinyModel, MeetsTheFrequenciesOfTransformers) {
  const Checkpoint golden = Checkpoint::open_file(kRoot / "tests" / "data" / "golden" / (GetParam() + ".safetensors"));
  const ModelConfig config = ModelConfig::load(directory_);
  const auto expect_near = [&](const std::vector<float>& own, const char* name) {
    const Tensor want = golden.tensor(name, {std::int64_t(own.size())});
    for (std::size_t i = 0; i < own.size(); ++i)
      EXPECT_NEAR(own[i] / want.values<float>()[i], 1, 2.4e-7)
          << i;  // two units in the last place: torch's pow has its own
  };
  expect_near(config.rope_frequencies(), "frequencies");
  if (!golden.has("local_frequencies")) return;
  EXPECT_GT(config.of_layer(0).window, 0);
  expect_near(config.of_layer(0).rope_frequencies(), "local_frequencies");
}

// Transformers takes the long factors of a sequence that is longer than the original length, here 8.
TEST(LongRope, MeetsTransformersByItsLongFactors) {
  nlohmann::json j = read_json(kTinyModels / "phi3" / "config.json");
  j["original_max_position_embeddings"] = 8;
  const ModelConfig config = ModelConfig::parse(j.dump(), "config.json"), all = config.with_long_factors();
  EXPECT_EQ(std::tuple(config.positions, all.positions), std::tuple(8, 256));
  for (const bool fast : {false, true}) {
    const auto backend = fast ? make_cpu_backend(2) : make_reference_backend();
    Transformer model(*backend, all, Checkpoint::open(kTinyModels / "phi3"), "phi3_long", 0, kSingle);
    EXPECT_EQ(meet_transformers(*backend, model, 1e-5, 5), 1);
  }
  EXPECT_TRUE(says(sentence_of([] { (void)ModelConfig::load(kTinyModels / "llama2").with_long_factors(); }),
                   "a LlamaForCausalLM without LongRoPE's long factors"));
  const auto opened = [](const nlohmann::json& choice) {
    return open_model(ModelChoice::read(choice), [](const std::string& directory) { return directory; }).config;
  };
  const std::string phi = (kTinyModels / "phi3").string(), file = (kRoot / "tests/data/gguf/phi3.gguf").string();
  EXPECT_EQ(opened({{"directory", phi}, {"long_context", true}}).positions, 256);
  EXPECT_EQ(opened({{"random", phi}, {"long_context", true}}).rope_scaling.divisors.back(), 33);
  EXPECT_EQ(opened(file).positions, 64);
  EXPECT_EQ(opened({{"directory", file}, {"long_context", true}}).rope_scaling.divisors.back(), 33);
}

// Every folder of tests/data/models is compared with its golden logits.
INSTANTIATE_TEST_SUITE_P(Kinds, TinyModel, testing::ValuesIn(tiny_model_names()),
                         [](const auto& info) { return info.param; });

// All kinds that the project supports are among them.
TEST(TinyModels, AreOfEveryKindThatIsSupported) {
  std::map<std::string, int> of;
  for (const std::string& name : tiny_model_names()) {
    const ModelConfig m = ModelConfig::load(kTinyModels / name);
    of[m.architecture] += 1, of["a sliding window"] += m.window > 0, of["biases of q, k, v"] += m.qkv_bias,
        of["norms of heads"] += m.head_norms;
    of["experts"] += m.mixture.has_value(), of["dense layers among experts"] += m.mixture && !m.of_layer(0).mixture;
    of["a shared expert"] += m.mixture && m.mixture->shared_width > 0,
        of["shares that are not renormalized"] += m.mixture && !m.mixture->renormalized;
    of["one head of keys"] += m.kv_heads == 1 && m.heads > 1,
        of["a head size that is no power of two"] += (m.head_size & (m.head_size - 1)) != 0;
    of["linear rope"] += m.rope_scaling.kind == RopeScaling::Kind::linear,
        of["Llama 3's rope"] += m.rope_scaling.kind == RopeScaling::Kind::llama3;
    of["windows in some layers"] += !m.global_layers.empty(), of["two rotations"] += m.local_theta > 0;
    of["caps"] += m.attention_softcap > 0 && m.logit_softcap > 0;
    of["YaRN"] += m.rope_scaling.kind == RopeScaling::Kind::yarn,
        of["layers that rotate nothing"] += !m.still_layers.empty();
    of["norms of all heads"] += m.joint_norms, of["no norms before sublayers"] += !m.pre_norms, of["sinks"] += m.sinks;
    of["biases of experts"] += m.mixture && m.mixture->biases, of["a vision tower"] += m.vision;
    of["LongRoPE"] += m.rope_scaling.kind == RopeScaling::Kind::longrope, of["heads rotated in part"] += m.rotary > 0;
    of["queries of a latent"] += m.latent && m.latent->query_rank > 0;
    of["latents with queries of the input"] += m.latent && m.latent->query_rank == 0;
    of["groups of experts"] += m.mixture && m.mixture->groups > 1;
  }
  EXPECT_EQ(of.size(), 42u);  // sixteen architectures and the twenty-six kinds above
  for (const auto& [kind, models] : of) EXPECT_GT(models, 0) << kind;
}

}  // namespace
}  // namespace foretoken::test
