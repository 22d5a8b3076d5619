// Checkpoints that round the inputs of their matrices: the logits are those of Transformers with inputs that
// compressed-tensors rounds (tests/golden/rounded_inputs_golden.py), up to the tolerance of each.
//
// An input that lies within the noise of f32 sums between two numbers might be rounded to the other one, which moves
// logits by some 1e-3 of the greatest; these prompts have none. "package": dynamic integers have the package's scales
// there, of 127.5 steps instead of 127, which moves every input by up to 1/255 of its row's greatest, and these logits
// by .033.
#include "framework/model/quantized/quantization.h"
#include "tests/framework/model/golden.h"

namespace foretoken::test {
namespace {

struct Golden {
  const char *checkpoint, *kind;
  double tolerance;
};
constexpr Golden kGolden[] = {
    {"ct-int8", "rounded", 1e-5},       {"ct-int8", "package", 0.05},        {"ct-int4-int8", "rounded", 1e-5},
    {"ct-int4-int8", "package", 0.05},  {"ct-int8-static", "rounded", 1e-5}, {"ct-fp8", "rounded", 1e-5},
    {"ct-fp8-static", "rounded", 1e-5}, {"fp8-tensor", "rounded", 1e-5},     {"fp8-tensor-inverse", "rounded", 1e-5}};

class RoundedModel : public testing::TestWithParam<Golden> {
 protected:
  const std::string name_ = GetParam().checkpoint;
  std::filesystem::path directory_ = kRoot / "tests" / "data" / "quantized" / name_;
  ModelConfig config_ = ModelConfig::load(directory_);
  std::shared_ptr<const TensorSource> tensors_ =
      quantized(std::make_shared<Checkpoint>(Checkpoint::open(directory_)), config_.quantization);
};

// In pieces of five tokens the logits have the same bits: no row depends on another.
TEST_P(RoundedModel, MeetsTheLogitsOfTransformers) {
  std::vector<std::unique_ptr<Backend>> backends;
  backends.push_back(make_reference_backend());
  for (const std::string& instructions : cpu_instructions()) backends.push_back(make_cpu_backend(2, instructions));
  for (const auto& backend : backends) {
    Transformer model(*backend, config_, *tensors_, name_ + "-" + GetParam().kind, 0,
                      {.head_dtype = "f32", .kv_dtype = "f32"});
    EXPECT_EQ(meet_transformers(*backend, model, GetParam().tolerance, 5), 3) << backend->description();
  }
}

// Else a dense product might meet the tolerance.
TEST_P(RoundedModel, IsNotThatOfItsWeightsAlone) {
  const std::vector<Token> tokens = {1, 7, 90, 33, 5, 60, 2, 41, 17};
  const auto backend = make_reference_backend();
  const auto alone = weights_alone(tensors_);
  Transformer rounded(*backend, config_, *tensors_, name_, 0), dense(*backend, config_, *alone, name_, 0);
  const Tensor a = Chain(*backend, rounded, 9).feed(tokens), b = Chain(*backend, dense, 9).feed(tokens);
  EXPECT_GT(relative_error(a.values<float>(), b.values<float>()), 0.001);
}

INSTANTIATE_TEST_SUITE_P(All, RoundedModel, testing::ValuesIn(kGolden), [](const auto& info) {
  std::string name = std::string(info.param.checkpoint) + "_" + info.param.kind;
  std::ranges::replace(name, '-', '_');
  return name;
});

}  // namespace
}  // namespace foretoken::test
