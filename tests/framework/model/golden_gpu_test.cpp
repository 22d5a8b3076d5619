// Every supported kind of model, on the GPU with fp32 weights, keys and values, gives the fp32 logits of Transformers.
#include "tests/framework/model/golden.h"
#include "tests/support/gpu.h"
#include "tests/support/sentence.h"
#include "tests/support/tiny_models.h"

namespace foretoken::test {
namespace {

// The same bound as on the host: f32 matrices are multiplied in f32 (no TF32), and so are scores and weights of f32
// caches, so the GPU differs from Transformers by the order of its sums alone, some 1e-6 of the greatest logit for
// models of this depth.
constexpr double kBound = 1e-5;

class TinyModelOnGpu : public testing::TestWithParam<std::string> {};

TEST_P(TinyModelOnGpu, meets_the_logits_of_transformers) {
  for (const bool invariant : {true, false}) {
    SCOPED_TRACE(invariant ? "invariant numerics" : "fast numerics");
    const auto backend = make_gpu({.invariant = invariant});
    if (ModelConfig::load(kTinyModels / GetParam()).latent) {
      EXPECT_TRUE(says(sentence_of([&] { (void)golden_model(*backend, kTinyModels / GetParam(), kSingle); }),
                       "cuda: ", "latent attention, which this device does not compute"));
      continue;
    }
    Transformer model = golden_model(*backend, kTinyModels / GetParam(), kSingle);
    EXPECT_EQ(meet_transformers(*backend, model, kBound, invariant ? 5 : 0),
              3);  // pieces give the same bits only where that is promised
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, TinyModelOnGpu, testing::ValuesIn(tiny_model_names()),
                         [](const auto& info) { return info.param; });

class DemoModelOnGpu : public testing::TestWithParam<const char*> {};

TEST_P(DemoModelOnGpu, meets_the_logits_of_transformers) {
  const auto backend = make_gpu({.invariant = true});
  Transformer model = golden_model(*backend, kRoot / "experiments" / "models" / GetParam(), kSingle);
  EXPECT_EQ(meet_transformers(*backend, model, kBound, 0), 8);
}

INSTANTIATE_TEST_SUITE_P(Demo, DemoModelOnGpu, testing::Values("target", "draft"));

}  // namespace
}  // namespace foretoken::test
