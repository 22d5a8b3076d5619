// Models whose matrices are stored as codes, in GGUF files: `dtype` keeps the codes or gives the dense copy, and is
// never a label of what did not run; codes stay codes where matrices of one product have different formats.
#include <gtest/gtest.h>

#include "framework/model/model_files.h"
#include "framework/model/model_tensors.h"
#include "framework/model/open_model.h"
#include "kernels/formats/activations/activation_format.h"
#include "tests/framework/model/chain.h"
#include "tests/framework/model/gguf_bytes.h"
#include "tests/framework/model/golden.h"
#include "tests/framework/text/temporary_folder.h"

namespace foretoken::test {
namespace {

std::string gguf(const std::string& name) { return (kRoot / "tests/data/gguf" / name).string(); }

OpenModel opened(const std::string& path, const std::string& dtype, const std::string& inflate = "") {
  ModelChoice choice(path);
  choice.dtype = dtype, choice.inflate = inflate;
  return open_model(choice, [](const std::string& p) { return p; });
}

// Of the model as a run loads it; "" where it loads.
std::string refusal(const std::string& path, const std::string& dtype, const std::string& head = "auto") {
  return sentence_of([&] {
    const OpenModel open = opened(path, dtype);
    const auto backend = make_reference_backend();
    const Transformer model(*backend, open.config, *open.tensors, "m", 0, {open.dtype, head});
  });
}

Tensor logits(Backend& backend, const std::string& path, const std::string& dtype) {
  const OpenModel open = opened(path, dtype);
  Transformer model(backend, open.config, *open.tensors, "m", 0, {.dtype = open.dtype});
  return Chain(backend, model, 9).feed(std::vector<Token>{1, 7, 30, 3, 5, 21, 2, 11, 17});
}

TEST(StoredCodes, AFileReportsTheFormatsOfItsLayers) {
  const auto names = [](const std::string& file) {
    std::vector<std::string> all;
    for (const WeightFormat* f : ModelFiles::open(gguf(file))->tensors()->formats()) all.push_back(f->name());
    std::ranges::sort(all);
    return all;
  };
  using Names = std::vector<std::string>;
  EXPECT_EQ(names("k-quants.gguf"), (Names{"int4", "int5", "int6", "int8_group"}));
  EXPECT_EQ(names("scaled.gguf"), Names{"int8_group"}) << "its other matrices are dense";
}

TEST(StoredCodes, AnotherFormatIsRefused) {
  for (const char* dtype : {"int4", "nf4", "fp8", "w8a8", "fp8_w8a8"})
    EXPECT_TRUE(says(refusal(gguf("scaled.gguf"), dtype), "scaled.gguf: its matrices are quantized (int8_group)",
                     "contradicts the dtype '" + std::string(dtype) + "' of the run",
                     "set dtype to auto, bf16 or f32, or int8_group"));
  for (const char* dtype : {"int4", "int8_group", "w4a8"})
    EXPECT_TRUE(says(refusal(gguf("k-quants.gguf"), dtype), "int4, ", "contradicts the dtype",
                     "set dtype to auto, bf16 or f32"));
  EXPECT_TRUE(says(sentence_of([] { opened(gguf("scaled.gguf"), "int8_group", "llama-3.2-1b"); }),
                   "dense when it is inflated", "contradicts the dtype"));
}

TEST(StoredCodes, TheStoredFormatKeepsThemAndADenseTypeDoesNot) {
  const auto bytes = [](const std::string& dtype) {
    const OpenModel open = opened(gguf("scaled.gguf"), dtype);
    const auto backend = make_cpu_backend(1);
    return Transformer(*backend, open.config, *open.tensors, "m", 0, {open.dtype, "bf16"}).info().weight_bytes;
  };
  EXPECT_EQ(opened(gguf("scaled.gguf"), "int8_group").dtype, "auto");
  EXPECT_EQ(bytes("int8_group"), bytes("auto"));
  EXPECT_GT(bytes("f32"), bytes("bf16") * 3 / 2);
  for (const char* dtype : {"auto", "bf16", "f32"}) EXPECT_EQ(refusal(gguf("k-quants.gguf"), dtype), "") << dtype;
}

TEST(StoredCodes, AHeadIsNotRoundedAnewEither) {
  EXPECT_TRUE(says(refusal(gguf("k-quants.gguf"), "auto", "int4"), "k-quants.gguf: dtype 'int4' and the matrix",
                   "is stored as int6", "choose auto, int6, bf16 or f32"));
  for (const char* head : {"auto", "int6", "bf16", "f32"})
    EXPECT_EQ(refusal(gguf("k-quants.gguf"), "auto", head), "") << head;
}

// A file says nothing of inputs: a run may round them, where the layers have the weights' format.
TEST(StoredCodes, InputsMayBeRoundedBesideThem) {
  GgufBytes g;
  g.set("general.architecture", text_value("llama")).set("llama.context_length", u32_value(64));
  g.set("llama.embedding_length", u32_value(32)).set("llama.feed_forward_length", u32_value(32));
  g.set("llama.block_count", u32_value(1)).set("llama.attention.head_count", u32_value(2));
  g.set("llama.attention.layer_norm_rms_epsilon", f32_value(1e-6f));
  g.set("tokenizer.ggml.tokens", texts_value({"a", "b"})).set("tokenizer.ggml.eos_token_id", u32_value(1));
  g.append("token_embd.weight", {32, 2}, 0, std::string(256, '\0'));
  for (const char* norm : {"output_norm", "blk.0.attn_norm", "blk.0.ffn_norm"})
    g.append(std::string(norm) + ".weight", {32}, 0, std::string(128, '\0'));
  for (const char* matrix : {"attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"})
    g.append(std::string("blk.0.") + matrix + ".weight", {32, 32}, 2, std::string(32 * 18, '\0'));  // Q4_0
  const TemporaryFolder folder;
  const std::string file = folder.write("m.gguf", g.bytes()).string();
  for (const char* dtype : {"auto", "int4", "w4a8", "bf16"}) EXPECT_EQ(refusal(file, dtype), "") << dtype;
  EXPECT_EQ(opened(file, "w4a8").dtype, "w4a8");
  EXPECT_TRUE(says(refusal(file, "w8a8"), "m.gguf: its matrices are quantized (int4)", "contradicts the dtype 'w8a8'"));
}

// Products of q, k and v whose formats differ stand apart: as many bytes as the matrices alone, and the logits of the
// dense copy.
TEST(StoredCodes, MixedFormatsStayCodes) {
  for (const char* file : {"k-quants.gguf", "quants.gguf", "qwen2.gguf"}) {
    const OpenModel open = opened(gguf(file), "auto");
    for (const std::string& instructions : cpu_instructions()) {
      const auto backend = make_cpu_backend(1, instructions);
      const Transformer model(*backend, open.config, *open.tensors, "m", 0, {});
      const Transformer dense(*backend, open.config, *open.tensors, "m", 0, {.dtype = "bf16"});
      std::int64_t codes = 0;
      for (const auto& [name, shape] : tensors_of(open.config)) {
        const std::string module = name.substr(0, name.rfind('.'));
        if (shape.rank() != 2 || (module == "model.embed_tokens" && !open.config.tied_head)) continue;
        codes += backend->prepare(open.tensors->matrix(module, shape)).bytes();
      }
      EXPECT_NEAR(double(model.info().weight_bytes), double(codes), 0.1 * double(codes)) << file << instructions;
      EXPECT_LT(model.info().weight_bytes, dense.info().weight_bytes) << file << instructions;
      // Another file of these has F32 and F16 matrices too, which bf16 rounds.
      if (std::string(file) == "quants.gguf") continue;
      EXPECT_TRUE(same(logits(*backend, gguf(file), "auto"), logits(*backend, gguf(file), "bf16"))) << file;
    }
  }
}

// A row of 64 inputs has no blocks of 128.
TEST(StoredCodes, AMatrixThatDoesNotDivideIntoGroupsIsNamed) {
  const auto directory = kTinyModels / "qwen3";
  const std::string sentence = sentence_of([&] {
    const auto backend = make_reference_backend();
    const Transformer model(*backend, ModelConfig::load(directory), Checkpoint::open(directory), "m", 0,
                            {.dtype = "fp8_block"});
  });
  EXPECT_TRUE(says(sentence, "qwen3",
                   ": dtype 'fp8_block' and the matrix 'model.layers.0.self_attn.q_proj': a weight of ",
                   "does not divide into groups"));
}

}  // namespace
}  // namespace foretoken::test
