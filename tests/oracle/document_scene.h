// Run documents over a small random model whose tokens are bytes, up to requests and engines.
#pragma once
#include <set>

#include "experiments/session/run_document.h"
#include "experiments/sweep/runner.h"
#include "tests/framework/text/temporary_folder.h"
#include "tests/oracle/scene.h"

namespace foretoken::oracle {

inline constexpr const char* kConfig = R"({"architectures": ["LlamaForCausalLM"], "vocab_size": 256, "hidden_size": 32,
  "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1,
  "head_dim": 16, "max_position_embeddings": 128, "rms_norm_eps": 1e-05, "rope_theta": 10000.0})";
inline constexpr const char* kPrompts = R"({"prompt": "first", "category": "a"}
{"prompt": "second", "category": "b"}
{"prompt": "third", "category": "a"}
{"prompt": "fourth", "category": "b"}
{"turns": ["fifth", "not asked"], "category": "c"}
)";

struct Document : ::testing::Test {
  test::TemporaryFolder folder;
  Workbench bench;
  Registries registries = bench.registries();
  json model;

  Document() {
    folder.write("config.json", kConfig), folder.write("prompts.jsonl", kPrompts);
    folder.write("tokenizer.json", bytes_file().dump());
    model = {{"random", folder.path().string()}, {"seed", 1}, {"tokenizer", folder.path().string()}};
  }
  // The least document with one group of keys changed.
  json run(const std::string& group = "", const json& changes = {}) {
    json document = {{"target", {{"model", model}, {"kv_dtype", "f32"}}},
                     {"engine", {{"device", "cpu"}, {"threads", 1}, {"memory_mib", 1}}},
                     {"workload", {{"prompts", (folder.path() / "prompts.jsonl").string()}}}};
    if (!changes.empty()) document[group].update(changes);
    return complete_run(document, registries, "test");
  }
  ModelInfo info() const {
    ModelInfo i;
    i.vocab = 256, i.positions = 128, i.stop_tokens = {7, 3};
    return i;
  }
  Request request(const json& run, std::uint64_t sample = 0) {
    return request_of(run, info(), bytes(), chat_of(run, ""), {.number = 5, .text = "a b", .category = ""}, sample);
  }
  std::unique_ptr<Engine> engine(const json& run, Side side = Side::speculative) {
    return bench.engine(run, side, "", registries);
  }
  // Two prompts of 40 tokens, one after another; the reports of all steps.
  std::vector<StepReport> steps(const json& run, int requests = 2) {
    const auto e = engine(run);
    std::vector<StepReport> reports;
    for (int i = 0; i < requests; ++i) {
      Request r;
      r.prompt = Tokens(40, 9), r.limits.max_new_tokens = 3;
      e->submit(std::move(r));
      if (i == 0) reports.push_back(e->step());
    }
    while (!e->idle() && reports.size() < 500) reports.push_back(e->step());
    return reports;
  }
};

}  // namespace foretoken::oracle
