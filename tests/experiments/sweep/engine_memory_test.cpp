// The memory figures of a run: weights, caches and scratch of the demo models on the devices of this machine.
#include <gtest/gtest.h>

#include "experiments/session/run_document.h"
#include "experiments/sweep/measure.h"
#include "experiments/sweep/runner.h"
#include "framework/components/host.h"
#include "tests/support/states.h"

namespace foretoken::test {
namespace {

using nlohmann::json;

json measured(const json& changes, Workbench& bench) {
  json run = {
      {"target", {{"model", "experiments/models/target"}}},
      {"drafter", {{"name", "draft_model"}, {"model", "experiments/models/draft"}}},
      {"policy", {{"length", 3}}},
      {"engine", {{"batch", 2}, {"device", "cpu"}, {"threads", 1}, {"memory_mib", 32}}},
      {"workload", {{"prompts", "experiments/prompts.jsonl"}, {"limit", 4}, {"repeats", 3}, {"max_new_tokens", 8}}},
      {"measure", {{"repeats", 1}}}};
  run.merge_patch(changes);
  const json document = complete_run(run, bench.registries(), "test");
  const json line = to_json(measure_run({document, json::object(), key_of(document)}, bench, "", [](double) {}));
  EXPECT_FALSE(line.contains("error")) << line["error"];
  return {line["repeats"][0]["speculative"]["memory"], line["repeats"][0]["baseline"]["memory"]};
}

constexpr const char *kTarget = "experiments/models/target", *kDraft = "experiments/models/draft";

// Loads all models that it is given, with a cache for each of them.
class Loads final : public Drafter {
 public:
  Loads(Host& host, const std::vector<json>& models) : backend_(host.backend()) {
    for (const json& m : models) caches_.push_back(host.cache(host.load(ModelChoice::read(m))));
  }
  std::vector<DraftTree> draft(std::span<const DraftRequest> requests) override { return rooted(backend_, requests); }

 private:
  Backend& backend_;
  std::vector<std::shared_ptr<CachedModel>> caches_;
};

struct Loaded {
  MemoryUsed figures;
  std::int64_t target, draft;  // of the models themselves
};

// The figures of an engine of this target whose drafter has caches for these models.
Loaded loaded(const json& target, const std::vector<json>& models) {
  Workbench bench;
  Registries registries = bench.registries();
  registries.drafters.add("loads", entry_that<Drafter>(states(Needs()), [&](const json&, Host& host) {
                            return std::make_unique<Loads>(host, models);
                          }));
  const auto run = [&](const json& model, const char* drafter) {
    return complete_run({{"target", {{"model", model}}},
                         {"drafter", {{"name", drafter}}},
                         {"engine", {{"batch", 2}, {"device", "cpu"}, {"threads", 1}, {"memory_mib", 32}}},
                         {"workload", {{"prompts", "experiments/prompts.jsonl"}, {"limit", 1}}}},
                        registries, "test");
  };
  const auto engine = bench.engine(run(target, "loads"), Side::speculative, "", registries);
  const auto bytes = [&](const json& model) {
    const ModelInfo info = bench.target(run(model, "none"), "")->info();
    EXPECT_GT(info.table_bytes, 0) << "the case has an embedding besides the head, which lies in tiles";
    return info.weight_bytes + info.table_bytes;
  };
  return {EngineMemory(*engine).figures(), bytes(target), models.empty() ? 0 : bytes(models.front())};
}

TEST(EngineMemory, IsThatOfWeightsAndEmbeddings) {
  const Loaded l = loaded(kTarget, {kDraft});
  EXPECT_EQ(l.figures.target_weights, l.target);
  EXPECT_EQ(l.figures.draft_weights, l.draft);
}

TEST(EngineMemory, CountsEachModelOnce) {
  const Loaded twice = loaded(kTarget, {kDraft, kDraft}), itself = loaded(kTarget, {kTarget}),
               both = loaded(kTarget, {kDraft, kTarget, kDraft}), none = loaded(kTarget, {});
  EXPECT_EQ(twice.figures.draft_weights, twice.draft);
  EXPECT_EQ(itself.figures.draft_weights, 0);
  EXPECT_EQ(both.figures.draft_weights, both.draft);
  EXPECT_EQ(none.figures.draft_weights, 0);
  EXPECT_EQ(itself.figures.target_weights, itself.target);
}

// What was held and given back before says nothing of an engine.
TEST(EngineMemory, BeginsWithTheEngine) {
  Workbench bench;
  json run = complete_run({{"target", {{"model", kDraft}}},
                           {"drafter", {{"name", "none"}}},
                           {"engine", {{"batch", 2}, {"device", "cpu"}, {"threads", 1}, {"memory_mib", 32}}},
                           {"workload", {{"prompts", "experiments/prompts.jsonl"}, {"limit", 1}}}},
                          bench.registries(), "test");
  const auto engine = bench.engine(run, Side::speculative, "");
  Backend& device = bench.backend(run["engine"]);
  (void)device.allocate({64 << 20}, DType::u8);
  const EngineMemory memory(*engine);
  EXPECT_EQ(memory.figures().scratch, 0);
  {
    const Tensor held = device.allocate({1 << 20}, DType::u8);
  }
  const std::int64_t scratch = *memory.figures().scratch;
  EXPECT_GE(scratch, 1 << 20);
  EXPECT_LE(scratch, 2 << 20) << "a block may be larger than what is asked for";
  EXPECT_EQ(memory.figures().cache, engine->pool().page_bytes() * (engine->pool().pages() + 1));
  EXPECT_EQ(memory.figures().cache_used, 0);
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
  EXPECT_EQ(fast["states_per_token"], 0);
}

// Three states of 384 numbers in bf16, beside no other drafter.
TEST(EngineMemory, SaysWhatHiddenStatesTake) {
  Workbench bench;
  const json eagle{{"drafter", {{"name", "eagle3"}, {"head", "experiments/models/heads/eagle3"}, {"model", nullptr}}}};
  const json both = measured(eagle, bench);
  EXPECT_EQ(both[0]["states_per_token"], 3 * 384 * 2);
  EXPECT_EQ(both[1]["states_per_token"], 0);
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
  EXPECT_FALSE(slow.contains("scratch"));
  EXPECT_GT(slow["target_weights"], 0);
}

}  // namespace
}  // namespace foretoken::test
