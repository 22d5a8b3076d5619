// The demo models, inflated, give the same output, so that studies of cost have the acceptance rates of trained models.
#include "framework/text/tokenizer.h"
#include "tests/framework/model/inflate.h"

namespace foretoken::test {
namespace {

const std::filesystem::path kModels = std::filesystem::path(FORETOKEN_SOURCE_DIR) / "experiments" / "models";

class InflatedDemo : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(directory_ / "model.safetensors")) GTEST_SKIP() << directory_ << " is not there";
  }
  std::vector<Token> prompt(const std::string& text) const { return Tokenizer::load(directory_)->encode(text); }
  std::filesystem::path directory_ = kModels / GetParam();
};

TEST_P(InflatedDemo, ComputesTheSame) {
  Pair pair(directory_, [](const ModelConfig& small) { return larger(small, 500, true); });
  expect_same_logits(pair, prompt("The history of the sea is long, and it begins with a small boat."));
}

TEST_P(InflatedDemo, GeneratesTheSame) {
  Pair pair(directory_, [](const ModelConfig& small) { return larger(small, 500, false); });
  for (const char* text : {"Once upon a time", "def add(a, b):", "Repeat after me: one two three, one two"}) {
    const auto tokens = prompt(text);
    EXPECT_EQ(greedy(*pair.backend, pair.small, tokens, 24), greedy(*pair.backend, pair.large, tokens, 24)) << text;
  }
}

// In the precision in which costs are measured there is one more rounding, and no other difference.
TEST_P(InflatedDemo, IsCloseInItsOwnPrecision) {
  Pair pair(directory_, [](const ModelConfig& small) { return larger(small, 500, true); }, "auto");
  expect_same_logits(pair, prompt("The history of the sea is long, and it begins with a small boat."), 0.02);
}

// Groups of 128 inputs hold either weights of the small model or others, never both, so its scales do not change.
TEST_P(InflatedDemo, IsCloseInGroupsOfInt8) {
  const auto shape = [](const ModelConfig& small) {
    ModelConfig large = larger(small, 500, true);
    large.width = small.width + 128, large.ffn = small.ffn + 128;
    return large;
  };
  Pair pair(directory_, shape, "int8_group");
  expect_same_logits(pair, prompt("The history of the sea is long, and it begins with a small boat."), 0.03);
}

INSTANTIATE_TEST_SUITE_P(Models, InflatedDemo, testing::Values("target", "draft", "draft-large"), [](const auto& info) {
  return std::string(info.param) == "draft-large" ? "draft_large" : info.param;
});

}  // namespace
}  // namespace foretoken::test
