// The committed heads beside the demo target, as they are and inflated with it: in fp32 every round drafts and accepts
// the same.
#include <gtest/gtest.h>

#include "experiments/session/run_document.h"
#include "experiments/sweep/runner.h"
#include "tests/framework/text/temporary_folder.h"

namespace foretoken::test {
namespace {

using nlohmann::json;

constexpr const char
    *kLarge =
        R"({"architectures": ["LlamaForCausalLM"], "vocab_size": 4200, "hidden_size": 400, "intermediate_size": 1040,
        "num_hidden_layers": 11, "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 128,
        "max_position_embeddings": 4096, "rms_norm_eps": 1e-5, "tie_word_embeddings": false})",
    *kDraft =
        R"({"architectures": ["LlamaForCausalLM"], "vocab_size": 4200, "hidden_size": 160, "intermediate_size": 600,
        "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64,
        "max_position_embeddings": 4096, "rms_norm_eps": 1e-5, "tie_word_embeddings": true})";

struct InflatedRuns : ::testing::TestWithParam<const char*> {
  InflatedRuns() { large.write("config.json", kLarge), draft.write("config.json", kDraft); }

  json drafter(bool inflates) const {
    const std::string name = GetParam(), path = "experiments/models/heads/" + name;
    if (name == "pard") {
      json d{{"name", name}, {"model", path}, {"dtype", "f32"}};
      if (inflates) d["inflate"] = draft.path().string();
      return d;
    }
    json head = path;
    if (inflates) head = {{"directory", path}, {"inflate", large.path().string()}};
    if (inflates && name == "eagle3") head["draft_vocab"] = 2000;
    if (inflates && name == "dflash") head["layers"] = 3;
    return {{"name", name}, {"head", head}, {"dtype", "f32"}};
  }
  // What the speculative side counts.
  json counts(bool inflates) {
    json target{{"model", "experiments/models/target"}, {"dtype", "f32"}, {"kv_dtype", "f32"}};
    if (inflates) target["inflate"] = large.path().string();
    const json run{{"target", target},
                   {"drafter", drafter(inflates)},
                   {"policy", {{"length", 4}}},
                   {"engine", {{"batch", 2}, {"device", "cpu"}, {"threads", 1}, {"memory_mib", 64}}},
                   {"sampling", {{"temperature", 0}}},
                   {"workload", {{"prompts", "experiments/prompts.jsonl"}, {"limit", 2}, {"max_new_tokens", 16}}},
                   {"measure", {{"repeats", 1}, {"warmup", false}}}};
    const json document = complete_run(run, bench.registries(), "test");
    const json line = to_json(measure_run({document, json::object(), key_of(document)}, bench, "", [](double) {}));
    EXPECT_FALSE(line.contains("error")) << line["error"];
    const json& side = line["repeats"][0]["speculative"];
    json found;
    for (const char* key : {"tokens", "rounds", "rows", "drafted", "tested", "accepted"}) found[key] = side.at(key);
    return found;
  }

  TemporaryFolder large, draft;
  Workbench bench;
};

TEST_P(InflatedRuns, DraftAndAcceptTheSame) {
  const json small = counts(false);
  EXPECT_GT(small["accepted"], 6);
  EXPECT_EQ(counts(true), small);
}

INSTANTIATE_TEST_SUITE_P(CommittedHeads, InflatedRuns, testing::Values("eagle3", "mtp", "pard", "dflash"),
                         [](const auto& instance) { return std::string(instance.param); });

}  // namespace
}  // namespace foretoken::test
