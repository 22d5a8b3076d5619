// How far a backend's logits are from those that Transformers gives in fp32 (tests/data/golden, made by
// tests/golden/make_golden.py). This module must not know which backend it is given.
#pragma once
#include <filesystem>
#include <string>

#include <gtest/gtest.h>

#include "framework/model/model_files.h"
#include "tests/framework/model/chain.h"

namespace foretoken::test {

const std::filesystem::path kRoot = FORETOKEN_SOURCE_DIR;
const std::filesystem::path kTinyModels = kRoot / "tests" / "data" / "models";

// Every value is f32, whatever the checkpoint stores, so that only the order of sums may differ from Transformers'.
const TransformerOptions kSingle{.dtype = "f32", .kv_dtype = "f32"};

inline Transformer golden_model(Backend& backend, const std::filesystem::path& directory,
                                const TransformerOptions& options) {
  const auto files = ModelFiles::open(directory);
  return {backend, files->config(), *files->tensors(), directory.filename().string(), 0, options};
}

// Checks that every prompt's logits equal Transformers' to `bound` times the greatest. With a piece > 0 the prompt is
// fed again in pieces of so many tokens, and must give the same bits. Returns the number of prompts.
inline int meet_transformers(Backend& backend, Transformer& model, double bound, std::size_t piece) {
  const Checkpoint golden =
      Checkpoint::open_file(kRoot / "tests" / "data" / "golden" / (model.info().name + ".safetensors"));
  int prompts = 0;
  for (; golden.has("ids" + std::to_string(prompts)); ++prompts) {
    const Tensor ids = golden.tensor("ids" + std::to_string(prompts)),
                 want = golden.tensor("logits" + std::to_string(prompts));
    const auto tokens = std::span<const Token>(ids.values<std::int32_t>());
    const Tensor logits = Chain(backend, model, int(tokens.size())).feed(tokens, int(want.dim(0)));
    EXPECT_EQ(logits.shape(), want.shape());
    if (logits.shape() != want.shape()) return 0;
    EXPECT_LE(relative_error(logits.values<float>(), want.values<float>()), bound)
        << model.info().name << ", prompt " << prompts;
    Chain pieces(backend, model, int(tokens.size()));
    for (std::size_t begin = 0; piece > 0 && begin < tokens.size(); begin += piece) {
      const Tensor part = pieces.feed(tokens.subspan(begin, std::min(piece, tokens.size() - begin)));
      EXPECT_EQ(std::memcmp(part.raw(), logits.row<float>(std::int64_t(begin)), std::size_t(part.bytes())), 0)
          << model.info().name << ", prompt " << prompts << ", piece at " << begin;
    }
  }
  return prompts;
}

}  // namespace foretoken::test
