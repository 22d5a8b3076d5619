// quantization_config of config.json: what is not implemented is named, and what contradicts the tensors.
#include "framework/model/quantized/module_names.h"
#include "framework/text/json_file.h"
#include "tests/framework/model/quantized/quantized_folder.h"

namespace foretoken::test {
namespace {

using nlohmann::json;

// All sentences about config.json have a remedy.
testing::AssertionResult names(const std::string& sentence, const std::string& words) {
  return says(sentence, "config.json: 'quantization_config.", words, "; ");
}

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
      {"gptq", {{"dynamic", {{"-:.*down.*", json::object()}}}}, "settings of single modules are not supported"},
      {"awq", {{"dynamic", {{"-:.*down.*", json::object()}}}}, "settings of single modules are not supported"},
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
      {"fp8-blocks", {{"scale_fmt", "ue8m0"}}, "scale_fmt' is \"ue8m0\""},
      {"fp8-blocks", {{"weight_block_size", {128}}}, "weight_block_size"},
      {"fp8-blocks", {{"weight_block_size", {128, 0}}}, "weight_block_size"},
      {"ct-int4", {{"kv_cache_scheme", {{"num_bits", 8}}}}, "choose the type of the cache by the option kv_dtype"},
      {"fp8-blocks", {{"kv_cache_scheme", "static"}}, "choose the type of the cache by the option kv_dtype"},
      {"ct-int4", {{"sparsity_config", {{"format", "sparse-24-bitmask"}}}}, "sparsity_config"},
      {"ct-int4", {{"transform_config", {{"config_groups", 1}}}}, "transform_config"},
      {"ct-int4", {{"moe_sparsity_config", {{"format", "dense"}}}}, "moe_sparsity_config"},
      {"ct-int4", {{"quantization_status", "calibration"}}, "quantization_status' is \"calibration\""},
      {"ct-int4", {{"config_groups", json::object()}}, "config_groups"},
  };
  for (const auto& [name, settings, words] : cases)
    EXPECT_TRUE(names(refusal_of_settings(name, settings), words)) << settings;
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
      {"ct-fp8-blocks", none, {{"block_structure", {32, 0}}}, "block_structure"},
      {"ct-mxfp4", none, {{"group_size", 16}}, "group_size"},
      {"ct-mxfp4", none, {{"num_bits", 8}}, "the format has 4"},
      {"ct-int8", none, {{"num_bits", 3}}, "num_bits' is 3"},
  };
  for (const auto& [name, group, weights, words] : cases)
    EXPECT_TRUE(names(of_group(name, group, weights), words)) << group << weights;
  EXPECT_EQ(of_group("ct-int4", none, {{"actorder", "weight"}}), "");
}

// As early checkpoints of compressed-tensors have it, whose tensors are compressed all the same.
TEST(QuantizationConfig, AFrozenCheckpointIsRead) {
  for (const char* format : {"float-quantized", "naive-quantized"})
    EXPECT_EQ(refusal_of_settings("ct-fp8-static", {{"quantization_status", "frozen"}, {"format", format}}), "");
  const auto dense = [](ModelFolder& m) {
    m.config["quantization_config"]["quantization_status"] = "frozen";
    m.tensors.at(kUp + ".weight") = resized(Tensor::host({64, 64}, DType::bf16), {64, 64});
  };
  EXPECT_TRUE(says(refusal("ct-fp8-static", dense), kUp + ".weight' is BF16", "requires F8_E4M3"));
}

// Of 64 inputs: 6 of 5 bits, or 5 of 6, in each of 11 or 13 words, where later releases fill 10 or 12.
TEST(QuantizationConfig, WordsOfAnEarlierLayoutAreNamed) {
  for (const auto& [bits, words] : {std::pair(5, 11), std::pair(6, 13)}) {
    const auto of = [bits = bits](std::int64_t columns) {
      return refusal("ct-int4", [&](ModelFolder& m) {
        m.config["quantization_config"]["config_groups"]["group_0"]["weights"]["num_bits"] = bits;
        for (auto& [name, t] : m.tensors)
          if (name.ends_with(".weight_packed")) t = resized(t, {t.dim(0), columns});
      });
    };
    EXPECT_EQ(of(words - 1), "");
    EXPECT_TRUE(says(of(words), "proj.weight_packed' is [", "the layout of early releases of compressed-tensors",
                     std::to_string(32 / bits) + " integers of " + std::to_string(bits) + " bits a word",
                     "quantize anew with a later release"));
    EXPECT_TRUE(says(of(words + 1), "weight_packed' is I32", "belongs to another config.json"));
  }
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
  EXPECT_TRUE(says(targets({"re:.*q_proj"}, {"re:.*mlp.*"}), "config.json: the matrix 'model.layers.0.self_attn.",
                   "is quantized, but no group of quantization_config names it; correct the targets"));
  EXPECT_TRUE(says(targets({"Linear"}, {"Linear"}), "config.json: the matrix '",
                   "but several groups of quantization_config name it equally exactly; correct the targets"));
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

}  // namespace
}  // namespace foretoken::test
