// The dtype of a run beside what a checkpoint stores, and how its inputs are rounded.
#include "framework/model/quantized/quantization.h"
#include "tests/framework/model/quantized/quantized_folder.h"

namespace foretoken::test {
namespace {

TEST(Dtype, OfTheStoredFormat) {
  const auto with = [](const std::string& name, const std::string& dtype) {
    return refusal(name, [](ModelFolder&) {}, dtype);
  };
  for (const char* dtype : {"auto", "int4", "bf16", "f32"}) EXPECT_EQ(with("gptq", dtype), "") << dtype;
  for (const char* dtype : {"auto", "nf4"}) EXPECT_EQ(with("bnb-nf4", dtype), "") << dtype;
  EXPECT_TRUE(says(with("gptq", "nf4"), "quantization_config of config.json is 'gptq' (int4)",
                   "contradicts the dtype 'nf4' of the run", "set dtype to auto, bf16 or f32, or int4"));
  EXPECT_TRUE(says(with("ct-two-groups", "int4"), "(int4, int8)", "contradicts the dtype 'int4'"));
}

// The format's own name leaves dense matrices dense, as "auto" does.
TEST(Dtype, LeavesDenseModulesAlone) {
  ModelChoice choice((std::filesystem::path(FORETOKEN_SOURCE_DIR) / "tests/data/quantized/ct-int4").string());
  choice.dtype = "int4";
  EXPECT_EQ(open_model(choice, [](const std::string& path) { return path; }).dtype, "auto");
}

// "auto" runs them as they say; the name of the weights' format, the weights alone.
TEST(Dtype, OfCheckpointsThatRoundInputs) {
  const auto activations = [](const std::string& name, const std::string& dtype) {
    ModelChoice choice((std::filesystem::path(FORETOKEN_SOURCE_DIR) / "tests/data/quantized" / name).string());
    choice.dtype = dtype;
    const OpenModel open = open_model(choice, [](const std::string& path) { return path; });
    const Weight w = open.tensors->matrix("model.layers.0.self_attn.v_proj", {32, 64});
    EXPECT_EQ(open.dtype, "auto");
    return w.activations ? w.activations->name() + (w.input_scale > 0 ? " static" : "") : "";
  };
  const struct {
    const char *name, *rounded, *alone, *format;
  } kCases[] = {{"bnb-int8", "llm_int8", "int8", "int8_outliers"},
                {"ct-int8", "w8a8", "int8", "int8"},
                {"ct-int8-static", "w8a8", "int8", "int8 static"},
                {"ct-int4-int8", "w4a8", "int4", "int8"},
                {"ct-fp8", "fp8_w8a8", "fp8", "fp8"},
                {"ct-fp8-static", "auto", "fp8_tensor", "fp8 static"},
                {"fp8-tensor-inverse", "auto", "fp8_tensor", "fp8"},
                {"fp8-tensor", "auto", "fp8_tensor", "fp8 static"}};
  for (const auto& c : kCases) {
    for (const char* dtype : {"auto", c.rounded}) EXPECT_EQ(activations(c.name, dtype), c.format) << c.name;
    EXPECT_EQ(activations(c.name, c.alone), "") << c.name;
    for (const char* dtype : {"auto", c.rounded, c.alone, "bf16"})
      EXPECT_EQ(refusal(c.name, [](ModelFolder&) {}, dtype), "") << c.name << " as " << dtype;
  }
  EXPECT_TRUE(says(refusal("ct-int4", [](ModelFolder&) {}, "w4a8"), "contradicts the dtype 'w4a8'"));
  EXPECT_TRUE(says(refusal("ct-int8", [](ModelFolder&) {}, "llm_int8"), "contradicts the dtype 'llm_int8'"));
}

TEST(Dtype, OfRoundedInputsThatAreNotSupported) {
  const auto inputs = [](const std::string& name, const char* key, const nlohmann::json& value) {
    return refusal(name, [&](ModelFolder& m) {
      m.config["quantization_config"]["config_groups"]["group_0"]["input_activations"][key] = value;
    });
  };
  EXPECT_TRUE(says(refusal("fp8-blocks", [](ModelFolder&) {}),
                   "is 'fp8' (fp8_block) and rounds inputs of matrices to fp8 (dynamic, a scale for each group), which "
                   "is not supported",
                   "for its weights alone, set dtype to fp8_block or bf16"));
  EXPECT_EQ(refusal("fp8-blocks", [](ModelFolder&) {}, "fp8_block"), "");
  EXPECT_TRUE(
      says(inputs("ct-int8", "symmetric", false), "to int8 (dynamic, a scale for each token, with zero points)"));
  EXPECT_TRUE(says(inputs("ct-int8", "strategy", "tensor"), "to int8 (dynamic, a scale for each tensor)"));
  EXPECT_TRUE(says(inputs("ct-int8", "type", "float"), "to fp8 (dynamic, a scale for each token)"));
  EXPECT_TRUE(says(inputs("ct-int8", "num_bits", 4), "to int4 (dynamic"));
  EXPECT_TRUE(says(refusal_of_settings("bnb-int8", {{"llm_int8_threshold", 5.5}}), "magnitudes from 5.5 apart"));
  EXPECT_EQ(refusal_of_settings("bnb-int8", {{"llm_int8_threshold", 0}}), "");
  EXPECT_TRUE(
      says(refusal("ct-int8", [](ModelFolder&) {}, "auto", "llama-3.1-8b"), "not supported when it is inflated"));
}

TEST(Dtype, OfScalesOfInputsThatAreNoScales) {
  const auto with = [](float scale) {
    return refusal("ct-int8-static", [&](ModelFolder& m) {
      m.tensors[kUp + ".input_scale"] = Tensor::host_copy<float>(std::vector{scale}, DType::f32);
    });
  };
  for (const float scale : {0.0f, -1.0f, 1e-39f})
    EXPECT_TRUE(says(with(scale), kUp + ".input_scale", "must be above 0, and at least 1.2e-38", "download")) << scale;
  EXPECT_EQ(with(1.2e-38f), "");
  EXPECT_TRUE(says(with(1e37f), kUp + ".input_scale' holds a number so large that inputs become infinite"));
  EXPECT_TRUE(says(with(std::nanf("")), kUp + ".input_scale", "NaN"));
  EXPECT_TRUE(says(refusal("ct-int8-static", [](ModelFolder& m) { m.tensors.erase(kUp + ".input_scale"); }),
                   kUp + ".input_scale"));
}

TEST(Dtype, OfZeroPointsOfInputs) {
  const auto with = [](std::int8_t zero) {
    return refusal("ct-int8-static", [&](ModelFolder& m) {
      m.tensors[kUp + ".input_zero_point"] = Tensor::host_copy<std::int8_t>(std::vector{zero}, DType::i8);
    });
  };
  EXPECT_EQ(with(0), "");
  EXPECT_TRUE(says(with(7), "tensor '" + kUp + ".input_zero_point' is not 0", "symmetric", "download both again"));
}

// What the matrices of each group are multiplied with.
TEST(Dtype, OfGroupsThatRoundInputsDifferently) {
  ModelFolder m("ct-two-groups", "quantized");
  const auto rounded = [&] {
    m.write();
    std::vector<bool> all;
    for (const Activations& a : ModelConfig::load(m.folder().path()).quantization->schemes())
      all.push_back(a.format() != nullptr);
    return all;
  };
  EXPECT_EQ(rounded(), (std::vector<bool>{false, false}));
  m.config["quantization_config"]["config_groups"]["mlp"]["input_activations"] = {
      {"num_bits", 8}, {"type", "int"}, {"symmetric", true}, {"strategy", "token"}, {"dynamic", true}};
  EXPECT_EQ(rounded(), (std::vector<bool>{false, true}));
}

TEST(Dtype, OfAQuantizedModelThatIsInflated) {
  const auto with = [](const std::string& dtype) {
    return refusal("ct-int4", [](ModelFolder&) {}, dtype, "llama-3.1-8b");
  };
  EXPECT_EQ(with("auto"), "");
  EXPECT_TRUE(says(with("int4"), "dense when it is inflated", "contradicts the dtype 'int4'"));
}

}  // namespace
}  // namespace foretoken::test
