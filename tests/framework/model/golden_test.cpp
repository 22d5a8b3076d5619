// The reference backend meets the fp32 logits that Transformers gives (tests/golden/make_golden.py), to 1e-5.
#include <gtest/gtest.h>

#include "tests/framework/model/chain.h"

namespace foretoken::test {
namespace {

const std::filesystem::path kData = std::filesystem::path(FORETOKEN_SOURCE_DIR) / "tests" / "data";

class TinyModel : public testing::TestWithParam<const char*> {
 protected:
  std::filesystem::path directory_ = kData / "models" / GetParam();
  Checkpoint golden_ = Checkpoint::open_file(kData / "golden" / (std::string(GetParam()) + ".safetensors"));
};

TEST_P(TinyModel, MeetsTheLogitsOfTransformers) {
  const auto backend = make_reference_backend();
  Transformer model(*backend, ModelConfig::load(directory_), Checkpoint::open(directory_), GetParam(), 0);
  int prompts = 0;
  for (; golden_.has("ids" + std::to_string(prompts)); ++prompts) {
    const Tensor ids = golden_.tensor("ids" + std::to_string(prompts)),
                 want = golden_.tensor("logits" + std::to_string(prompts));
    const auto tokens = std::span<const Token>(ids.values<std::int32_t>());
    Chain whole(*backend, model, int(tokens.size()));
    const Tensor logits = whole.feed(tokens);
    ASSERT_EQ(logits.shape(), want.shape());
    EXPECT_LE(relative_error(logits.values<float>(), want.values<float>()), 1e-5) << "prompt " << prompts;

    Chain chunks(*backend, model, int(tokens.size()));  // the same bits, however the prompt is cut
    for (std::size_t begin = 0; begin < tokens.size(); begin += 5) {
      const Tensor part = chunks.feed(tokens.subspan(begin, std::min<std::size_t>(5, tokens.size() - begin)));
      EXPECT_EQ(std::memcmp(part.raw(), logits.row<float>(std::int64_t(begin)), std::size_t(part.bytes())), 0)
          << "chunk at " << begin;
    }
  }
  EXPECT_EQ(prompts, 3);
}

TEST_P(TinyModel, MeetsTheFrequenciesOfTransformers) {
  const auto frequencies = ModelConfig::load(directory_).rope_frequencies();
  const Tensor want = golden_.tensor("frequencies", {std::int64_t(frequencies.size())});
  for (std::size_t i = 0; i < frequencies.size(); ++i)
    EXPECT_NEAR(frequencies[i] / want.values<float>()[i], 1, 2.4e-7)
        << i;  // two units in the last place: torch's pow has its own
}

INSTANTIATE_TEST_SUITE_P(Shapes, TinyModel, testing::Values("llama2", "llama3", "linear", "sharded", "bf16", "f16"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace foretoken::test
