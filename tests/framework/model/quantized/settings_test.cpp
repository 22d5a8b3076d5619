// quantization_config of config.json: what is not implemented is named, and what contradicts the tensors or the dtype
// of a run.
#include "framework/model/quantized/module_names.h"
#include "framework/model/quantized/quantization.h"
#include "framework/text/json_file.h"
#include "tests/framework/model/quantized/quantized_folder.h"

namespace foretoken::test {
namespace {

using nlohmann::json;

TEST(QuantizationConfig, WhatIsNotImplementedIsNamed) {
  const std::vector<std::tuple<std::string, json, std::string>> cases = {
      {"gptq",
       {{"quant_method", "hqq"}},
       "'quantization_config.quant_method' is \"hqq\", but the supported ones are gptq, awq"},
      {"gptq", {{"bits", 3}}, "'quantization_config.bits' is 3, but the supported ones are 4 and 8"},
      {"gptq", {{"group_size", 0}}, "'quantization_config.group_size' is 0"},
      {"gptq", {{"checkpoint_format", "marlin"}}, "checkpoint_format' is \"marlin\""},
      {"gptq", {{"format", "gptq_p"}}, "format' is \"gptq_p\""},
      {"gptq", {{"is_marlin_format", true}}, "is_marlin_format"},
      {"gptq", {{"pack_dtype", "int16"}}, "pack_dtype"},
      {"gptq", {{"dynamic", {{"-:.*down.*", json::object()}}}}, "dynamic"},
      {"gptq", {{"adapter", {{"name", "lora"}}}}, "adapter"},
      {"awq", {{"bits", 8}}, "bits' is 8, but the supported one is 4"},
      {"awq", {{"version", "gemv"}}, "version' is \"gemv\", but the supported one is \"gemm\""},
      {"awq", {{"zero_point", false}}, "zero_point"},
      {"bnb-nf4", {{"bnb_4bit_quant_type", "af4"}}, "bnb_4bit_quant_type' is \"af4\""},
      {"bnb-nf4", {{"bnb_4bit_quant_storage", "bfloat16"}}, "bnb_4bit_quant_storage"},
      {"bnb-nf4", {{"load_in_8bit", true}}, "either that or load_in_8bit must be true"},
      {"bnb-int8", {{"llm_int8_has_fp16_weight", true}}, "llm_int8_has_fp16_weight"},
      {"fp8-blocks", {{"activation_scheme", "token"}}, "activation_scheme"},
      {"fp8-blocks", {{"fmt", "e5m2"}}, "fmt' is \"e5m2\""},
      {"fp8-blocks", {{"scale_fmt", "ue8m0"}}, "scale_fmt"},
      {"fp8-blocks", {{"weight_block_size", {128}}}, "weight_block_size"},
      {"fp8-blocks", {{"weight_block_size", {128, 0}}}, "weight_block_size"},
      {"ct-int4", {{"kv_cache_scheme", {{"num_bits", 8}}}}, "kv_cache_scheme"},
      {"ct-int4", {{"sparsity_config", {{"format", "sparse-24-bitmask"}}}}, "sparsity_config"},
      {"ct-int4", {{"transform_config", {{"config_groups", 1}}}}, "transform_config"},
      {"ct-int4", {{"quantization_status", "frozen"}}, "quantization_status' is \"frozen\""},
      {"ct-int4", {{"config_groups", json::object()}}, "config_groups"},
  };
  for (const auto& [name, settings, words] : cases)
    EXPECT_TRUE(says(refusal_of_settings(name, settings), "config.json", words)) << settings;
}

TEST(QuantizationConfig, WhatIsNotImplementedInAGroupIsNamed) {
  const auto of_group = [](const std::string& name, const json& group, const json& weights) {
    return refusal(name, [&](ModelFolder& m) {
      json& g = m.config["quantization_config"]["config_groups"]["group_0"];
      g.update(group), g["weights"].update(weights);
    });
  };
  const json none = json::object();
  const std::vector<std::tuple<std::string, json, json, std::string>> cases = {
      {"ct-int4", {{"format", "marlin-24"}}, none, "config_groups.group_0.format' is \"marlin-24\""},
      {"ct-int4", {{"format", "nvfp4-pack-quantized"}}, none, "nvfp4-pack-quantized"},
      {"ct-int4", {{"format", "float-quantized"}}, none, "the format stores floats"},
      {"ct-int4", {{"output_activations", {{"num_bits", 8}}}}, none, "output_activations"},
      {"ct-int4", none, {{"num_bits", 3}}, "weights.num_bits' is 3, but the supported ones are 4, 5, 6 and 8"},
      {"ct-int4", none, {{"strategy", "tensor_group"}}, "strategy' is \"tensor_group\""},
      {"ct-int4", none, {{"strategy", "token"}}, "strategy"},
      {"ct-int4", none, {{"group_size", nullptr}}, "group_size"},
      {"ct-int4", none, {{"actorder", "group"}}, "actorder' is \"group\""},
      {"ct-int4", none, {{"actorder", true}}, "actorder"},
      {"ct-int4", none, {{"dynamic", true}}, "dynamic"},
      {"ct-int4", none, {{"type", "float"}}, "the format stores integers"},
      {"ct-fp8-tensor", none, {{"symmetric", false}}, "symmetric"},
      {"ct-fp8-tensor", none, {{"num_bits", 4}}, "num_bits"},
      {"ct-fp8-blocks", none, {{"block_structure", {32}}}, "block_structure"},
      {"ct-mxfp4", none, {{"group_size", 16}}, "group_size"},
  };
  for (const auto& [name, group, weights, words] : cases)
    EXPECT_TRUE(says(of_group(name, group, weights), "config.json", words)) << group << weights;
  EXPECT_EQ(of_group("ct-int4", none, {{"actorder", "weight"}}), "");
}

TEST(QuantizationConfig, GroupsThatDoNotDivideTheInputs) {
  EXPECT_TRUE(says(refusal_of_settings("gptq", {{"group_size", 48}}), "the 64 inputs of '" + kLayer,
                   "do not divide into groups of 48", "group_size of config.json", "quantize anew"));
  EXPECT_TRUE(says(refusal_of_settings("awq", {{"group_size", 40}}), "do not divide into groups of 40"));
  EXPECT_TRUE(says(refusal("ct-int4",
                           [](ModelFolder& m) {
                             m.config["quantization_config"]["config_groups"]["group_0"]["weights"]["group_size"] = 48;
                           }),
                   "do not divide into groups of 48"));
  // Another group that divides them contradicts the shape of the scales.
  EXPECT_TRUE(says(refusal_of_settings("gptq", {{"group_size", 16}}), ".qzeros' is I32 [2, ", "requires I32 [4, "));
}

TEST(QuantizationConfig, ModulesThatItExcludes) {
  const auto sentence = refusal_of_settings("awq", {{"modules_to_not_convert", {"lm_head", "mlp.up_proj"}}});
  EXPECT_TRUE(
      says(sentence, "tensor '" + kUp + ".qweight' is of a quantized matrix", "says that '" + kUp + "' is dense"));
  EXPECT_TRUE(
      says(refusal("ct-int4", [](ModelFolder& m) { m.config["quantization_config"]["ignore"] = {"re:.*up_proj"}; }),
           "says that '" + kUp + "' is dense"));
}

TEST(QuantizationConfig, ModulesOfNoGroupOrOfSeveral) {
  const auto targets = [](const json& attention, const json& mlp) {
    return refusal("ct-two-groups", [&](ModelFolder& m) {
      json& groups = m.config["quantization_config"]["config_groups"];
      groups["attention"]["targets"] = attention, groups["mlp"]["targets"] = mlp;
      m.config["quantization_config"]["ignore"] = {"lm_head", "re:.*down_proj"};
    });
  };
  EXPECT_EQ(targets({"Linear"}, {"re:.*mlp.*"}), "");
  EXPECT_TRUE(says(targets({"re:.*q_proj"}, {"re:.*mlp.*"}), "is quantized, but no group of quantization_config"));
  EXPECT_TRUE(says(targets({"Linear"}, {"Linear"}), "but several groups of quantization_config name it"));
}

// The lists of Transformers and of compressed-tensors.
TEST(ModuleLists, MatchAsTheirReaders) {
  const json j = {{"excluded", {"lm_head", "layers.1", "model.layers.2", "layers.*gate"}},
                  {"targets", {"a.b", "re:.*c$", "re:d"}},
                  {"class", {"Linear"}},
                  {"wrong", {1}}};
  const Fields fields(j, "config.json");
  const ExcludedModules excluded(fields, "excluded");
  for (const char* module : {"lm_head", "model.lm_head", "model.layers.2.mlp", "model.layers.2", "x.layers.1",
                             "layers.1.mlp.up", "layers.7.mlp.gate"})
    EXPECT_TRUE(excluded.contains(module)) << module;
  for (const char* module : {"model.layers.21.mlp", "lm_heads", "layers.7.mlp.gate_proj", "model.layers.1.x"})
    EXPECT_FALSE(excluded.contains(module)) << module;
  const ModuleTargets targets(fields, "targets");
  EXPECT_EQ(targets.match("a.b"), 3);
  EXPECT_EQ(targets.match("a.b.c"), 2);
  EXPECT_EQ(targets.match("da"), 2);
  EXPECT_EQ(targets.match("a.bd"), 0);
  EXPECT_EQ(ModuleTargets(fields, "class").match("anything"), 1);
  EXPECT_TRUE(says(sentence_of([&] { ModuleTargets(fields, "wrong"); }), "'wrong' is [1]", "names of modules"));
}

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
  for (const float scale : {0.0f, -1.0f}) EXPECT_TRUE(says(with(scale), kUp + ".input_scale", "must be above 0"));
  EXPECT_TRUE(says(with(std::nanf("")), kUp + ".input_scale", "NaN"));
  EXPECT_TRUE(says(refusal("ct-int8-static", [](ModelFolder& m) { m.tensors.erase(kUp + ".input_scale"); }),
                   kUp + ".input_scale"));
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
