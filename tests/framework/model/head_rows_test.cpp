// A model whose vocabulary is padded to another size: the tokens of both sizes have the same logits, bit for bit, and
// ids that the checkpoint lacks have probability 0.
#include "framework/model/head_rows.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/cpu/cpu_backend.h"
#include "tests/framework/model/chain.h"
#include "tests/framework/model/golden.h"

namespace foretoken::test {
namespace {

constexpr int kStored = 4096;

std::unique_ptr<Transformer> model(Backend& backend, int rows, const TransformerOptions& options, bool tied = true) {
  OpenModel open = open_model((kRoot / "experiments/models/draft").string(), [](const std::string& p) { return p; });
  EXPECT_EQ(open.config.vocab, kStored);
  EXPECT_TRUE(open.config.tied_head);
  if (!tied) {  // the same numbers under two names
    struct Untied : TensorSource {
      std::shared_ptr<const TensorSource> of;
      Tensor tensor(const std::string& name, const Shape& expected) const override {
        return of->tensor(name == "lm_head.weight" ? "model.embed_tokens.weight" : name, expected);
      }
      std::vector<std::string> names() const override { return {}; }
      std::string where() const override { return of->where(); }
    };
    auto source = std::make_shared<Untied>();
    source->of = open.tensors, open.tensors = source, open.config.tied_head = false;
  }
  const OpenModel fitted = with_head_rows(std::move(open), rows);
  return std::make_unique<Transformer>(backend, fitted.config, *fitted.tensors, "m", 0, options);
}

void expect_same_distributions(Backend& backend, const TransformerOptions& options, bool tied = true) {
  const std::vector<Token> tokens{1, 7, 300, 3, 5, 21, 2, 11, 17};
  const auto stored = model(backend, kStored, options, tied);
  const Tensor before = Chain(backend, *stored, 9).feed(tokens);
  for (const int rows : {kStored - 128, kStored + 128}) {
    const auto fitted = model(backend, rows, options, tied);
    EXPECT_EQ(fitted->info().vocab, rows);
    const Tensor logits = Chain(backend, *fitted, 9).feed(tokens);
    ASSERT_EQ(logits.shape(), (Shape{std::int64_t(tokens.size()), rows}));
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      EXPECT_EQ(std::memcmp(logits.row<float>(std::int64_t(i)), before.row<float>(std::int64_t(i)),
                            sizeof(float) * std::size_t(std::min(rows, kStored))),
                0)
          << rows << " rows, token " << i;
      for (int id = kStored; id < rows; ++id)
        ASSERT_EQ(logits.row<float>(std::int64_t(i))[id], -std::numeric_limits<float>::infinity());
    }
    if (rows < kStored) continue;
    for (const float temperature : {0.0f, 1.0f, 3.0f}) {
      const std::vector<Warp> warps(tokens.size(), Warp{.temperature = temperature});
      const Distributions p = backend.distributions(backend.upload(logits), warps);
      for (std::size_t i = 0; i < tokens.size(); ++i) {
        double sum = 0;
        for (int id = 0; id < rows; ++id) sum += p[int(i)](id);
        EXPECT_NEAR(sum, 1, 1e-5);
        for (int id = kStored; id < rows; ++id) ASSERT_EQ(p[int(i)](id), 0);
      }
    }
  }
}

TEST(HeadRows, TokensOfBothSizesHaveTheSameLogits) {
  const auto reference = make_reference_backend(), cpu = make_cpu_backend(2);
  for (const char* dtype : {"auto", "f32"}) {
    expect_same_distributions(*reference, {.dtype = dtype});
    expect_same_distributions(*cpu, {.dtype = dtype});
    expect_same_distributions(*cpu, {.dtype = dtype}, /*tied=*/false);
  }
}

// The cap of logits (Gemma 2) leaves those of missing rows at -inf.
TEST(HeadRows, CapsLeaveMissingTokensOut) {
  const auto reference = make_reference_backend(), cpu = make_cpu_backend(2);
  OpenModel gemma = open_model((kTinyModels / "gemma2").string(), [](const std::string& p) { return p; });
  ASSERT_EQ(std::tuple(gemma.config.vocab, gemma.config.logit_softcap), std::tuple(96, 4.0));
  const OpenModel fitted = with_head_rows(std::move(gemma), 100);
  for (Backend* backend : {reference.get(), cpu.get()}) {
    Transformer draft(*backend, fitted.config, *fitted.tensors, "m", 0, {});
    const Tensor logits = Chain(*backend, draft, 4).feed(std::vector<Token>{5, 6, 7});
    for (int row = 0; row < 3; ++row)
      for (int id = 0; id < 100; ++id) {
        const float logit = logits.row<float>(row)[id];
        if (id < 96)
          ASSERT_LE(std::abs(logit), 4);
        else
          ASSERT_EQ(logit, -std::numeric_limits<float>::infinity()) << backend->name();
      }
  }
}

TEST(HeadRows, SoDoRoundedHeads) {
  const auto cpu = make_cpu_backend(2);
  for (const char* head : {"int8", "int4", "w8a8"}) expect_same_distributions(*cpu, {.head_dtype = head});
}

}  // namespace
}  // namespace foretoken::test
