// Experts that a checkpoint has as one tensor of all of them (gpt-oss): dense ones give the bits of MXFP4 ones, and
// what is wrong is named; tensors of a language model beside a vision tower.
#include <gtest/gtest.h>

#include "framework/model/model_files.h"
#include "kernels/formats/format.h"
#include "kernels/reference/reference_backend.h"
#include "tests/framework/model/golden.h"
#include "tests/framework/model/model_folder.h"
#include "tests/support/sentence.h"

namespace foretoken::test {
namespace {

constexpr int kAll = 4, kSide = 32;  // experts of the model; numbers of a side of each of its matrices

std::string expert_name(int expert, const std::string& matrix, const std::string& end) {
  return "model.layers.1.mlp.experts." + std::to_string(expert) + "." + matrix + "_proj." + end;
}

class GptOssFolder : public testing::Test {
 protected:
  std::string refused(const std::string& name, const Shape& shape = {kSide, kSide}) {
    return sentence_of([&] { (void)ModelFiles::open(folder.write())->tensors()->tensor(name, shape); });
  }
  std::string refused_whole() {
    return sentence_of([&] {
      ReferenceBackend backend;
      (void)golden_model(backend, folder.write(), {});
    });
  }
  // The same experts, dense: [experts, inputs, outputs], those of the gate and of up in turns.
  void make_dense() {
    const auto coded = ModelFiles::open(folder.write())->tensors();
    Tensors dense;
    for (const std::string layer : {"0", "1"})
      for (const std::string stack : {"gate_up_proj", "down_proj"}) {
        const std::string module = "model.layers." + layer + ".mlp.experts.";
        const int parts = stack == "down_proj" ? 1 : 2;
        const Tensor all = Tensor::host({kAll, kSide, std::int64_t(parts) * kSide}, DType::f32);
        for (int e = 0; e < kAll; ++e)
          for (int part = 0; part < parts; ++part) {
            const std::string matrix = parts == 1 ? "down_proj" : part == 0 ? "gate_proj" : "up_proj";
            const Tensor own = coded->tensor(module + std::to_string(e) + "." + matrix + ".weight", {kSide, kSide});
            for (int o = 0; o < kSide; ++o)
              for (int i = 0; i < kSide; ++i)
                all.data<float>()[(e * kSide + i) * parts * kSide + o * parts + part] = float(own.row<bf16>(o)[i]);
          }
        dense[module + stack] = all;
      }
    for (auto& [name, tensor] : dense) {
      folder.tensors.erase(name + "_blocks"), folder.tensors.erase(name + "_scales");
      folder.tensors[name] = tensor;
    }
    folder.config.erase("quantization_config");
  }

  ModelFolder folder{"gpt_oss"};
};

TEST_F(GptOssFolder, MatricesOfExpertsAreCodesAsStored) {
  const auto tensors = ModelFiles::open(folder.write())->tensors();
  const Tensor blocks = folder.tensors.at("model.layers.1.mlp.experts.gate_up_proj_blocks"),
               bias = folder.tensors.at("model.layers.1.mlp.experts.gate_up_proj_bias");
  for (int e = 0; e < kAll; ++e)
    for (const bool up : {false, true}) {
      const std::string matrix = up ? "up" : "gate";
      const Weight w =
          tensors->matrix("model.layers.1.mlp.experts." + std::to_string(e) + "." + matrix + "_proj", {kSide, kSide});
      ASSERT_NE(w.format, nullptr);
      EXPECT_EQ(std::tuple(w.format->name(), w.group), std::tuple("mxfp4", 32));
      const Tensor biases = tensors->tensor(expert_name(e, matrix, "bias"), {kSide});
      for (int o = 0; o < kSide; ++o) {
        const std::int64_t row = std::int64_t(e) * 2 * kSide + 2 * o + up;
        for (int i = 0; i < kSide; ++i)
          ASSERT_EQ(w.values.row<std::uint8_t>(o)[i],
                    blocks.data<std::uint8_t>()[row * kSide / 2 + i / 2] >> (i % 2 * 4) & 15);
        ASSERT_EQ(biases.data<float>()[o], float(bias.data<bf16>()[row]));
      }
    }
}

TEST_F(GptOssFolder, DenseExpertsAreTheSameModel) {
  ReferenceBackend backend;
  const std::vector<Token> tokens{5, 6, 7, 90};
  Transformer coded = golden_model(backend, folder.write(), {.dtype = "f32"});
  const Tensor want = Chain(backend, coded, 4).feed(tokens);
  make_dense();
  Transformer dense = golden_model(backend, folder.write(), {.dtype = "f32"});
  EXPECT_EQ(dense.info().weight_bytes, coded.info().weight_bytes);
  const Tensor logits = Chain(backend, dense, 4).feed(tokens);
  EXPECT_EQ(std::memcmp(logits.raw(), want.raw(), std::size_t(want.bytes())), 0);
}

TEST_F(GptOssFolder, WhatIsWrongIsNamed) {
  EXPECT_EQ(refused_whole(), "");
  EXPECT_TRUE(says(refused(expert_name(4, "gate", "weight")), "model.layers.1.mlp.experts.4.gate_proj.weight"));
  EXPECT_TRUE(says(refused(expert_name(0, "gate", "weight"), {16, kSide}), "gate_up_proj_blocks", "[4, 64, 1, 16]",
                   "[4, 32, 1, 16]"));
  const std::string scales = "model.layers.1.mlp.experts.down_proj_scales";
  folder.tensors.at(scales).data<std::uint8_t>()[kSide] = 255;  // of the second expert
  EXPECT_EQ(refused(expert_name(0, "down", "weight")), "");
  EXPECT_TRUE(says(refused(expert_name(1, "down", "weight")), scales, "holds 255, which means NaN"));
  folder.tensors.erase(scales);
  EXPECT_TRUE(says(refused_whole(), "down_proj_scales"));
  folder.tensors.erase("model.layers.1.mlp.experts.down_proj_blocks");
  EXPECT_TRUE(says(refused_whole(), "model.layers.1.mlp.experts.down_proj"));
}

TEST_F(GptOssFolder, OtherTensorsAreNoticed) {
  folder.add("model.layers.1.mlp.experts.gate_proj_extra", {3});
  EXPECT_TRUE(says(refused_whole(), "does not use", "gate_proj_extra"));
}

// As Transformers 5 nests it in memory, and with a tensor that belongs to neither part.
TEST(LanguagePart, IsFoundUnderBothNames) {
  ModelFolder folder("gemma3_vision");
  ReferenceBackend backend;
  const std::vector<Token> tokens{5, 6, 7};
  Transformer model = golden_model(backend, folder.write(), {.dtype = "f32"});
  const Tensor want = Chain(backend, model, 3).feed(tokens);
  Tensors renamed;
  for (const auto& [name, tensor] : folder.tensors)
    renamed[name.starts_with("language_model.model.") ? "model.language_model." + name.substr(21) : "model." + name] =
        tensor;
  folder.tensors = renamed;
  Transformer nested = golden_model(backend, folder.write(), {.dtype = "f32"});
  const Tensor logits = Chain(backend, nested, 3).feed(tokens);
  EXPECT_EQ(std::memcmp(logits.raw(), want.raw(), std::size_t(want.bytes())), 0);
  folder.add("audio_tower.weight", {3});
  EXPECT_TRUE(says(sentence_of([&] { (void)golden_model(backend, folder.write(), {}); }), "does not use",
                   "audio_tower.weight"));
}

}  // namespace
}  // namespace foretoken::test
