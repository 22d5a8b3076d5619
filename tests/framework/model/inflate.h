// A small model and the same one inflated, side by side on the reference backend in fp32.
#pragma once
#include <gtest/gtest.h>

#include "framework/model/inflation.h"
#include "tests/framework/model/chain.h"

namespace foretoken::test {

// A shape with everything larger than `small`: 3 layers more, wider, heads twice and groups one query larger, and
// `extra_tokens`.
inline ModelConfig larger(const ModelConfig& small, int extra_tokens, bool tied) {
  ModelConfig large = small;
  large.vocab += extra_tokens, large.layers += 3, large.width += 100, large.ffn += 70;
  large.head_size *= 2, large.kv_heads += 1, large.heads = large.kv_heads * (small.heads / small.kv_heads + 1);
  large.tied_head = tied;
  large.positions += 1000, large.rope_theta = 500000, large.rope_scaling = {};
  return large;
}

struct Pair {
  Pair(const std::filesystem::path& directory, const std::function<ModelConfig(const ModelConfig&)>& shape,
       const std::string& dtype = "f32")
      : config(ModelConfig::load(directory)),
        checkpoint(std::make_shared<Checkpoint>(Checkpoint::open(directory))),
        weights(checkpoint, config, shape(config), "the small model", "the shape", dtype == "f32"),
        small(*backend, config, *checkpoint, "small", 0, {dtype, "f32"}),
        large(*backend, weights.config(), weights, "large", 0, {dtype, "f32"}) {}

  std::unique_ptr<Backend> backend = make_reference_backend();
  ModelConfig config;
  std::shared_ptr<const Checkpoint> checkpoint;
  InflatedWeights weights;
  Transformer small, large;
};

// Checks that logits of the small vocabulary agree to `bound` times the greatest, and that no other token can be drawn
// at any temperature.
inline void expect_same_logits(Pair& pair, std::span<const Token> tokens, double bound = 1e-5) {
  const Tensor want = Chain(*pair.backend, pair.small, int(tokens.size())).feed(tokens);
  const Tensor have = Chain(*pair.backend, pair.large, int(tokens.size())).feed(tokens);
  ASSERT_EQ(have.shape(), (Shape{want.dim(0), pair.large.info().vocab}));
  for (std::int64_t r = 0; r < want.dim(0); ++r) {
    const std::span<const float> small(want.row<float>(r), std::size_t(want.dim(1)));
    const std::span<const float> large(have.row<float>(r), std::size_t(have.dim(1)));
    EXPECT_LE(relative_error(large.first(small.size()), small), bound) << "row " << r;
    const float greatest = std::ranges::max(small);
    for (const float x : large.subspan(small.size())) ASSERT_LT(x, greatest - 20000) << "row " << r;
  }
}

// Greedy decoding.
inline std::vector<Token> greedy(Backend& backend, Model& model, std::span<const Token> prompt, int tokens) {
  Chain chain(backend, model, int(prompt.size()) + tokens);
  std::vector<Token> text;
  Tensor logits = chain.feed(prompt, 1);
  for (int i = 0; i < tokens; ++i) {
    const auto row = logits.values<float>();
    text.push_back(Token(std::ranges::max_element(row) - row.begin()));
    logits = chain.feed({&text.back(), 1});
  }
  return text;
}

}  // namespace foretoken::test
