// The demo models on the reference and on the fast CPU backend give the fp32 logits of Transformers, to 1e-5.
#include "tests/framework/model/golden.h"

namespace foretoken::test {
namespace {

class DemoModel : public testing::TestWithParam<const char*> {
 protected:
  // Where golden values exist, they must belong to the weights that exist.
  void meet(Backend& backend) {
    const auto directory = kRoot / "experiments" / "models" / GetParam();
    if (!std::filesystem::exists(directory / "model.safetensors")) GTEST_SKIP() << directory << " is not there";
    Transformer model = golden_model(backend, directory, kSingle);
    EXPECT_EQ(meet_transformers(backend, model, 1e-5, 0), 8)
        << "were the weights trained again? then run tests/golden/make_golden.py " << GetParam()
        << "=experiments/models/" << GetParam();
  }
};

TEST_P(DemoModel, MeetsTheLogitsOfTransformers) { meet(*make_reference_backend()); }
TEST_P(DemoModel, MeetsTheLogitsOfTransformersOnTheFastBackend) { meet(*make_cpu_backend(1)); }

INSTANTIATE_TEST_SUITE_P(Models, DemoModel, testing::Values("target", "draft", "draft-large"), [](const auto& info) {
  return std::string(info.param) == "draft-large" ? "draft_large" : info.param;
});

}  // namespace
}  // namespace foretoken::test
