// A part of a model computes what the whole would where the sublayers that it leaves out added nothing.
#include <gtest/gtest.h>

#include "framework/model/checkpoint.h"
#include "tests/framework/model/chain.h"
#include "tests/framework/model/golden.h"
#include "tests/support/sentence.h"

namespace foretoken::test {
namespace {

// Whose named matrices are zeros.
class Silenced : public TensorSource {
 public:
  Silenced(const TensorSource& inner, std::vector<std::string> silent) : inner_(inner), silent_(std::move(silent)) {}
  Tensor tensor(const std::string& name, const Shape& expected) const override {
    if (std::ranges::find(silent_, name) == silent_.end()) return inner_.tensor(name, expected);
    const Tensor zeros = Tensor::host(expected, DType::f32);
    std::fill_n(zeros.data<float>(), zeros.elements(), 0.0f);
    return zeros;
  }
  std::vector<std::string> names() const override { return inner_.names(); }
  std::string where() const override { return inner_.where(); }

 private:
  const TensorSource& inner_;
  std::vector<std::string> silent_;
};

struct PartsOfAModel : ::testing::TestWithParam<const char*> {
  const std::filesystem::path directory = kTinyModels / GetParam();
  std::unique_ptr<Backend> backend = make_reference_backend();
  const ModelConfig config = ModelConfig::load(directory);
  const std::shared_ptr<const Checkpoint> checkpoint = std::make_shared<Checkpoint>(Checkpoint::open(directory));
  const std::shared_ptr<Model> whole =
      std::make_shared<Transformer>(*backend, config, *checkpoint, "whole", 0, TransformerOptions{"f32", "f32"});
  const std::vector<Token> tokens{1, 5, 2, 9, 9, 3, 1, 5, 7};

  Tensor logits(Model& model) { return Chain(*backend, model, 16).feed(tokens); }
  void expect_silent(const LeftOut& left_out, const std::vector<std::string>& silent) {
    const Silenced silenced(*checkpoint, silent);
    Transformer same(*backend, config, silenced, "silenced", 0, {"f32", "f32"});
    const auto part = part_of(whole, left_out);
    EXPECT_TRUE(test::same(logits(*part), logits(same)));
    EXPECT_FALSE(test::same(logits(*part), logits(*whole)));
    EXPECT_LT(part->info().weight_bytes, whole->info().weight_bytes);
    EXPECT_EQ(part->info().kv.layers, whole->info().kv.layers);
  }
};

TEST_P(PartsOfAModel, without_sublayers_compute_as_if_these_added_nothing) {
  expect_silent({{1}, {}}, {"model.layers.1.self_attn.o_proj.weight"});
  expect_silent({{}, {0}}, {"model.layers.0.mlp.down_proj.weight"});
  expect_silent({{0}, {1}}, {"model.layers.0.self_attn.o_proj.weight", "model.layers.1.mlp.down_proj.weight"});
}

TEST_P(PartsOfAModel, of_everything_are_the_whole) {
  const auto part = part_of(whole, {});
  EXPECT_TRUE(same(logits(*part), logits(*whole)));
  EXPECT_EQ(part->info().weight_bytes, whole->info().weight_bytes);
}

TEST_P(PartsOfAModel, with_a_layer_that_the_model_lacks_are_refused) {
  EXPECT_TRUE(says(sentence_of([&] { (void)part_of(whole, {{config.layers}, {}}); }),
                   "attention of layer " + std::to_string(config.layers), "0 to " + std::to_string(config.layers - 1)));
  EXPECT_TRUE(says(sentence_of([&] { (void)part_of(whole, {{}, {-1}}); }), "feed-forward sublayer of layer -1"));
}

INSTANTIATE_TEST_SUITE_P(Models, PartsOfAModel, testing::Values("llama2", "qwen3", "gemma2", "gemma3", "phi3"));

}  // namespace
}  // namespace foretoken::test
