// A feed-forward of experts within a model: which of its matrices are rounded, what it reads, and what is refused.
#include <cmath>
#include <numeric>

#include <gtest/gtest.h>

#include "framework/model/inflation.h"
#include "framework/model/model_tensors.h"
#include "framework/model/shapes.h"
#include "tests/framework/model/dense_copies.h"
#include "tests/framework/model/golden.h"
#include "tests/support/sentence.h"
#include "tests/support/tiny_models.h"

namespace foretoken::test {
namespace {

const std::vector<std::string> kMixtures = {"mixtral", "qwen2_moe", "qwen3_moe"};

// The dense copies of the matrices of layers, but of what chooses among experts.
class CopiesButRouters final : public TensorSource {
 public:
  CopiesButRouters(const TensorSource& inner, const WeightFormat& format) : inner_(inner), copies_(inner, format) {}
  Tensor tensor(const std::string& name, const Shape& expected) const override {
    const bool as_stored = !name.starts_with("model.layers.") || name.ends_with(".gate.weight") ||
                           name.ends_with(".shared_expert_gate.weight");
    return as_stored ? inner_.tensor(name, expected) : copies_.tensor(name, expected);
  }
  std::vector<std::string> names() const override { return inner_.names(); }
  std::string where() const override { return inner_.where(); }

 private:
  const TensorSource& inner_;
  DenseCopies copies_;
};

TEST(Experts, AreRoundedAndTheirRoutersAreNot) {
  std::vector<Token> prompt(40);
  std::iota(prompt.begin(), prompt.end(), 3);
  for (const auto& [name, format] : {std::pair("mixtral", "int4"), std::pair("mixtral", "fp8"),
                                     std::pair("qwen2_moe", "int8"), std::pair("qwen3_moe", "int8")}) {
    const ModelConfig config = ModelConfig::load(kTinyModels / name);
    const Checkpoint checkpoint = Checkpoint::open(kTinyModels / name);
    const CopiesButRouters copies(checkpoint, *find_format(format));
    std::vector<std::unique_ptr<Backend>> backends;
    backends.push_back(make_reference_backend());
    backends.push_back(make_cpu_backend(2));
    for (const auto& backend : backends) {
      Transformer rounded(*backend, config, checkpoint, name, 0, {format}),
          dense(*backend, config, copies, name, 0, {}), stored(*backend, config, checkpoint, name, 0, {});
      const Tensor logits = Chain(*backend, rounded, 64).feed(prompt);
      EXPECT_TRUE(same(logits, Chain(*backend, dense, 64).feed(prompt))) << name << ", " << format;
      EXPECT_FALSE(same(logits, Chain(*backend, stored, 64).feed(prompt))) << name << ", " << format;
    }
  }
}

// Of the forwards' bytes those of experts are counted by the mean of independent choices.
TEST(Experts, AreReadByTheRowsThatUseThem) {
  const auto backend = make_reference_backend();
  for (const std::string& name : kMixtures) {
    const ModelConfig c = ModelConfig::load(kTinyModels / name);
    std::int64_t experts = 0;
    for (const auto& [tensor, shape] : tensors_of(c))
      if (tensor.find(".experts.") != tensor.npos) experts += 4 * shape.elements();
    const ModelInfo info = tiny_model(*backend, name)->info();
    EXPECT_EQ(info.expert_bytes, experts) << name;
    EXPECT_EQ(info.spared_bytes(0), experts);
    const double used = double(c.mixture->used) / c.mixture->experts;
    EXPECT_NEAR(double(info.spared_bytes(1)), double(experts) * (1 - used), 1);
    EXPECT_NEAR(double(info.spared_bytes(3)), double(experts) * std::pow(1 - used, 3), 1);
    EXPECT_LT(info.spared_bytes(1000), 1);
  }
  EXPECT_EQ(tiny_model(*backend, "qwen3")->info().spared_bytes(1), 0);
}

TEST(Experts, ThatAreLeftOutAreNotRead) {
  const auto backend = make_reference_backend();
  const std::shared_ptr<Model> whole = tiny_model(*backend, "qwen3_moe");
  const ModelInfo &all = whole->info(), dense = part_of(whole, {{}, {0}})->info(),
                  none = part_of(whole, {{}, {3}})->info();
  EXPECT_EQ(dense.expert_bytes, all.expert_bytes);
  EXPECT_EQ(none.expert_bytes, 0);
  EXPECT_LT(none.weight_bytes, all.weight_bytes - all.expert_bytes);
}

class Without final : public TensorSource {
 public:
  Without(const TensorSource& inner, std::string name) : inner_(inner), name_(std::move(name)) {}
  Tensor tensor(const std::string& name, const Shape& expected) const override {
    if (name == name_) throw Error("no tensor '" + name + "'");
    return inner_.tensor(name, expected);
  }
  std::vector<std::string> names() const override { return inner_.names(); }
  std::string where() const override { return inner_.where(); }

 private:
  const TensorSource& inner_;
  std::string name_;
};

TEST(Experts, ThatAreMissingAreNamed) {
  const auto backend = make_reference_backend();
  const Checkpoint checkpoint = Checkpoint::open(kTinyModels / "mixtral");
  ModelConfig config = ModelConfig::load(kTinyModels / "mixtral");
  const std::string name = "model.layers.1.block_sparse_moe.experts.3.w2.weight";
  EXPECT_TRUE(says(sentence_of([&] { Transformer(*backend, config, Without(checkpoint, name), "m", 0, {}); }), name));
  config.mixture->experts = 3;
  EXPECT_TRUE(says(sentence_of([&] { Transformer(*backend, config, checkpoint, "m", 0, {}); }), "does not use",
                   "experts.3.w1"));
}

TEST(Experts, AreNotInflated) {
  const auto tensors = std::make_shared<Checkpoint>(Checkpoint::open(kTinyModels / "mixtral"));
  const ModelConfig small = ModelConfig::load(kTinyModels / "mixtral"), dense = ModelConfig::load(kTinyModels / "bf16");
  const auto refusal = [&](const ModelConfig& from, const ModelConfig& to) {
    return sentence_of([&] { InflatedWeights(tensors, from, to, "small", "large"); });
  };
  EXPECT_TRUE(says(refusal(small, published_shape("llama-3.2-1b")), "the small model is a mixture of experts"));
  EXPECT_TRUE(says(refusal(dense, published_shape("mixtral-8x7b")), "the shape is a mixture of experts"));
}

}  // namespace
}  // namespace foretoken::test
