// Tensors of quantized matrices that are not what quantization_config says: one sentence with the tensor and a remedy.
#include "framework/model/quantized/quantization.h"
#include "tests/framework/model/quantized/quantized_folder.h"

namespace foretoken::test {
namespace {

struct Format {
  std::string name, scales, codes;
  std::string dtype = "auto";
};
const std::vector<Format> kFormats = {{"gptq", "scales", "qweight"},
                                      {"awq", "scales", "qweight"},
                                      {"bnb-nf4", "weight.absmax", "weight"},
                                      {"bnb-nf4-double", "weight.nested_absmax", "weight"},
                                      {"bnb-int8", "SCB", "weight", "int8"},
                                      {"fp8-blocks", "weight_scale_inv", "weight", "fp8_block"},
                                      {"fp8-tensor", "weight_scale", "weight", "fp8_tensor"},
                                      {"ct-int4", "weight_scale", "weight_packed"},
                                      {"ct-int8", "weight_scale", "weight", "int8"},
                                      {"ct-fp8-blocks", "weight_scale", "weight"}};

class Damaged : public testing::TestWithParam<Format> {
 protected:
  static std::string tensor(const std::string& part) { return "tensor '" + kUp + "." + part + "'"; }
};

TEST_P(Damaged, IsNotOtherwise) {
  EXPECT_EQ(refusal(GetParam().name, [](ModelFolder&) {}, GetParam().dtype), "");
}

TEST_P(Damaged, ScalesThatAreNoNumbers) {
  for (const float x : {NAN, INFINITY})
    EXPECT_TRUE(
        says(refusal(
                 GetParam().name, [&](ModelFolder& m) { set_first(m.tensors.at(kUp + "." + GetParam().scales), x); },
                 GetParam().dtype),
             tensor(GetParam().scales), "holds a NaN or an infinity", "download the checkpoint again"));
}

TEST_P(Damaged, ScalesOfAnotherShape) {
  const auto longer = [&](ModelFolder& m) {
    Tensor& t = m.tensors.at(kUp + "." + GetParam().scales);
    t = t.rank() == 0 ? resized(t, {2}) : resized(t, t.shape().with_rows(t.dim(0) + 1));
  };
  EXPECT_TRUE(says(refusal(GetParam().name, longer, GetParam().dtype), tensor(GetParam().scales), "requires F32",
                   "download both again"));
}

TEST_P(Damaged, ScalesOfAnotherType) {
  const auto integers = [&](ModelFolder& m) {
    Tensor& t = m.tensors.at(kUp + "." + GetParam().scales);
    t = resized(Tensor::host(t.shape(), DType::i32), t.shape());
  };
  EXPECT_TRUE(says(refusal(GetParam().name, integers, GetParam().dtype), tensor(GetParam().scales), "is I32"));
}

TEST_P(Damaged, CodesThatAreShortByOneRow) {
  const auto shorter = [&](ModelFolder& m) {
    Tensor& t = m.tensors.at(kUp + "." + GetParam().codes);
    t = resized(t, t.shape().with_rows(t.dim(0) - 1));
  };
  EXPECT_TRUE(says(refusal(GetParam().name, shorter, GetParam().dtype), tensor(GetParam().codes), "requires",
                   "download both again"));
}

TEST_P(Damaged, ScalesThatAreMissing) {
  const std::string sentence = refusal(
      GetParam().name, [&](ModelFolder& m) { m.tensors.erase(kUp + "." + GetParam().scales); }, GetParam().dtype);
  EXPECT_TRUE(says(sentence, kUp + ".", "download")) << GetParam().name;
}

INSTANTIATE_TEST_SUITE_P(Formats, Damaged, testing::ValuesIn(kFormats), [](const auto& info) {
  std::string name = info.param.name;
  std::ranges::replace(name, '-', '_');
  return name;
});

TEST(DamagedGptq, GroupsOfAnOrderThatAreNone) {
  const auto index = [](std::int32_t input, std::int32_t group) {
    return refusal("gptq-act-order",
                   [=](ModelFolder& m) { m.tensors.at(kUp + ".g_idx").data<std::int32_t>()[input] = group; });
  };
  EXPECT_TRUE(says(index(3, 4), "tensor '" + kUp + ".g_idx' names group 4 of 4", "download"));
  EXPECT_TRUE(says(index(3, -1), "g_idx' names group -1"));
  const ModelFolder m("gptq-act-order", "quantized");
  const std::int32_t first = m.tensors.at(kUp + ".g_idx").data<std::int32_t>()[0];
  EXPECT_TRUE(says(index(0, (first + 1) % 4), "g_idx' gives group", "inputs in place of 16"));
  const auto of = m.tensors.at(kUp + ".g_idx").values<std::int32_t>();
  const auto other = std::int32_t(std::ranges::find(of, 2) - of.begin());
  EXPECT_TRUE(says(index(other, 0), "g_idx' gives group 0 17 inputs in place of 16")) << "the first that is wrong";
  EXPECT_TRUE(says(index(other, 3), "g_idx' gives group 2 15 inputs in place of 16"));
}

TEST(DamagedGptq, AnOrderThatIsMissing) {
  EXPECT_TRUE(says(refusal("gptq-act-order", [](ModelFolder& m) { m.tensors.erase(kUp + ".g_idx"); }),
                   "g_idx' is missing, which desc_act"));
  EXPECT_EQ(refusal("gptq", [](ModelFolder& m) { m.tensors.erase(kUp + ".g_idx"); }), "");
}

// Readers of version 1 disagree about a stored zero point of 15.
TEST(DamagedGptq, AZeroPointBeyondTheCodes) {
  const auto all_ones = [](ModelFolder& m) { m.tensors.at(kUp + ".qzeros").data<std::int32_t>()[1] = -1; };
  EXPECT_TRUE(
      says(refusal("gptq", all_ones), "tensor '" + kUp + ".qzeros' holds the zero point 16 of output 8", "gptq_v2"));
  EXPECT_EQ(refusal("gptq-v2", all_ones), "");
  EXPECT_EQ(refusal("gptq-wrapped", all_ones), "");
}

TEST(DamagedGptq, BiasesThatTheModelDoesNotUse) {
  EXPECT_TRUE(says(refusal("gptq", [](ModelFolder& m) { m.tensors.at(kUp + ".bias").data<std::uint16_t>()[5] = 1; }),
                   "holds 1 tensor that a LlamaForCausalLM of 1 layer does not use: " + kUp + ".bias"));
}

TEST(DamagedCompressed, ZeroPointsOfOneByte) {
  const auto bytes = [](std::int8_t least, std::int8_t last) {
    return refusal("ct-int4-asymmetric", [=](ModelFolder& m) {
      m.add(kUp + ".weight_zero_point", {64, 4}, DType::i8);
      auto* zeros = m.tensors.at(kUp + ".weight_zero_point").data<std::int8_t>();
      zeros[0] = least, zeros[255] = last;
    });
  };
  EXPECT_EQ(bytes(-8, 7), "");
  EXPECT_TRUE(says(bytes(-8, 8), "weight_zero_point' holds 8, beyond integers of 4 bits", "download"));
  EXPECT_TRUE(says(bytes(-9, 7), "holds -9"));
}

TEST(DamagedCompressed, ZeroPointsThatAreMissing) {
  EXPECT_TRUE(says(refusal("ct-int4-asymmetric", [](ModelFolder& m) { m.tensors.erase(kUp + ".weight_zero_point"); }),
                   "weight_zero_point' is missing, though quantization_config is not symmetric"));
}

TEST(DamagedCompressed, AnotherShapeThanConfigJson) {
  EXPECT_TRUE(
      says(refusal("ct-int4", [](ModelFolder& m) { m.tensors.at(kUp + ".weight_shape").data<std::int64_t>()[1] = 63; }),
           "weight_shape' says [64, 63], but config.json requires [64, 64]"));
}

TEST(DamagedFloats, NanAmongCodes) {
  for (const std::string name : {"fp8-tensor", "ct-fp8", "ct-fp8-tensor"})
    for (const std::uint8_t code : {0x7f, 0xff}) {
      const auto last = [&](ModelFolder& m) {
        Tensor& t = m.tensors.at(kUp + ".weight");
        static_cast<std::uint8_t*>(t.raw())[t.bytes() - 1] = code;
      };
      EXPECT_TRUE(says(refusal(name, last), "tensor '" + kUp + ".weight' holds a NaN", "download")) << name;
    }
}

TEST(DamagedFloats, ScalesThatMakeInfiniteWeights) {
  const auto large = [](float x) {
    return refusal("fp8-tensor", [x](ModelFolder& m) { set_first(m.tensors.at(kUp + ".weight_scale"), x); });
  };
  EXPECT_EQ(large(7.5e35f), "");  // times 448, which bf16 still has
  for (const float x : {7.7e35f, -7.7e35f, 8e35f, 1e37f})
    EXPECT_TRUE(says(large(x), kUp + ".weight_scale' holds a number so large that weights become infinite")) << x;
}

TEST(DamagedMicroscaling, BytesAndScales) {
  for (const auto& [name, codes, scales] : {std::tuple("mxfp4", ".weight_blocks", ".weight_scales"),
                                            std::tuple("ct-mxfp4", ".weight_packed", ".weight_scale")}) {
    EXPECT_EQ(refusal(name, [](ModelFolder&) {}), "");
    EXPECT_TRUE(says(refusal(name,
                             [&](ModelFolder& m) {
                               Tensor& t = m.tensors.at(kUp + codes);
                               t = resized(t, t.shape().with_rows(63));
                             }),
                     kUp + codes, "requires U8"));
    EXPECT_TRUE(says(refusal(name, [&](ModelFolder& m) { m.tensors.at(kUp + scales).data<std::uint8_t>()[9] = 255; }),
                     kUp + scales + "' holds 255, which means NaN"));
    const auto exponent = [&](int byte) {
      return refusal(name,
                     [&](ModelFolder& m) { m.tensors.at(kUp + scales).data<std::uint8_t>()[9] = std::uint8_t(byte); });
    };
    EXPECT_EQ(exponent(252), "");
    for (const int byte : {253, 254})
      EXPECT_TRUE(says(exponent(byte), kUp + scales + "' holds a number so large that weights become infinite"))
          << byte;
  }
}

TEST(DamagedBitsandbytes, AnotherTableOfNumbers) {
  EXPECT_TRUE(says(
      refusal("bnb-nf4", [](ModelFolder& m) { m.tensors.at(kUp + ".weight.quant_map").data<float>()[3] += 0.01f; }),
      "weight.quant_map' is not the table of nf4"));
}

TEST(DamagedBitsandbytes, StateThatContradicts) {
  const std::string part = kUp + ".weight.quant_state.bitsandbytes__nf4";
  const auto state = [&](const std::string& text) {
    return refusal("bnb-nf4", [&](ModelFolder& m) { m.tensors[part] = Tensor::host_copy<char>(text, DType::u8); });
  };
  EXPECT_EQ(state(R"({"blocksize": 64, "shape": [64, 64]})"), "");
  EXPECT_TRUE(says(state("no json"), part));
  EXPECT_TRUE(says(state(R"({"blocksize": 64, "shape": [64, 63]})"), part, "'shape' is [64,63]", "[64, 64]"));
  EXPECT_TRUE(says(state(R"({"blocksize": 0, "shape": [64, 64]})"), "'blocksize' is 0"));
  EXPECT_TRUE(
      says(state(R"({"blocksize": 32, "shape": [64, 64]})"), "weight.absmax", "requires F32, BF16 or F16 [128]"));
  EXPECT_TRUE(says(refusal("bnb-nf4", [&](ModelFolder& m) { m.tensors.erase(part); }), kUp + ".weight", "download"));
}

// Each by the greatest number of its own format.
TEST(DamagedBitsandbytes, ScalesThatMakeInfiniteWeights) {
  const auto large = [](const std::string& name, const std::string& part, float x) {
    return refusal(name, [&](ModelFolder& m) { set_first(m.tensors.at(kUp + part), x); });
  };
  for (const float x : {1e37f, 3.38e38f}) EXPECT_EQ(large("bnb-nf4", ".weight.absmax", x), "") << x;
  EXPECT_TRUE(says(large("bnb-nf4", ".weight.absmax", 3.4e38f), kUp + ".weight.absmax' holds a number so large"));
  EXPECT_EQ(large("bnb-int8", ".SCB", 3.35e38f), "");  // times 128 / 127
  EXPECT_TRUE(says(large("bnb-int8", ".SCB", 3.38e38f), kUp + ".SCB' holds a number so large"));
}

TEST(DamagedBitsandbytes, DoubleQuantizedScalesThatMakeInfiniteWeights) {
  const auto offset = [](const char* number) {
    return refusal("bnb-nf4-double", [&](ModelFolder& m) {
      Tensor& state = m.tensors.at(kUp + ".weight.quant_state.bitsandbytes__nf4");
      std::string text(state.data<char>(), std::size_t(state.bytes()));
      const std::size_t begin = text.find(':', text.find("\"nested_offset\"")) + 1;
      text.replace(begin, text.find_first_of(",}", begin) - begin, number);
      state = Tensor::host_copy<char>(text, DType::u8);
    });
  };
  EXPECT_EQ(offset("1e38"), "");
  for (const char* number : {"1e39", "-1e39", "null"})
    EXPECT_TRUE(says(offset(number), "'nested_offset' is ", "must be a number that fits 32 bits", "download"))
        << number;
  EXPECT_TRUE(says(offset("3.4e38"), kUp + ".weight.absmax' holds a number so large that weights become infinite"));
  const auto large_parts = [](ModelFolder& m) {
    std::ranges::fill(m.tensors.at(kUp + ".weight.nested_quant_map").values<float>(), 1e30f);
    set_first(m.tensors.at(kUp + ".weight.nested_absmax"), 1e30f);
  };
  EXPECT_TRUE(says(refusal("bnb-nf4-double", large_parts), kUp + ".weight.absmax' holds a number so large"));
}

TEST(Damaged, PartsOfNoModule) {
  for (const char* name : {"gptq", "awq"})
    EXPECT_TRUE(
        says(refusal(name, [](ModelFolder& m) { m.add("model.layers.7.mlp.up_proj.qweight", {8, 64}, DType::i32); }),
             "holds 1 tensor that a LlamaForCausalLM of 1 layer does not use: model.layers.7.mlp.up_proj.weight"));
  EXPECT_TRUE(says(refusal("gptq", [](ModelFolder& m) { m.add("model.norm.scales", {2, 64}, DType::f16); }),
                   "does not use: model.norm.scales"));
}

}  // namespace
}  // namespace foretoken::test
