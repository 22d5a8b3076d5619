// Checkpoints that the formats' own packages quantized (tests/data/quantized, made by
// tests/golden/quantized_golden.py): every matrix is, bit for bit, the bf16 numbers of what the package unpacks, and
// the logits are those that Transformers gives with these numbers. Inputs that a checkpoint rounds are left as they are
// here; rounded_golden_test.cpp is about them.
#include <algorithm>
#include <map>

#include "framework/model/model_tensors.h"
#include "framework/model/quantized/quantization.h"
#include "tests/framework/model/quantized/checkpoints.h"

namespace foretoken::test {
namespace {

bool same_bits(const Tensor& a, const Tensor& b) {
  return a.dtype() == b.dtype() && a.shape() == b.shape() && a.dense() && b.dense() &&
         std::memcmp(a.raw(), b.raw(), std::size_t(a.bytes())) == 0;
}

class QuantizedModel : public testing::TestWithParam<std::string> {
 protected:
  std::filesystem::path directory_ = kQuantized / GetParam();
  ModelConfig config_ = ModelConfig::load(directory_);
  std::shared_ptr<const TensorSource> tensors_ =
      weights_alone(quantized(std::make_shared<Checkpoint>(Checkpoint::open(directory_)), config_.quantization));
};

TEST_P(QuantizedModel, HasTheNumbersThatItsPackageUnpacks) {
  const Checkpoint golden = Checkpoint::open_file(kRoot / "tests" / "data" / "golden" / (GetParam() + ".safetensors"));
  const auto formats = config_.quantization->formats();
  int matrices = 0;
  for (const auto& [name, shape] : tensors_of(config_)) {
    if (!golden.has(name)) continue;
    const Tensor want = golden.tensor(name, shape);
    const std::string module = name.substr(0, name.rfind('.'));
    const Weight w = tensors_->matrix(module, shape);
    ASSERT_TRUE(w.format) << name;
    EXPECT_NE(std::ranges::find(formats, w.format), formats.end()) << name << " is " << w.format->name();
    EXPECT_EQ(w.values.dtype(), DType::u8);
    EXPECT_EQ(w.scales.shape(), (Shape{w.out, w.in / w.group})) << name;
    EXPECT_TRUE(same_bits(in_input_order(dequantized(w)).values, want)) << name;
    EXPECT_TRUE(same_bits(tensors_->tensor(name, shape), want)) << name;
    ++matrices;
  }
  EXPECT_GE(matrices, 6);
}

TEST_P(QuantizedModel, HasTheTensorsOfADenseModel) {
  const auto names = tensors_->names();
  for (const auto& [name, shape] : tensors_of(config_)) EXPECT_NE(std::ranges::find(names, name), names.end()) << name;
  for (const std::string& name : names)
    EXPECT_TRUE(tensors_of(config_).contains(name) || name.ends_with("_scale")) << name;
}

TEST_P(QuantizedModel, MeetsTheLogitsOfTransformers) {
  const auto backend = make_reference_backend();
  Transformer model(*backend, config_, *tensors_, GetParam(), 0);
  EXPECT_EQ(meet_transformers(*backend, model, 1e-5, 5), 3);
}

TEST_P(QuantizedModel, MeetsTheLogitsOfTransformersAsADenseCopyOnTheFastBackend) {
  const auto backend = make_cpu_backend(2);
  Transformer model(*backend, config_, *tensors_, GetParam(), 0, kSingle);
  EXPECT_EQ(meet_transformers(*backend, model, 1e-5, 5), 3);
}

// The law of formats, of a whole model: codes give the bits that their dense copy gives.
TEST_P(QuantizedModel, HasTheBitsOfItsDenseCopyOnTheFastBackend) {
  const std::vector<Token> tokens = {1, 7, 90, 33, 5, 60, 2, 41, 17};
  const auto backend = make_cpu_backend(2);
  const auto logits = [&](const std::string& dtype) {
    Transformer model(*backend, config_, *tensors_, GetParam(), 0, {.dtype = dtype});
    return Chain(*backend, model, int(tokens.size())).feed(tokens);
  };
  EXPECT_TRUE(same_bits(logits("auto"), logits("bf16")));
}

INSTANTIATE_TEST_SUITE_P(Formats, QuantizedModel, testing::ValuesIn(names_of_checkpoints()),
                         [](const auto& info) { return test_name(info.param); });

// What the checkpoints are meant to cover.
TEST(QuantizedModels, AreOfEveryKind) {
  std::map<std::string, int> of;
  for (const std::string& name : names_of_checkpoints()) {
    const ModelConfig config = ModelConfig::load(kQuantized / name);
    const auto tensors =
        quantized(std::make_shared<Checkpoint>(Checkpoint::open(kQuantized / name)), config.quantization);
    of[config.quantization->method()] += 1;
    for (const WeightFormat* format : config.quantization->formats()) of["format " + format->name()] += 1;
    const Weight w = tensors->matrix("model.layers.0.self_attn.v_proj", {32, 64});
    of["an order of inputs"] += bool(w.order), of["zero points"] += bool(w.zeros);
    of["one scale for all inputs"] += w.group == w.in, of["groups"] += w.group < w.in;
    of["rounded inputs"] += config.quantization->activations().bits > 0;
  }
  EXPECT_EQ(of.size(), 21u);  // six methods, ten formats and the five kinds above
  for (const auto& [kind, checkpoints] : of) EXPECT_GT(checkpoints, 0) << kind;
}

}  // namespace
}  // namespace foretoken::test
