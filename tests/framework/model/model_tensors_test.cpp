// The list of a configuration's tensors equals what a transformer reads, and what committed checkpoints hold.
#include "framework/model/model_tensors.h"

#include <cstring>
#include <set>
#include <thread>

#include <gtest/gtest.h>

#include "framework/model/in_parallel.h"
#include "framework/model/random_weights.h"
#include "tests/framework/model/golden.h"
#include "tests/support/sentence.h"
#include "tests/support/tiny_models.h"

namespace foretoken::test {
namespace {

// Random weights that record which tensors were requested.
class Requested : public TensorSource {
 public:
  Tensor tensor(const std::string& name, const Shape& expected) const override {
    requests[name] = expected;
    return weights_.tensor(name, expected);
  }
  std::vector<std::string> names() const override { return {}; }
  std::string where() const override { return "requested"; }

  mutable std::map<std::string, Shape> requests;

 private:
  RandomWeights weights_{1};
};

TEST(ModelTensors, AreExactlyWhatATransformerReads) {
  for (const std::string& name : tiny_model_names()) {
    const ModelConfig config = ModelConfig::load(kTinyModels / name);
    const Requested source;
    const auto backend = make_reference_backend();
    const Transformer model(*backend, config, source, name, 0);
    EXPECT_EQ(source.requests, tensors_of(config)) << name;
  }
}

TEST(ModelTensors, AreExactlyWhatCommittedCheckpointsHold) {
  std::vector<std::filesystem::path> folders;
  for (const std::string& name : tiny_model_names()) folders.push_back(kTinyModels / name);
  for (const char* name : {"target", "draft", "draft-large"}) folders.push_back(kRoot / "experiments/models" / name);
  for (const auto& folder : folders) {
    const ModelConfig config = ModelConfig::load(folder);
    const auto checkpoint = ModelFiles::open(folder)->tensors();
    std::vector<std::string> names;
    for (const auto& [name, shape] : tensors_of(config)) names.push_back(name);
    EXPECT_EQ(checkpoint->names(), names) << folder;
    EXPECT_EQ(sentence_of([&] { expect_no_other_tensors(config, *checkpoint); }), "") << folder;
  }
}

// Matrices of 2^20 elements of one type, made without other threads. Each is worth dividing.
class Large : public TensorSource {
 public:
  explicit Large(DType type) : type_(type) {}
  Tensor tensor(const std::string&, const Shape& expected) const override {
    const Tensor t = Tensor::host(expected, type_);
    std::memset(t.raw(), 0, std::size_t(t.bytes()));
    return t;
  }
  std::vector<std::string> names() const override { return {}; }
  std::string where() const override { return "zeros"; }
  // One layer with four weights, o_proj and down_proj of one matrix each.
  static ModelConfig config() {
    ModelConfig c = ModelConfig::load(kTinyModels / "bf16");
    c.vocab = 64, c.layers = 1, c.width = c.ffn = 1024, c.heads = c.kv_heads = 16, c.head_size = 64;
    return c;
  }
  // The threads that convert and quantize while a model of it is loaded.
  std::int64_t threads(const std::string& dtype) const {
    const auto backend = make_reference_backend();
    const std::int64_t before = threads_started();
    const Transformer model(*backend, config(), *this, "large", 0, {dtype, "f32"});
    return threads_started() - before;
  }

 private:
  DType type_;
};

TEST(TransformerLoading, ConvertsByAllCores) {
  if (std::thread::hardware_concurrency() < 2) GTEST_SKIP() << "one core";
  const Large source(DType::bf16);
  EXPECT_GE(source.threads("f32"), source.threads("bf16") + 2) << "o_proj and down_proj are converted as well";
}

TEST(TransformerLoading, QuantizesByAllCores) {
  if (std::thread::hardware_concurrency() < 2) GTEST_SKIP() << "one core";
  const Large source(DType::bf16);
  EXPECT_GE(source.threads("int8"), source.threads("bf16") + 4) << "qkv, o_proj, gate_up and down_proj are quantized";
}

// Results report weight_bytes as the bytes that one forward reads.
TEST(ModelInfo, CountsTheBytesOfMatricesAsTheBackendHoldsThem) {
  const auto backend = make_reference_backend();  // multiplies f32, whatever the stored type
  const ModelConfig c = ModelConfig::load(kTinyModels / "bf16");
  std::int64_t numbers = 0;
  for (const auto& [name, shape] : tensors_of(c))
    if (shape.rank() == 2 && !name.starts_with("model.embed_tokens")) numbers += shape.elements();
  for (const char* dtype : {"auto", "int8", "f32"})
    EXPECT_EQ(tiny_model(*backend, "bf16", dtype)->info().weight_bytes, 4 * numbers) << dtype;
}

}  // namespace
}  // namespace foretoken::test
