// Quantized caches under the laws on the GPU, in invariant numerics: greedy texts are plain decoding's, and no text
// depends on its batch. The models have heads of 128, so single rows take the stream of codes, and prompts, trees and
// longer drafts its tiles: their bits must be equal.
#include <gtest/gtest.h>

#include "experiments/conformance/laws.h"
#include "framework/model/open_model.h"
#include "framework/model/transformer.h"
#include "tests/framework/text/temporary_folder.h"
#include "tests/laws/subjects.h"
#include "tests/support/gpu.h"

namespace foretoken::test {

using namespace conformance;

namespace {

// The demo models embedded in a shape with four query heads of 128 for each kv head.
constexpr const char* kShape = R"({"architectures": ["LlamaForCausalLM"], "vocab_size": 4500, "hidden_size": 448,
  "intermediate_size": 1088, "num_hidden_layers": 9, "num_attention_heads": 12, "num_key_value_heads": 3,
  "head_dim": 128, "max_position_embeddings": 4096, "rms_norm_eps": 1e-05, "rope_theta": 500000.0})";

struct WideModels {
  TemporaryFolder folder;
  std::unique_ptr<Backend> backend = make_gpu({.invariant = true});

  WideModels() { folder.write("config.json", kShape); }
  std::shared_ptr<Model> model(const std::string& name, const std::string& kv_dtype) const {
    ModelChoice choice("experiments/models/" + name);
    choice.inflate = folder.path().string();
    const OpenModel open = open_model(choice, [](const std::string& directory) {
      const std::filesystem::path path = directory;
      return path.is_absolute() ? path : FORETOKEN_SOURCE_DIR / path;
    });
    return std::make_shared<Transformer>(*backend, open.config, *open.tensors, name, 0,
                                         TransformerOptions{.dtype = "bf16", .kv_dtype = kv_dtype});
  }
  Models models(const std::string& kv_dtype, const std::string& draft_kv_dtype) const {
    const auto target = model("target", kv_dtype), draft = model("draft", draft_kv_dtype);
    return {target, [=](const ModelChoice& m) { return m.directory == "table:same" ? target : draft; }};
  }
};

const Scenario kQuantized{.sampling = {.temperature = 0},
                          .engine = {.batch = 4, .step_rows = 64, .page_rows = 16, .pages = 256, .check = true}};

// Dtypes of the target's cache and of the draft's.
using Caches = std::pair<const char*, const char*>;
const auto kCaches = ::testing::Values(Caches("fp8", "int8"), Caches("int8", "fp8"), Caches("bf16", "int8"));

class QuantizedCacheTexts : public ::testing::TestWithParam<Caches> {};
INSTANTIATE_TEST_SUITE_P(Caches, QuantizedCacheTexts, kCaches);

TEST_P(QuantizedCacheTexts, greedy_text_is_plain_decodings) {
  const WideModels wide;
  const Models models = wide.models(GetParam().first, GetParam().second);
  const auto requests = random_requests(6, models.target->info().vocab, 200, 24, 5);
  long accepted = 0, rejected = 0;
  for (const Subject& s : subjects(all_registries(), 4)) {
    const Finding f = same_text({s, kQuantized, *wide.backend, models, requests});
    EXPECT_TRUE(f.holds) << f.what;
    accepted += f.accepted, rejected += f.rejected;
  }
  EXPECT_GT(accepted, 0);
  EXPECT_GT(rejected, 0);
}

constexpr int kBatchParts = 4;

class QuantizedCacheBatches : public ::testing::TestWithParam<std::tuple<Caches, int>> {};
INSTANTIATE_TEST_SUITE_P(CachesAndParts, QuantizedCacheBatches,
                         ::testing::Combine(kCaches, ::testing::Range(0, kBatchParts)));

TEST_P(QuantizedCacheBatches, greedy_text_is_the_same_in_every_batch) {
  const auto& [caches, part] = GetParam();
  const WideModels wide;
  const Models models = wide.models(caches.first, caches.second);
  const auto requests = random_requests(6, models.target->info().vocab, 200, 24, 5);
  Scenario alone = kQuantized;
  alone.engine.batch = 1, alone.engine.step_rows = 512;
  for (const Subject& s : part_of(subjects(all_registries(), 4), part, kBatchParts))
    EXPECT_EQ(run_scenario({s, alone, *wide.backend, models, requests}).outputs,
              run_scenario({s, kQuantized, *wide.backend, models, requests}).outputs)
        << s.text();
}

TEST(QuantizedCacheLaws, caches_hold_what_a_prefill_at_once_holds) {
  const WideModels wide;
  const Models models = wide.models("fp8", "int8");
  const auto requests = random_requests(5, models.target->info().vocab, 150, 10, 9);
  for (const Subject& s : subjects(all_registries(), 3)) {
    const Finding f = cache({s, kQuantized, *wide.backend, models, requests});
    EXPECT_TRUE(f.holds) << f.what.substr(0, 800);
  }
}

}  // namespace
}  // namespace foretoken::test
