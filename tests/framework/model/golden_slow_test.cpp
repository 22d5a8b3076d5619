// The demo models on the reference backend meet the fp32 logits that Transformers gives, to 1e-5.
#include <gtest/gtest.h>

#include "tests/framework/model/chain.h"

namespace foretoken::test {
namespace {

const std::filesystem::path kRoot = FORETOKEN_SOURCE_DIR;

class DemoModel : public testing::TestWithParam<const char*> {};

// Golden values that are there belong to the weights that are there.
TEST_P(DemoModel, MeetsTheLogitsOfTransformers) {
  const std::string name = GetParam();
  const auto directory = kRoot / "experiments" / "models" / name;
  const auto file = kRoot / "tests" / "data" / "golden" / (name + ".safetensors");
  if (!std::filesystem::exists(directory / "model.safetensors")) GTEST_SKIP() << directory << " is not there";
  ASSERT_TRUE(std::filesystem::exists(file))
      << "run tests/golden/make_golden.py " << name << "=experiments/models/" << name;
  const Checkpoint golden = Checkpoint::open_file(file);
  const auto backend = make_reference_backend();
  Transformer model(*backend, ModelConfig::load(directory), Checkpoint::open(directory), name, 0);
  int prompts = 0;
  for (; golden.has("ids" + std::to_string(prompts)); ++prompts) {
    const Tensor ids = golden.tensor("ids" + std::to_string(prompts)),
                 want = golden.tensor("logits" + std::to_string(prompts));
    const auto tokens = std::span<const Token>(ids.values<std::int32_t>());
    const Tensor logits = Chain(*backend, model, int(tokens.size())).feed(tokens, int(want.dim(0)));
    ASSERT_EQ(logits.shape(), want.shape());
    EXPECT_LE(relative_error(logits.values<float>(), want.values<float>()), 1e-5)
        << "prompt " << prompts << "; were the weights trained again? then run tests/golden/make_golden.py";
  }
  EXPECT_EQ(prompts, 8);
}

INSTANTIATE_TEST_SUITE_P(Models, DemoModel, testing::Values("target", "draft", "draft-large"), [](const auto& info) {
  return std::string(info.param) == "draft-large" ? "draft_large" : info.param;
});

}  // namespace
}  // namespace foretoken::test
