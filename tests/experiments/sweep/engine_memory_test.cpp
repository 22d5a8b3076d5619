// The memory figures of a run: weights, caches and scratch of the demo models on the devices of this machine.
#include <gtest/gtest.h>

#include "experiments/sweep/run_document.h"
#include "experiments/sweep/runner.h"

namespace foretoken::test {
namespace {

using nlohmann::json;

json measured(const json& changes, Workbench& bench) {
  json run = {{"target", {{"model", "experiments/models/target"}}},
              {"drafter", {{"name", "draft_model"}, {"model", "experiments/models/draft"}}},
              {"policy", {{"length", 3}}},
              {"engine", {{"batch", 2}, {"device", "cpu"}, {"threads", 1}, {"memory_mib", 32}}},
              {"workload", {{"prompts", "experiments/prompts.jsonl"}, {"limit", 4}, {"max_new_tokens", 8}}},
              {"measure", {{"repeats", 1}}}};
  run.merge_patch(changes);
  const json document = complete_run(run, bench.registries(), "test");
  const json line = measure_run({document, json::object(), key_of(document)}, bench, "", [](double) {});
  EXPECT_FALSE(line.contains("error")) << line["error"];
  return {line["repeats"][0]["speculative"]["memory"], line["repeats"][0]["baseline"]["memory"]};
}

TEST(EngineMemory, IsThatOfModelsPoolAndSteps) {
  Workbench bench;
  const json both = measured(json::object(), bench), &fast = both[0], &plain = both[1];
  EXPECT_GT(fast["target_weights"], 20'000'000);  // 14 M parameters in bf16
  EXPECT_GT(fast["draft_weights"], 1'500'000);    // 1 M
  EXPECT_LT(fast["draft_weights"], fast["target_weights"]);
  EXPECT_EQ(plain["draft_weights"], 0);
  EXPECT_EQ(plain["target_weights"], fast["target_weights"]);
  EXPECT_GT(fast["cache"], 30 << 20);
  EXPECT_LE(fast["cache"], 33 << 20);  // and the page of padding rows
  EXPECT_GT(fast["cache_used"], 0);
  EXPECT_LT(fast["cache_used"], fast["cache"]);
  EXPECT_GT(fast["cache_used"], plain["cache_used"]) << "the draft has keys and values too";
  // The logits of 2 x 4 rows of a vocabulary of 4096 at least, and less than the weights.
  EXPECT_GT(fast["scratch"], 2 * 4 * 4096 * 4);
  EXPECT_LT(fast["scratch"], fast["target_weights"]);
}

// The logits of an earlier run are not lost from the figure because their memory is kept. They are counted by their
// size, and when they are fresh by that of their block, which may be a quarter larger. (Kept memory may also be more
// than an engine needs.)
TEST(EngineMemory, CountsLogitsThatWereThereBefore) {
  Workbench bench;
  const json large = {{"engine", {{"batch", 32}}}, {"policy", {{"length", 8}}}, {"measure", {{"warmup", false}}}};
  const double first = measured(large, bench)[0]["scratch"], again = measured(large, bench)[0]["scratch"];
  EXPECT_GT(again, 0.8 * first);
}

TEST(EngineMemory, OfFewerBitsIsLess) {
  Workbench bench;
  const json dense = measured(json::object(), bench)[0], int4 = measured({{"target", {{"dtype", "int4"}}}}, bench)[0];
  EXPECT_LT(int4["target_weights"], dense["target_weights"]);
  EXPECT_EQ(int4["draft_weights"], dense["draft_weights"]);
}

TEST(EngineMemory, IsUnknownWhereADeviceDoesNotCount) {
  Workbench bench;
  const json slow = measured({{"engine", {{"device", "reference"}}}, {"workload", {{"limit", 1}}}}, bench)[0];
  EXPECT_TRUE(slow["scratch"].is_null());
  EXPECT_GT(slow["target_weights"], 0);
}

}  // namespace
}  // namespace foretoken::test
