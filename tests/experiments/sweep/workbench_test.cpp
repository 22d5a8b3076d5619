// Generated models in whole runs on the CPU: random weights, and inflated models with unchanged outputs.
#include "experiments/session/workbench.h"

#include "experiments/session/run_document.h"
#include "experiments/sweep/measure.h"
#include "experiments/sweep/runner.h"
#include "experiments/sweep/sweep.h"
#include "kernels/error.h"
#include "kernels/reference/reference_backend.h"
#include "tests/framework/text/temporary_folder.h"
#include "tests/support/sentence.h"

namespace foretoken::test {
namespace {

using nlohmann::json;

// A shape at least as large as the demo models in every size.
constexpr const char* kShape = R"({"architectures": ["LlamaForCausalLM"], "vocab_size": 4500, "hidden_size": 448,
  "intermediate_size": 1088, "num_hidden_layers": 9, "num_attention_heads": 12, "num_key_value_heads": 3,
  "head_dim": 128, "max_position_embeddings": 4096, "rms_norm_eps": 1e-05, "rope_theta": 500000.0})";

class MadeModels : public testing::Test {
 protected:
  MadeModels() { folder_.write("config.json", kShape); }

  json run(const json& changes) {
    json document = {{"target", {{"model", "experiments/models/target"}, {"dtype", "f32"}, {"kv_dtype", "f32"}}},
                     {"drafter", {{"name", "draft_model"}, {"model", "experiments/models/draft"}, {"dtype", "f32"}}},
                     {"policy", {{"length", 3}}},
                     {"engine", {{"batch", 2}, {"device", "cpu"}, {"threads", 1}, {"check", true}}},
                     {"workload",
                      {{"prompts", "experiments/prompts.jsonl"},
                       {"limit", 3},
                       {"repeats", 4},
                       {"lengths", "equal"},
                       {"max_new_tokens", 10}}},
                     {"measure", {{"repeats", 1}, {"warmup", false}}}};
    document.merge_patch(changes);
    return complete_run(document, bench.registries(), "test");
  }
  // The outputs of speculation, by request.
  std::vector<std::vector<Token>> texts(const json& run) {
    const auto engine = bench.engine(run, Side::speculative, "");
    return measure(*engine, jobs_of(run, bench, ""), run["engine"]["batch"].get<int>(), [](double) {}).outputs;
  }
  json line(const json& run) {
    return to_json(measure_run({run, json::object(), key_of(run)}, bench, "", [](double) {}));
  }

  TemporaryFolder folder_;
  std::string shape_ = folder_.path().string();
  Workbench bench;
};

// A draft model's cache is of the target's type, or of its own; both are written into the run.
TEST_F(MadeModels, CachesAreOfTheTypesThatTheRunNames) {
  const auto types = [&](const json& changes) {
    const auto engine = bench.engine(run(changes), Side::speculative, "");
    return std::pair{engine->target().info().kv.layers.front().dtype,
                     engine->host().caches().front()->info().kv.layers.front().dtype};
  };
  EXPECT_EQ(types(json::object()), std::pair(DType::f32, DType::f32));
  EXPECT_EQ(types({{"target", {{"kv_dtype", "int8"}}}}), std::pair(DType::i8, DType::i8));
  EXPECT_EQ(types({{"target", {{"kv_dtype", "bf16"}}}, {"drafter", {{"kv_dtype", "fp8"}}}}),
            std::pair(DType::bf16, DType::e4m3));
  EXPECT_EQ(types({{"target", {{"kv_dtype", "fp8"}}}, {"drafter", {{"kv_dtype", "auto"}}}}),
            std::pair(DType::e4m3, DType::bf16));
  const json beside = run({{"target", {{"kv_dtype", "int8"}}}});
  EXPECT_EQ(beside["drafter"]["kv_dtype"], "target");
  EXPECT_EQ(
      run({{"target",
            {{"model", {{"directory", "experiments/models/target"}, {"kv_dtype", "int8"}}}, {"kv_dtype", "auto"}}}}),
      beside);
  EXPECT_TRUE(
      says(sentence_of([&] { types({{"drafter", {{"kv_dtype", "int4"}}}}); }), "unknown kv_dtype 'int4'", "fp8"));
}

// Only that there is no GPU is a reason to be silent.
TEST(AutomaticDevice, TellsOnceWhyAGpuCannotBeUsed) {
  const auto cpu = [] { return make_cpu_backend(1); };
  const auto reference = [] { return make_reference_backend(); };
  const auto broken = []() -> std::unique_ptr<Backend> { throw Error("device cuda: no kernels"); };
  testing::internal::CaptureStderr();
  EXPECT_EQ(automatic_backend([] { return 1; }, reference, cpu)->name(), "reference");
  EXPECT_EQ(automatic_backend([] { return 0; }, broken, cpu)->name(), "cpu");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  testing::internal::CaptureStderr();
  for (int i = 0; i < 2; ++i) EXPECT_EQ(automatic_backend([] { return 1; }, broken, cpu)->name(), "cpu");
  const auto no_answer = []() -> int { throw Error("device cuda: the driver is too old"); };
  EXPECT_EQ(automatic_backend(no_answer, reference, cpu)->name(), "cpu");
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_EQ(std::ranges::count(said, '\n'), 2) << said;
  EXPECT_TRUE(says(said, "takes the CPU", "device cuda: no kernels", "the driver is too old"));
}

// The target would take minutes to make; a pair that does not fit is refused before.
TEST_F(MadeModels, AnUnsoundPairIsRefusedBeforeAnyModelIsLoaded) {
  Registries registries = bench.registries();
  registries.drafters.replace(
      "ngram", {"",
                "",
                {},
                [](const json&, Host&) -> std::unique_ptr<Drafter> { throw Error("it was made"); },
                [](const json&, const ModelInfo& target) {
                  return Needs{.proposes = {target.vocab == 128256 ? Drawn::without_replacement : Drawn::certain}};
                }});
  const json document = run({{"target", {{"model", {{"random", "llama-3.1-8b"}}}, {"dtype", "bf16"}}}});
  json large = document;
  large["drafter"] = {{"name", "ngram"}};
  EXPECT_TRUE(says(sentence_of([&] { bench.engine(large, Side::speculative, "", registries); }), "not sound",
                   "without_replacement"));
  EXPECT_EQ(bench.target_info(large, "").vocab, 128256);
  EXPECT_EQ(bench.target_info(large, "").weight_bytes, 0) << "it was not loaded";
}

TEST_F(MadeModels, InflatedWriteTheSame) {
  for (const double temperature : {0.0, 1.0}) {
    const json sampling = {{"sampling", {{"temperature", temperature}}}};
    json inflated = sampling;
    inflated["target"]["inflate"] = shape_, inflated["drafter"]["inflate"] = shape_;
    const auto want = texts(run(sampling)), have = texts(run(inflated));
    ASSERT_EQ(want.size(), 12u);
    EXPECT_EQ(want, have) << temperature;
  }
}

// Samples of one prompt differ in their draws, with or without shared pages; with penalties greedy outputs are still
// plain decoding's.
TEST_F(MadeModels, SamplesAndPenaltiesOfARun) {
  json one = {{"sampling", {{"temperature", 1}}}, {"verifier", {{"name", "coupled"}}}}, three = one;
  three["sampling"]["samples"] = 3;
  one["engine"]["reuse_prefixes"] = false;
  const auto alone = texts(run(one)),
             together = texts(run(three));  // [repeat][prompt] and [repeat][prompt][sample]
  ASSERT_EQ(alone.size(), 12u);
  ASSERT_EQ(together.size(), 36u);
  for (std::size_t prompt = 0; prompt < 3; ++prompt)
    for (std::size_t sample = 0; sample < 3; ++sample)
      EXPECT_EQ(together[3 * prompt + sample], alone[3 * sample + prompt]) << prompt << ", " << sample;
  const json adjusted = line(run({{"sampling",
                                   {{"repetition_penalty", 1.2},
                                    {"frequency_penalty", 0.2},
                                    {"samples", 2},
                                    {"logprobs", true},
                                    {"logit_bias", {{"17", -100}}}}}}));
  ASSERT_FALSE(adjusted.contains("error")) << adjusted["error"];
  EXPECT_EQ(adjusted["agreement"]["compared"], true);
  EXPECT_EQ(adjusted["agreement"]["differing_texts"], 0);
  EXPECT_GT(adjusted["repeats"][0]["speculative"]["prefix_rows"], 0);
  EXPECT_GT(adjusted["repeats"][0]["speculative"]["accepted"], 0);
  for (const json& request : adjusted["repeats"][0]["speculative"]["requests"])
    EXPECT_LT(request.value("log_probability", 1.0), 0);
  EXPECT_FALSE(line(run(json::object()))["repeats"][0]["speculative"]["requests"][0].contains("log_probability"));
}

TEST_F(MadeModels, InflatedAreNamed) {
  const json result = line(run({{"target", {{"inflate", shape_}}}, {"drafter", {{"inflate", shape_}}}}));
  ASSERT_FALSE(result.contains("error")) << result["error"];
  EXPECT_EQ(result["target"]["name"], "experiments/models/target inflated to " + shape_);
  EXPECT_EQ(result["target"]["vocab"], 4500);
  EXPECT_EQ(result["agreement"]["differing_texts"], 0);
}

TEST_F(MadeModels, RandomOnesServe) {
  const json random = {{"random", shape_}, {"seed", 5}};
  json changes = {{"target", {{"model", random}}}, {"drafter", {{"model", random}}}};
  changes["engine"]["memory_fraction"] = 0.01;
  const json document = run(changes);
  EXPECT_EQ(document["target"]["model"]["tokenizer"], "experiments/models/target");
  const json result = line(document);
  ASSERT_FALSE(result.contains("error")) << result["error"];
  EXPECT_EQ(result["target"]["name"], "random " + shape_ + " seed 5");
  EXPECT_EQ(result["agreement"]["differing_texts"], 0);
  const json& m = result["repeats"][0]["speculative"];
  EXPECT_EQ(m["tokens"], 120) << "nothing ends a random text early";
  EXPECT_EQ(m["accepted"], m["tested"]) << "the draft is the target";
}

// A share of the memory is measured once for runs of the same models, and models of other runs take no memory beside
// the pages.
TEST_F(MadeModels, OnesOfOtherRunsAreGoneWhenPagesAreMade) {
  json changes = {{"drafter", {{"name", "ngram"}, {"model", nullptr}, {"dtype", nullptr}}}};
  changes["engine"]["memory_fraction"] = 0.001;
  json other = changes, longer = changes;
  other["target"]["model"] = "experiments/models/draft-large", longer["policy"]["length"] = 2;
  const auto used = [&](const json& change) {
    const json document = run(change);
    (void)bench.engine(document, Side::speculative, "");
    const std::weak_ptr<Model> target = bench.target(document, "");
    bench.forget_unused();
    return target;
  };
  (void)used(changes);
  const auto large = used(other);
  EXPECT_FALSE(large.expired());
  (void)bench.engine(run(longer), Side::speculative, "");
  EXPECT_TRUE(large.expired());
}

// Whose free memory is what prepared matrices leave, so that other programs change nothing.
class Counted final : public ReferenceBackend {
 public:
  Weight prepare(Weight weight) override {
    Weight made = ReferenceBackend::prepare(std::move(weight));
    used_ += made.bytes();
    return made;
  }
  std::int64_t free_memory() const override { return (std::int64_t(1) << 30) - used_; }

 private:
  std::int64_t used_ = 0;
};

TEST_F(MadeModels, APoolLeavesRoomForTheHead) {
  json engine = run(json::object())["engine"];
  engine["device"] = "reference", engine["memory_mib"] = nullptr, engine["memory_fraction"] = 0.9;
  const auto pool = [&](const json& drafter, std::int64_t& weights) {
    bench.put_backend(engine, std::make_unique<Counted>());
    json document = run({{"engine", engine}});
    document["drafter"] = bench.registries().drafters.complete(drafter);
    const auto made = bench.engine(document, Side::speculative, "");
    weights = EngineMemory(*made).figures().draft_weights;
    return made->pool().memory().bytes();
  };
  std::int64_t none = 0, head = 0;
  const std::int64_t whole = pool({{"name", "ngram"}}, none),
                     beside = pool({{"name", "medusa"}, {"head", {{"random", "small"}, {"heads", 6}}}}, head);
  EXPECT_EQ(none, 0);
  EXPECT_GT(head, 30 << 20);
  EXPECT_NEAR(double(whole - beside) / (1 << 20), 0.9 * double(head) / (1 << 20), 3);
}

// The shape has rows for tokens that the tokenizer of both lacks.
TEST_F(MadeModels, ADraftModelNeedsNoRowsForPadding) {
  EXPECT_EQ(line(run({{"target", {{"inflate", shape_}}}})).value("error", ""), "");
}

TEST_F(MadeModels, WhatCannotBeMadeIsRefused) {
  const auto refusal = [&](const json& changes) { return sentence_of([&] { run(changes); }); };
  EXPECT_TRUE(
      says(refusal({{"target", {{"inflate", "llama-8b"}}}}), "test: ", "unknown shape 'llama-8b'", "llama-3.1-8b"));
  EXPECT_TRUE(says(refusal({{"drafter", {{"inflate", "x"}}}}), "drafter 'draft_model': unknown shape 'x'"));
  EXPECT_TRUE(says(refusal({{"drafter", {{"model", {{"seed", 1}}}}}}), "drafter 'draft_model': a model must be"));
  EXPECT_TRUE(says(refusal({{"engine", {{"memory_fraction", 1}}}}), "/engine/memory_fraction", "> 0, < 1"));
  EXPECT_TRUE(says(line(run({{"target", {{"inflate", "./nowhere"}}}})).value("error", ""), "./nowhere"));
  folder_.write("config.json", std::string(kShape).replace(std::string(kShape).find("448"), 3, "380"));
  EXPECT_TRUE(says(line(run({{"target", {{"inflate", shape_}}}})).value("error", ""),
                   "experiments/models/target cannot be inflated to " + shape_, "380 features, and 386 are needed"));
}

TEST_F(MadeModels, EqualChoicesAreOneRun) {
  const json a = {{"target", {{"model", {{"random", "llama-3.2-1b"}}}}}};
  const json b = {{"target", {{"model", {{"random", "llama-3.2-1b"}, {"seed", 1}}}, {"inflate", nullptr}}}};
  EXPECT_EQ(run(a), run(b));
  EXPECT_EQ(run(run(a)), run(a));
}

}  // namespace
}  // namespace foretoken::test
