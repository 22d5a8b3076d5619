// The law of weight formats: a quantized model computes, bit for bit, what a model with the dense copies of its
// matrices computes.
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "framework/model/checkpoint.h"
#include "framework/model/model_choice.h"
#include "framework/model/model_files.h"
#include "kernels/formats/activations/activation_format.h"
#include "tests/framework/model/chain.h"
#include "tests/framework/model/dense_copies.h"
#include "tests/framework/model/golden.h"
#include "tests/support/sentence.h"
#include "tests/support/tiny_models.h"

namespace foretoken::test {
namespace {

const std::filesystem::path kDraft = kRoot / "experiments" / "models" / "draft";

class WeightFormats : public testing::TestWithParam<const WeightFormat*> {
 protected:
  const WeightFormat& format = *GetParam();
  const Checkpoint checkpoint = Checkpoint::open(kDraft);
  const ModelConfig config = ModelConfig::load(kDraft);
};

std::vector<std::unique_ptr<Backend>> host_backends() {
  std::vector<std::unique_ptr<Backend>> all;
  all.push_back(make_reference_backend());
  for (const std::string& instructions : cpu_instructions()) all.push_back(make_cpu_backend(2, instructions));
  return all;
}

// The demo draft has a tied head, whose embedding is then read from codes.
TEST_P(WeightFormats, ComputeWhatTheDenseCopyComputes) {
  const DenseCopies copies(checkpoint, format);
  const std::vector<Token> prompt = {5, 900, 77, 3, 3, 4000, 12, 250, 8, 1, 99, 3021, 640, 7}, next = {41};
  for (const auto& backend : host_backends()) {
    Transformer quantized(*backend, config, checkpoint, "quantized", 0, {format.name(), format.name()});
    Transformer dense(*backend, config, copies, "dense", 0, {});
    Chain first(*backend, quantized, 32), second(*backend, dense, 32);
    EXPECT_TRUE(same(first.feed(prompt), second.feed(prompt))) << backend->description();
    EXPECT_TRUE(same(first.feed(next), second.feed(next))) << backend->description();
    const bool codes = backend->name() == "cpu";
    EXPECT_TRUE(!codes || quantized.info().weight_bytes < dense.info().weight_bytes * 3 / 4) << backend->description();
  }
}

INSTANTIATE_TEST_SUITE_P(All, WeightFormats, testing::ValuesIn(weight_formats()),
                         [](const auto& info) { return info.param->name(); });

// Formats that round inputs have the weights of their format alone, and a product of their own.
TEST(RoundedInputs, AreNamedByTheType) {
  const Checkpoint checkpoint = Checkpoint::open(kDraft);
  const ModelConfig config = ModelConfig::load(kDraft);
  const std::vector<Token> prompt = {5, 900, 77, 3, 3, 4000, 12, 250, 8, 1, 99, 3021, 640, 7};
  for (const Precision& p : precisions()) {
    if (!p.activations) continue;
    for (const auto& backend : host_backends()) {
      const auto logits = [&](const std::string& dtype, const std::string& head) {
        Transformer model(*backend, config, checkpoint, dtype, 0, {dtype, head, "f32"});
        return Chain(*backend, model, 32).feed(prompt);
      };
      const std::string what = p.name + " on " + backend->description();
      const Tensor rounded = logits(p.name, "auto"), alone = logits(p.weights->name(), "auto");
      EXPECT_FALSE(same(rounded, alone)) << what;
      // An integer is at most 1/254 of its row's greatest input off, a number of e4m3 up to 1/16 of itself.
      const double most = p.activations->coding() == Coding::integers ? 0.1 : 0.2;
      EXPECT_LT(relative_error(rounded.values<float>(), alone.values<float>()), most) << what;
      EXPECT_FALSE(same(rounded, logits(p.name, p.name))) << what;  // its tied head rounds too
    }
  }
}

// Stored codes keep their weights; a group with minima is no sum of integers.
TEST(RoundedInputs, MultiplyStoredCodes) {
  const auto files = ModelFiles::open(kRoot / "tests/data/gguf/k-quants.gguf");
  EXPECT_TRUE(says(sentence_of([&] {
                     const auto backend = make_reference_backend();
                     const Transformer model(*backend, files->config(), *files->tensors(), "m", 0, {.dtype = "w4a8"});
                   }),
                   "k-quants.gguf", "dtype 'w4a8' and the matrix 'model.layers.", "its groups have minima",
                   "choose its weights alone"));
}

// A format keeps the head as stored; another type of the head may be requested.
TEST(HeadType, IsAsStoredBesideAFormat) {
  const Checkpoint checkpoint = Checkpoint::open(kDraft);
  const ModelConfig c = ModelConfig::load(kDraft);
  const auto backend = make_cpu_backend(1);
  const auto bytes = [&](const std::string& dtype, const std::string& head) {
    return Transformer(*backend, c, checkpoint, "draft", 0, {dtype, head}).info().weight_bytes;
  };
  const std::int64_t table = std::int64_t(c.vocab) * c.width;
  EXPECT_EQ(bytes("int8", "auto"), bytes("int8", "bf16"));
  EXPECT_EQ(bytes("int8", "auto") - bytes("int8", "int8"), table - 4 * c.vocab) << "bf16, or int8 and a scale";
  EXPECT_EQ(bytes("int8", "f32") - bytes("int8", "bf16"), 2 * table);
  EXPECT_EQ(bytes("f32", "auto"), bytes("f32", "f32"));
  EXPECT_TRUE(says(sentence_of([&] { bytes("auto", "int3"); }), "unknown head_dtype 'int3'", "int4_asymmetric"));
}

TEST(QuantizedCaches, NeedHeadsOfWholeVectors) {
  const auto backend = make_reference_backend();
  for (const char* type : {"int8", "fp8"}) {
    EXPECT_NO_THROW((void)tiny_model(*backend, "bf16", "auto", type));
    EXPECT_TRUE(says(sentence_of([&] { (void)tiny_model(*backend, "llama3", "auto", type); }), "llama3", "24 numbers",
                     "multiple of 16", "\"kv_dtype\": \"bf16\""));
  }
  EXPECT_TRUE(says(sentence_of([&] { (void)tiny_model(*backend, "bf16", "auto", "int4"); }), "unknown kv_dtype 'int4'",
                   "auto, f32, bf16, int8, fp8"));
}

TEST(ModelChoice, NamesTheTypeOfItsHead) {
  const nlohmann::json document = {{"directory", "a"}, {"dtype", "int4"}, {"head_dtype", "int8"}};
  const ModelChoice choice = ModelChoice::read(document);
  EXPECT_EQ(choice.dtype, "int4");
  EXPECT_EQ(choice.head_dtype, "int8");
  EXPECT_EQ(choice.document(), document);
  EXPECT_EQ(ModelChoice::read({{"random", "llama-3.2-1b"}, {"head_dtype", "fp8"}}).head_dtype, "fp8");
  EXPECT_TRUE(says(sentence_of([] { ModelChoice::read({{"directory", "a"}, {"head_dtype", 8}}); }), "head_dtype"));
}

}  // namespace
}  // namespace foretoken::test
