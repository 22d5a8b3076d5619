// Settings and tensors that change how a checkpoint is read: each of them is read, and what contradicts it is refused.
#include "framework/model/quantized/quantization.h"
#include "tests/framework/model/quantized/quantized_folder.h"

namespace foretoken::test {
namespace {

using nlohmann::json;

json& settings_of(ModelFolder& m) { return m.config["quantization_config"]; }

// A quantized matrix becomes dense: MODULE.weight in place of all its parts.
void make_dense(ModelFolder& m, const std::string& module, const Shape& shape) {
  std::erase_if(m.tensors, [&](const auto& t) { return t.first.starts_with(module + "."); });
  m.add(module + ".weight", shape, DType::bf16);
}

// The weight of up_proj as the folder has it.
Weight up_of(const ModelFolder& m) {
  m.write();
  const auto open = open_model(m.folder().path().string(), [](const std::string& path) { return path; });
  return open.tensors->matrix(kUp, {64, 64});
}

bool same_bits(const Weight& a, const Weight& b) {
  const Tensor x = dequantized(a).values, y = dequantized(b).values;
  return std::memcmp(x.raw(), y.raw(), std::size_t(x.bytes())) == 0;
}

TEST(Covered, AMatrixThatIsDenseIsRefused) {
  for (const char* name : {"gptq", "awq", "bnb-nf4", "bnb-int8", "fp8-tensor", "ct-int4", "ct-int8", "mxfp4"})
    EXPECT_TRUE(says(refusal(name, [](ModelFolder& m) { make_dense(m, kUp, {64, 64}); }),
                     "tensor '" + kUp + ".weight' is dense (BF16)", "quantization_config", "quantized '" + kUp + "'",
                     "download both again"))
        << name;
}

TEST(Covered, ADenseModelWithAQuantizationConfigIsRefused) {
  ModelFolder m("llama2");
  m.config["quantization_config"] = {{"quant_method", "awq"}, {"bits", 4}, {"group_size", 32}};
  m.write();
  const auto load = [&](const std::string& dtype, const std::string& inflate) {
    return sentence_of([&] {
      ModelChoice choice(m.folder().path().string());
      choice.dtype = dtype, choice.inflate = inflate;
      const OpenModel open = open_model(choice, [](const std::string& path) { return path; });
      const auto backend = make_reference_backend();
      const Transformer model(*backend, open.config, *open.tensors, "m", 0, {.dtype = open.dtype});
    });
  };
  for (const char* dtype : {"auto", "bf16", "int4_asymmetric"})
    EXPECT_TRUE(says(load(dtype, ""), "tensor 'model.layers.0.self_attn.q_proj.weight' is dense (", "awq quantized"))
        << dtype;
}

// What the configuration excludes, or no group names, is dense by right; so are embeddings and a head of which it says
// nothing.
TEST(Covered, WhatTheConfigurationLeavesDenseIsRead) {
  const auto dense_up = [](const std::string& name, const json& settings) {
    return refusal(name, [&](ModelFolder& m) {
      make_dense(m, kUp, {64, 64});
      settings_of(m).update(settings);
    });
  };
  EXPECT_EQ(dense_up("awq", {{"modules_to_not_convert", {"mlp.up_proj"}}}), "");
  EXPECT_EQ(dense_up("bnb-nf4", {{"llm_int8_skip_modules", {"up_proj"}}}), "");
  EXPECT_EQ(dense_up("fp8-tensor", {{"ignored_layers", {kUp}}}), "");
  EXPECT_EQ(dense_up("ct-int4", {{"ignore", {"lm_head", kUp}}}), "");
  EXPECT_TRUE(says(refusal("ct-two-groups",
                           [](ModelFolder& m) { settings_of(m)["config_groups"]["mlp"]["targets"] = {"re:.*mlp.*"}; }),
                   kLayer + "mlp.down_proj.weight' is dense"));
  EXPECT_EQ(refusal_of_settings("awq", {{"modules_to_not_convert", nullptr}}), "");
  EXPECT_EQ(refusal_of_settings("ct-int4", {{"ignore", json::array()}}), "");
}

// Transformers' list of what GPTQ quantized, flat or in the order of its passes.
TEST(Covered, GptqsListOfQuantizedModules) {
  const auto dense_up = [](const json& modules) {
    return refusal("gptq", [&](ModelFolder& m) {
      make_dense(m, kUp, {64, 64});
      settings_of(m)["modules_in_block_to_quantize"] = modules;
    });
  };
  EXPECT_EQ(dense_up(json::array({{"self_attn.q_proj", "self_attn.k_proj"}, {"mlp.down_proj"}})), "");
  EXPECT_EQ(dense_up({"self_attn.q_proj"}), "");
  EXPECT_TRUE(says(dense_up(json::array({{"self_attn.q_proj"}, {"mlp.up_proj"}})), kUp + ".weight' is dense"));
  EXPECT_TRUE(says(dense_up({1}), "modules_in_block_to_quantize", "names of modules"));
}

TEST(Read, ZeroPointsOfSymmetricIntegers) {
  const auto with = [](std::int8_t zero) {
    return refusal("ct-int8", [=](ModelFolder& m) {
      m.add(kUp + ".weight_zero_point", {64, 1}, DType::i8);
      m.tensors.at(kUp + ".weight_zero_point").data<std::int8_t>()[7] = zero;
    });
  };
  EXPECT_EQ(with(0), "");
  EXPECT_TRUE(says(with(3), "tensor '" + kUp + ".weight_zero_point' holds zero points other than 0", "is symmetric",
                   "download both again"));
  EXPECT_TRUE(
      says(refusal("ct-int4-asymmetric",
                   [](ModelFolder& m) { settings_of(m)["config_groups"]["group_0"]["weights"]["symmetric"] = true; }),
           "weight_zero_point' holds zero points other than 0"));
}

TEST(Read, TheLayoutOfAwqUnderEachOfItsNames) {
  for (const char* key : {"version", "checkpoint_format", "format"}) {
    const auto with = [&](const char* layout) {
      return refusal("awq", [&](ModelFolder& m) {
        settings_of(m).erase("version");
        settings_of(m)[key] = layout;
      });
    };
    EXPECT_EQ(with("GEMM"), "") << key;
    EXPECT_TRUE(says(with("gemv"), std::string(key) + "' is \"gemv\", but the supported one is \"gemm\"")) << key;
  }
  EXPECT_TRUE(says(refusal_of_settings("awq", {{"checkpoint_format", "gemv"}}), "checkpoint_format' is \"gemv\""));
}

TEST(Read, TheGroupOfAwqUnderBothOfItsNames) {
  const auto with = [](const json& settings) {
    return refusal("awq", [&](ModelFolder& m) {
      settings_of(m).erase("group_size");
      settings_of(m).update(settings);
    });
  };
  EXPECT_EQ(with({{"q_group_size", 32}}), "");
  EXPECT_TRUE(says(with({{"q_group_size", 16}}), "qzeros' is I32 [2, "));
}

TEST(Read, TheLayoutOfLlmInt8) {
  const auto with = [](int layout) {
    return refusal("bnb-int8", [=](ModelFolder& m) {
      m.tensors.at(kUp + ".weight_format").data<std::uint8_t>()[0] = std::uint8_t(layout);
    });
  };
  EXPECT_EQ(with(0), "");
  EXPECT_TRUE(says(with(1), "tensor '" + kUp + ".weight_format' must be 0 (row by row)", "save the model again"));
}

TEST(Read, FilesOfBitsandbytesThatDoNotNameIt) {
  for (const char* name : {"bnb-nf4", "bnb-int8"})
    EXPECT_EQ(refusal(name, [](ModelFolder& m) { settings_of(m).erase("quant_method"); }), "") << name;
  EXPECT_TRUE(says(refusal("gptq", [](ModelFolder& m) { settings_of(m).erase("quant_method"); }), "quant_method"));
}

TEST(Read, LayersThatFp8Ignores) {
  EXPECT_TRUE(says(refusal_of_settings("fp8-tensor", {{"ignored_layers", {kUp}}}), "is of a quantized matrix",
                   "says that '" + kUp + "' is dense"));
}

TEST(Read, BothScalesOfFp8) {
  const auto both = [](ModelFolder& m) { m.tensors[kUp + ".weight_scale_inv"] = m.tensors.at(kUp + ".weight_scale"); };
  EXPECT_TRUE(says(refusal("fp8-tensor", both), "tensor '" + kUp + ".weight_scale_inv' stands beside 'weight_scale'",
                   "remove one of them"));
}

TEST(Read, TheScaleOfInputsUnderBothOfItsNames) {
  ModelFolder m("fp8-tensor", "quantized");
  const float scale = up_of(m).input_scale;
  EXPECT_GT(scale, 0);
  m.tensors[kUp + ".activation_scale"] = host_copy(m.tensors.at(kUp + ".input_scale"));
  m.tensors.erase(kUp + ".input_scale");
  m.tensors.at(kUp + ".activation_scale").data<float>()[0] *= 2;
  EXPECT_EQ(up_of(m).input_scale, 2 * scale);
}

// Early files say "naive-quantized" of integers and of floats.
TEST(Read, NaiveQuantizedByTheTypeOfItsNumbers) {
  for (const char* name : {"ct-int8", "ct-fp8", "ct-fp8-tensor"}) {
    ModelFolder m(name, "quantized");
    const Weight before = up_of(m);
    settings_of(m)["format"] = "naive-quantized";
    settings_of(m)["config_groups"]["group_0"]["format"] = "naive-quantized";
    ASSERT_EQ(sentence_of([&] { up_of(m); }), "") << name;
    const Weight naive = up_of(m);
    EXPECT_EQ(naive.format, before.format) << name;
    EXPECT_TRUE(same_bits(naive, before)) << name;
  }
}

// Only GPTQModel wraps a stored zero point of 15 to 0.
TEST(Read, TheQuantizerOfGptq) {
  const auto by = [](const json& quantizer) {
    return refusal("gptq", [&](ModelFolder& m) {
      m.tensors.at(kUp + ".qzeros").data<std::int32_t>()[1] = -1;
      settings_of(m)["meta"] = {{"quantizer", quantizer}};
    });
  };
  EXPECT_EQ(by("gptqmodel:1.4.0"), "");
  EXPECT_EQ(by({"optimum:1.0", "gptqmodel:1.4.0"}), "");
  for (const json& other : {json("gptq:0.7.1"), json("gptq_for_llama:1.0"), json({"gptq"})})
    EXPECT_TRUE(says(by(other), "holds the zero point 16")) << other;
}

// Whatever exponent a checkpoint has for it, so that the weights of a layer are stored alike.
TEST(Read, AGroupOfZerosInMxfp4HasAScaleOfZero) {
  ModelFolder m("mxfp4", "quantized");
  Tensor codes = m.tensors.at(kUp + ".weight_blocks");
  std::fill_n(codes.data<std::uint8_t>(), 16, std::uint8_t(0x08));  // 0 and -0
  const Weight up = up_of(m);
  EXPECT_EQ(up.scales.data<float>()[0], 0);
  EXPECT_GT(up.scales.data<float>()[1], 0);
  EXPECT_TRUE(std::signbit(float(dequantized(up).values.data<bf16>()[0])) !=
              std::signbit(float(dequantized(up).values.data<bf16>()[1])));
}

// Of two groups that round inputs, the one that is not supported is named, first or last.
TEST(Read, RoundedInputsOfEveryGroup) {
  const json supported = {{"num_bits", 8}, {"type", "int"}, {"dynamic", true}, {"strategy", "token"}};
  json other = supported;
  other["strategy"] = "tensor";
  const auto inputs = [](const json& attention, const json& mlp) {
    return refusal("ct-two-groups", [&](ModelFolder& m) {
      json& groups = settings_of(m)["config_groups"];
      groups["attention"]["input_activations"] = attention, groups["mlp"]["input_activations"] = mlp;
    });
  };
  EXPECT_EQ(inputs(supported, supported), "");
  for (const auto& [attention, mlp] : {std::pair(other, supported), std::pair(supported, other)})
    EXPECT_TRUE(says(inputs(attention, mlp), "a scale for each tensor), which is not supported"));
}

}  // namespace
}  // namespace foretoken::test
