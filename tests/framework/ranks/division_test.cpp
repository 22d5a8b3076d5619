// A model divided among ranks computes what the whole computes, the same bits on every rank and in every batch; its
// parts are the whole's numbers; what does not divide is refused.
#include <gtest/gtest.h>

#include "framework/model/quantized/quantization.h"
#include "framework/model/random_weights.h"
#include "kernels/formats/activations/activation_format.h"
#include "tests/framework/model/chain.h"
#include "tests/framework/ranks/divided_models.h"
#include "tests/support/sentence.h"

namespace foretoken::test {
namespace {

const std::vector<Token> kText{1, 5, 2, 9, 9, 3, 1, 5, 7, 30, 31, 95, 0, 4};

// Logits of a text on each rank, fed in chunks of so many tokens.
std::vector<std::vector<float>> logits_of(RankedModels& models, int ranks, int chunk) {
  std::vector<std::vector<float>> all(static_cast<std::size_t>(ranks));
  models.on_each([&](int r) {
    Chain chain(models.backend(r), *models.models(r).target, 16);
    for (std::size_t at = 0; at < kText.size(); at += std::size_t(chunk)) {
      const Tensor found = chain.feed(std::span(kText).subspan(at, std::min(std::size_t(chunk), kText.size() - at)));
      const auto values = found.values<float>();
      all[std::size_t(r)].insert(all[std::size_t(r)].end(), values.begin(), values.end());
    }
  });
  return all;
}

std::vector<float> whole_logits(const OpenModel& open, const MakeHost& make) {
  const auto backend = make();
  const auto model = loaded_tiny(*backend, open, "whole");
  const Tensor found = Chain(*backend, *model, 16).feed(kText);
  return {found.values<float>().begin(), found.values<float>().end()};
}

struct DividedCase {
  const char* target;
  int ranks, expert;
};
void PrintTo(const DividedCase& c, std::ostream* to) { *to << c.target << "_" << c.ranks << "_" << c.expert; }

struct DividedModel : ::testing::TestWithParam<DividedCase> {};

TEST_P(DividedModel, ComputesWhatTheWholeDoes) {
  const auto& [target, ranks, expert] = GetParam();
  for (const MakeHost& make : {MakeHost(reference), MakeHost(one_thread)}) {
    RankedModels models({target, ranks, expert, make});
    const auto together = logits_of(models, ranks, 14), apart = logits_of(models, ranks, 3);
    // Sums of products are added in another order, and on the cpu rounded to bf16 before others are made of them.
    EXPECT_LT(relative_error(together[0], whole_logits(opened_tiny(target), make)),
              make()->name() == "reference" ? 2e-6 : 0.02);
    for (int r = 0; r < ranks; ++r) {
      EXPECT_EQ(together[std::size_t(r)], together[0]) << r;
      EXPECT_EQ(apart[std::size_t(r)], together[0]) << r;  // whatever is in the batch
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, DividedModel,
                         testing::Values(DividedCase{"llama2", 2, 1}, DividedCase{"llama2", 4, 1},
                                         DividedCase{"llama3", 2, 1}, DividedCase{"gemma2", 2, 1},
                                         DividedCase{"phi3", 2, 1}, DividedCase{"qwen2", 2, 1},
                                         DividedCase{"mixtral", 2, 1}, DividedCase{"mixtral", 2, 2},
                                         DividedCase{"qwen2_moe", 2, 1}),
                         testing::PrintToStringParamName());

// Of products of which each rank has a part; no tiny checkpoint that divides has them.
TEST(Division, BiasesAreAddedOnce) {
  OpenModel open = opened_tiny("llama2");
  open.config.qkv_bias = open.config.out_bias = open.config.mlp_bias = true;
  open.tensors = std::make_shared<RandomWeights>(11);
  RankedModels models({.target = "llama2", .open = open});
  const auto found = logits_of(models, 2, 14);
  EXPECT_LT(relative_error(found[0], whole_logits(open, reference)), 2e-6);
  OpenModel without = open;
  without.config.out_bias = without.config.mlp_bias = false;
  EXPECT_GT(relative_error(whole_logits(without, reference), whole_logits(open, reference)), 1e-3);
}

// The memory of a rank: half of the products and of the cache.
TEST(Division, ARankHasItsShareAlone) {
  ReferenceBackend b;
  const auto group = std::make_shared<RankGroup>(2);
  const auto whole = loaded_tiny(b, opened_tiny("llama2"), "whole"),
             part = loaded_tiny(b, divided(opened_tiny("llama2"), {{group, 1}}), "part");
  const std::int64_t head = 96 * 64 * 4;
  EXPECT_EQ(2 * (part->info().weight_bytes - head), whole->info().weight_bytes - head);
  EXPECT_EQ(2 * part->info().kv.bytes_per_row(), whole->info().kv.bytes_per_row());
}

// Matrices that are rounded when they are loaded are rounded whole. Groups of 128 inputs are the largest.
TEST(Division, PartsAreTheNumbersOfTheWholeInEveryFormat) {
  constexpr std::int64_t kSize = 256, kHalf = kSize / 2;
  const auto group = std::make_shared<RankGroup>(2);
  ModelConfig config = opened_tiny("llama2").config;
  config.width = config.ffn = kSize, config.head_size = kSize / config.heads;
  for (const Precision& p : precisions()) {
    const OpenModel whole{config, std::make_shared<RandomWeights>(7), p.name};
    const auto rounded = [&](const std::string& module) {
      return dequantized(quantize(whole.tensors->matrix(module, {kSize, kSize}), p, {}, whole.tensors->scales()));
    };
    const std::string rows = "model.layers.0.self_attn.q_proj", columns = "model.layers.1.mlp.down_proj";
    const Weight all_rows = rounded(rows), all_columns = rounded(columns);
    for (const int r : {0, 1}) {
      const OpenModel part = divided(whole, {{group, r}});
      const Weight some_rows = dequantized(part.tensors->matrix(rows, {kHalf, kSize})),
                   some_columns = dequantized(part.tensors->matrix(columns, {kSize, kHalf}));
      EXPECT_TRUE(same(some_rows.values, all_rows.values.rows(kHalf * r, kHalf))) << p.name;
      for (std::int64_t o = 0; o < kSize; ++o)
        for (std::int64_t i = 0; i < kHalf; ++i)
          ASSERT_EQ(some_columns.values.row<bf16>(o)[i].bits, all_columns.values.row<bf16>(o)[kHalf * r + i].bits)
              << p.name;
    }
  }
}

// Checkpoints of every quantizer, as stored or as dense numbers.
TEST(Division, CodesThatAreStoredAreCutBetweenGroupsOrRefused) {
  const auto folder = std::filesystem::path(FORETOKEN_SOURCE_DIR) / "tests/data/quantized";
  int divided_ones = 0, refused = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = "quantized/" + entry.path().filename().string();
    for (const char* dtype : {"auto", "bf16"}) {
      const OpenModel open = opened_tiny(name, dtype);
      const bool rounds = open.config.quantization && open.config.quantization->activations().bits > 0;
      const std::string why = sentence_of([&] {
        RankedModels models({.target = "llama2", .open = open});
        // Where inputs are rounded too, their scale is that of a rank's part.
        EXPECT_LT(relative_error(logits_of(models, 2, 14)[0], whole_logits(open, reference)), rounds ? 0.05 : 1e-5)
            << name << " " << dtype;
        ++divided_ones;
      });
      if (why.empty()) continue;
      EXPECT_TRUE(says(why, "parallel")) << name << " " << dtype;
      EXPECT_FALSE(holds(why, "share a scale") && std::string(dtype) == "bf16") << name << why;
      ++refused;
    }
  }
  EXPECT_GT(divided_ones, 20);
  EXPECT_GT(refused, 0);
}

TEST(Division, WhatDoesNotDivideIsRefused) {
  const auto refusal = [](const char* name, int ranks, int expert = 1, const char* dtype = "auto") {
    return sentence_of(
        [&] { (void)divided(opened_tiny(name, dtype), {{std::make_shared<RankGroup>(ranks), 0}, expert}); });
  };
  EXPECT_TRUE(says(refusal("llama2", 3), "4 attention heads", "divide by 3", "\"tensor\""));
  EXPECT_TRUE(says(refusal("bf16", 2), "1 heads of keys and values", "divide by 2"));
  EXPECT_TRUE(says(refusal("llama2", 2, 2), "no experts", "\"expert\""));
  EXPECT_TRUE(says(refusal("qwen2_moe", 2, 2), "5 experts", "divide by 2", "\"expert\""));
  EXPECT_TRUE(says(refusal("llama2", 4, 1, "mxfp4"), "16 inputs", "of the 32", "dtype"));
  EXPECT_TRUE(says(refusal("olmo2", 2), "one norm of all heads"));
  EXPECT_TRUE(says(refusal("gpt_oss", 2), "sinks in attention"));
  EXPECT_TRUE(says(refusal("deepseek2", 2), "latent attention"));
  EXPECT_EQ(refusal("llama2", 2, 1, "mxfp4"), "");
  EXPECT_EQ(refusal("llama2", 4, 1, "int8"), "");  // a scale for all inputs
}

}  // namespace
}  // namespace foretoken::test
