// A GGUF file in a whole run: as the target, as the draft, as a shape and as the tokenizer of random weights.
#include "experiments/session/run_document.h"
#include "experiments/session/workbench.h"
#include "experiments/sweep/runner.h"
#include "experiments/sweep/sweep.h"
#include "kernels/error.h"
#include "tests/framework/text/temporary_folder.h"
#include "tests/support/sentence.h"

namespace foretoken::test {
namespace {

using nlohmann::json;

constexpr const char* kModel = "tests/data/gguf/qwen2.gguf";

class GgufRuns : public testing::Test {
 protected:
  json run(const json& changes) {
    const std::string prompts = folder_.write("p.jsonl", "{\"prompt\": \"Hello, world\"}\n").string();
    json document = {
        {"target", {{"model", kModel}}},
        {"drafter", {{"name", "draft_model"}, {"model", kModel}}},
        {"policy", {{"length", 3}}},
        {"engine", {{"batch", 1}, {"device", "cpu"}, {"threads", 1}, {"check", true}}},
        {"workload",
         {{"prompts", prompts}, {"repeats", 6}, {"lengths", "equal"}, {"max_new_tokens", 12}, {"ignore_eos", true}}},
        {"measure", {{"repeats", 1}, {"warmup", false}}}};
    document.merge_patch(changes);
    return complete_run(document, bench.registries(), "test");
  }
  json line(const json& run) {
    return to_json(measure_run({run, json::object(), key_of(run)}, bench, "", [](double) {}));
  }

  TemporaryFolder folder_;
  Workbench bench;
};

TEST_F(GgufRuns, TargetAndDraft) {
  const json result = line(run({{"workload", {{"chat", "auto"}}}}));
  EXPECT_EQ(result.value("error", ""), "");
  EXPECT_GT(result["agreement"]["compared_texts"].get<int>(), 0);
  EXPECT_EQ(result["agreement"]["differing_texts"], 0);
  const json& speculative = result["repeats"][0]["speculative"];
  EXPECT_GT(speculative["accepted"].get<int>(), 0);
  EXPECT_EQ(speculative["accepted"], speculative["tested"]) << "the draft is the target";
}

// A prompt's template is the file's: the question between <|im_start|>user and <|im_end|>.
TEST_F(GgufRuns, PromptsHaveTheFormOfTheFile) {
  const json chat = run({{"workload", {{"chat", "auto"}}}});
  const auto jobs = jobs_of(chat, bench, "");
  const auto tokenizer = bench.tokenizer(ModelChoice(kModel), "");
  EXPECT_EQ(tokenizer->decode(jobs.front().request.prompt, true), "<|im_start|>user\nHello, world<|im_end|>\n")
      << "its template writes no beginning of an answer";
}

TEST_F(GgufRuns, ShapesAndTokenizers) {
  const json random = {{"random", "tests/data/gguf/qwen2.gguf"}, {"tokenizer", kModel}};
  EXPECT_EQ(line(run({{"target", {{"model", random}}}, {"drafter", {{"model", random}}}})).value("error", ""), "");
  EXPECT_EQ(bench.target_info(run({{"target", {{"model", random}}}}), "").vocab, 656);
}

TEST_F(GgufRuns, WhatIsNoModel) {
  const auto refusal = [&](const std::string& model) {
    return sentence_of([&] { bench.target(run({{"target", {{"model", model}}}}), ""); });
  };
  EXPECT_TRUE(says(refusal("experiments/models/target/model.safetensors"), "model.safetensors is not a GGUF file",
                   "a directory with config.json"));
  EXPECT_TRUE(says(refusal("no/such.gguf"), "no/such.gguf does not exist", "or of a .gguf file"));
}

}  // namespace
}  // namespace foretoken::test
