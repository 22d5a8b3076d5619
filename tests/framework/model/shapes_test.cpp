// The published shapes, and Llama 3's scaled rotation by its published formula.
#include "framework/model/shapes.h"

#include <cmath>
#include <numbers>

#include <nlohmann/json.hpp>

#include "framework/model/model_choice.h"
#include "tests/framework/text/temporary_folder.h"

namespace foretoken::test {
namespace {

using nlohmann::json;

// The number of parameters: embedding, layers, head.
double parameters(const ModelConfig& m) {
  const double biases = (m.qkv_bias ? m.head_size * (m.heads + 2 * m.kv_heads) : 0) + (m.out_bias ? m.width : 0) +
                        (m.sinks ? m.heads : 0),
               attention = double(m.width) * m.head_size * (2 * m.heads + 2 * m.kv_heads) + biases,
               ffn_biases =
                   m.mixture && m.mixture->biases ? m.mixture->experts * (2.0 * m.mixture->width + m.width + 1) : 0,
               ffn = ffn_biases +
                     (m.mixture ? m.width * m.mixture->experts * (3.0 * m.mixture->width + 1) : 3.0 * m.width * m.ffn),
               heads = m.joint_norms ? m.head_size * (m.heads + m.kv_heads) : 2 * m.head_size,
               norms = (m.post_norms && m.pre_norms ? 4 : 2) * m.width + (m.head_norms ? heads : 0);
  return double(m.vocab) * m.width * (m.tied_head ? 1 : 2) + m.layers * (attention + ffn + norms) + m.width;
}

// As published: 8.03, 70.6, 1.24, 3.21, 6.74, 30.5, 46.7, 2.61, 9.24, 27.2, 1.00, 14.7, 3.82, 3.84, 1.48, 7.30, 13.7,
// 32.2, 0.135, 0.362, 1.71, 3.08, 20.9, 117 billion.
TEST(Shapes, HaveTheirPublishedNumbersOfParameters) {
  EXPECT_EQ(parameters(published_shape("llama-3.1-8b")), 8030261248);
  EXPECT_EQ(parameters(published_shape("llama-3.1-70b")), 70553706496);
  EXPECT_EQ(parameters(published_shape("llama-3.2-1b")), 1235814400);
  EXPECT_EQ(parameters(published_shape("llama-3.2-3b")), 3212749824);
  EXPECT_EQ(parameters(published_shape("llama-2-7b")), 6738415616);
  EXPECT_EQ(parameters(published_shape("qwen3-30b-a3b")), 30532122624);
  EXPECT_EQ(parameters(published_shape("mixtral-8x7b")), 46702792704);
  EXPECT_EQ(parameters(published_shape("gemma-2-2b")), 2614341888);
  EXPECT_EQ(parameters(published_shape("gemma-2-9b")), 9241705984);
  EXPECT_EQ(parameters(published_shape("gemma-2-27b")), 27227128320);
  EXPECT_EQ(parameters(published_shape("gemma-3-1b")), 999885952);
  EXPECT_EQ(parameters(published_shape("phi-4")), 14659507200);
  EXPECT_EQ(parameters(published_shape("phi-3-mini")), 3821079552);
  EXPECT_EQ(parameters(published_shape("phi-4-mini")), 3836021760);
  EXPECT_EQ(parameters(published_shape("olmo-2-1b")), 1484916736);
  EXPECT_EQ(parameters(published_shape("olmo-2-7b")), 7298617344);
  EXPECT_EQ(parameters(published_shape("olmo-2-13b")), 13716198400);
  EXPECT_EQ(parameters(published_shape("olmo-2-32b")), 32234279936);
  EXPECT_EQ(parameters(published_shape("smollm2-135m")), 134515008);
  EXPECT_EQ(parameters(published_shape("smollm2-360m")), 361821120);
  EXPECT_EQ(parameters(published_shape("smollm2-1.7b")), 1711376384);
  EXPECT_EQ(parameters(published_shape("smollm3-3b")), 3075098624);
  EXPECT_EQ(parameters(published_shape("gpt-oss-20b")), 20914757184);
  EXPECT_EQ(parameters(published_shape("gpt-oss-120b")), 116829156672);
}

TEST(Shapes, AreOfTheirFamilies) {
  for (const std::string& name : shape_names()) {
    const ModelConfig m = published_shape(name);
    EXPECT_EQ(m.architecture, name == "mixtral-8x7b"         ? "MixtralForCausalLM"
                              : name == "qwen3-30b-a3b"      ? "Qwen3MoeForCausalLM"
                              : name.starts_with("qwen3")    ? "Qwen3ForCausalLM"
                              : name.starts_with("gemma-2")  ? "Gemma2ForCausalLM"
                              : name.starts_with("gemma-3")  ? "Gemma3ForCausalLM"
                              : name.starts_with("phi")      ? "Phi3ForCausalLM"
                              : name.starts_with("olmo")     ? "Olmo2ForCausalLM"
                              : name.starts_with("smollm3")  ? "SmolLM3ForCausalLM"
                              : name.starts_with("gpt-oss")  ? "GptOssForCausalLM"
                              : name == "deepseek-v3"        ? "DeepseekV3ForCausalLM"
                              : name.starts_with("deepseek") ? "DeepseekV2ForCausalLM"
                                                             : "LlamaForCausalLM");
    EXPECT_EQ(m.mixture.has_value(), name == "mixtral-8x7b" || name == "qwen3-30b-a3b" || name.starts_with("gpt-oss") ||
                                         name.starts_with("deepseek"));
  }
}

// Gemma 2 report, table 1; Gemma 3 report, section 2: five layers with a window for each one without.
TEST(Shapes, OfGemmaHaveWindowsInSomeLayers) {
  const ModelConfig two = published_shape("gemma-2-9b"), three = published_shape("gemma-3-27b");
  EXPECT_EQ(std::tuple(two.window, two.global_layers.size(), two.global_layers.front()), std::tuple(4096, 21u, 1));
  EXPECT_EQ(std::tuple(three.window, three.global_layers.size(), three.global_layers.front()),
            std::tuple(1024, 10u, 5));
  EXPECT_EQ(std::tuple(two.attention_softcap, two.logit_softcap, two.tied_head), std::tuple(50., 30., true));
  EXPECT_EQ(std::tuple(three.attention_softcap, three.logit_softcap, three.head_norms), std::tuple(0., 0., true));
  EXPECT_EQ(three.query_scalar, 168);
  EXPECT_EQ(three.of_layer(4).rope_theta, 1e4);
  EXPECT_EQ(three.of_layer(5).rope_theta, 1e6);
}

TEST(Shapes, ThatAreUnknownAreRefusedWithTheKnownOnes) {
  const std::string sentence = sentence_of([] { expect_shape("llama-3-8b"); });
  EXPECT_TRUE(says(sentence, "unknown shape 'llama-3-8b'", "did you mean 'llama-3.1-8b'?"));
  for (const std::string& name : shape_names()) EXPECT_TRUE(says(sentence, name));
  expect_shape("./any/directory");
}

// Llama 3.1, apply_scaling of the reference implementation: wavelengths below original / high are kept, those above
// original / low are `factor` times as long, between them the frequency is interpolated.
TEST(Rotation, OfLlama3IsThePublishedOne) {
  for (const char* name : {"llama-3.1-8b", "llama-3.2-1b"}) {
    const ModelConfig m = published_shape(name);
    const double factor = m.head_size == 128 ? 8 : 32, low = 1, high = 4, original = 8192;
    const auto frequencies = m.rope_frequencies();
    ASSERT_EQ(int(frequencies.size()), m.head_size / 2);
    int kept = 0, blended = 0, slowed = 0;
    for (int i = 0; i < m.head_size / 2; ++i) {
      const double f = std::pow(500000.0, -2.0 * i / m.head_size), wavelength = 2 * std::numbers::pi / f;
      double want = f;
      if (wavelength > original / low) {
        want = f / factor, ++slowed;
      } else if (wavelength >= original / high) {
        const double smooth = (original / wavelength - low) / (high - low);
        want = (1 - smooth) * f / factor + smooth * f, ++blended;
      } else {
        ++kept;
      }
      EXPECT_NEAR(frequencies[std::size_t(i)] / want, 1, 1e-6) << name << " pair " << i;
    }
    EXPECT_TRUE(kept > 0 && blended > 0 && slowed > 0) << kept << " " << blended << " " << slowed;
  }
}

// Hugging Face's own numbers for Llama-3.1-8B, to six digits.
TEST(Rotation, OfLlama3HasKnownValues) {
  const auto f = published_shape("llama-3.1-8b").rope_frequencies();
  EXPECT_FLOAT_EQ(f[0], 1);
  EXPECT_NEAR(f[1], std::pow(500000.0, -1.0 / 64), 1e-6);
  EXPECT_NEAR(f[63], std::pow(500000.0, -63.0 / 64) / 8, 1e-12);
}

TEST(ModelChoices, AreReadFromARunDocument) {
  const auto read = [](const json& model, const json& inflate = nullptr) { return ModelChoice::read(model, inflate); };
  EXPECT_EQ(read("a/b").text(), "a/b");
  EXPECT_EQ(read("a/b").document(), json("a/b"));
  EXPECT_EQ(read("a/b").tokenizer_directory(), "a/b");
  EXPECT_EQ(read("a/b", "llama-3.2-1b").text(), "a/b inflated to llama-3.2-1b");
  const ModelChoice random = read({{"random", "llama-3.1-8b"}});
  EXPECT_EQ(random.text(), "random llama-3.1-8b seed 1");
  EXPECT_EQ(random.tokenizer_directory(), "experiments/models/target");
  EXPECT_EQ(random.document(),
            (json{{"random", "llama-3.1-8b"}, {"seed", 1}, {"tokenizer", "experiments/models/target"}}));
  EXPECT_EQ(read({{"random", "llama-3.1-8b"}, {"seed", 7}, {"tokenizer", "t"}}).tokenizer_directory(), "t");
  EXPECT_EQ(ModelChoice("x").text(), "x");
  EXPECT_EQ(read({{"directory", "a/b"}}).document(), json("a/b"));
  const json whole = {{"directory", "a/b"}, {"inflate", "llama-3.2-1b"}, {"dtype", "int8"}};
  EXPECT_EQ(read(whole).document(), whole);
  EXPECT_EQ(ModelChoice::read("a/b", "llama-3.2-1b", "int8").document(), whole);
  EXPECT_EQ(ModelChoice::read(whole, "llama-3.2-1b", "int8").document(), whole) << "said twice, and the same";
  EXPECT_EQ(read({{"random", "llama-3.1-8b"}, {"dtype", "f32"}}).dtype, "f32");
  EXPECT_EQ(read("a/b").kv_dtype, "target");
  const json longer = {{"directory", "a/b"}, {"long_context", true}};
  EXPECT_EQ(read(longer).document(), longer);
  EXPECT_EQ(read(longer).text(), "a/b with its long context");
  EXPECT_EQ(read({{"directory", "a/b"}, {"long_context", false}}).document(), json("a/b"));
  EXPECT_EQ(read({{"directory", "a/b"}, {"kv_dtype", "fp8"}}).document(),
            ModelChoice::read("a/b", nullptr, "auto", "fp8").document());
}

TEST(ModelChoices, RefuseInvalidDocuments) {
  const std::vector<std::tuple<json, json, std::string>> cases = {
      {json(), json(), "or {\"random\": SHAPE, \"seed\": 1}, not null"},
      {"", json(), "a model must be a directory"},
      {{{"seed", 1}}, json(), "a model must be a directory, a .gguf file, {"},
      {{{"random", 3}}, json(), "'random' of a model must be"},
      {{{"random", "llama"}}, json(), "unknown shape 'llama'"},
      {{{"random", "llama-3.1-8b"}, {"sed", 1}}, json(), "no option 'sed' (did you mean 'seed'?)"},
      {{{"random", "llama-3.1-8b"}, {"seed", -1}}, json(), "'seed' of a random model must be an integer >= 0"},
      {{{"random", "llama-3.1-8b"}, {"seed", 1.5}}, json(), "'seed'"},
      {{{"random", "llama-3.1-8b"}, {"tokenizer", ""}}, json(), "'tokenizer'"},
      {{{"random", "llama-3.1-8b"}}, "llama-3.1-8b", "random weights cannot be inflated"},
      {"a", "llama", "unknown shape 'llama'"},
      {"a", 3, "'inflate' must be the name of a shape, or null"},
      {"a", "", "'inflate' must be"},
      {{{"directory", ""}}, json(), "'directory' of a model must be a non-empty string"},
      {{{"directory", "a"}, {"dtype", 3}}, json(), "'dtype' of a model must be"},
      {{{"directory", "a"}, {"kv_dtype", 8}}, json(), "'kv_dtype' of a model must be"},
      {{{"directory", "a"}, {"long_context", 8}}, json(), "'long_context' of a model must be true or false, not 8"},
      {{{"directory", "a"}, {"inflated", "x"}}, json(), "no option 'inflated' (did you mean 'inflate'?)"},
      {{{"directory", "a"}, {"inflate", "llama-3.2-1b"}}, "llama-3.1-8b", "is given twice, as"},
  };
  for (const auto& [model, inflate, words] : cases)
    EXPECT_TRUE(says(sentence_of([&] { ModelChoice::read(model, inflate); }), words)) << model << " " << inflate;
}

}  // namespace
}  // namespace foretoken::test
