// The list of a configuration's tensors equals what a transformer reads, and what committed checkpoints hold.
#include "framework/model/model_tensors.h"

#include <set>

#include <gtest/gtest.h>

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
    const Checkpoint checkpoint = Checkpoint::open(folder);
    std::vector<std::string> names;
    for (const auto& [name, shape] : tensors_of(config)) names.push_back(name);
    EXPECT_EQ(checkpoint.names(), names) << folder;
    EXPECT_EQ(sentence_of([&] { expect_no_other_tensors(config, checkpoint); }), "") << folder;
  }
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
