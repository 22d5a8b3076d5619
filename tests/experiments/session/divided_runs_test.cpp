// Runs whose target is divided: their documents, their engines, what is refused before weights are read.
#include <gtest/gtest.h>

#include "experiments/session/engine_loop.h"
#include "experiments/session/run_document.h"
#include "experiments/session/workbench.h"
#include "kernels/reference/reference_backend.h"
#include "tests/support/sentence.h"

namespace foretoken::test {
namespace {

using nlohmann::json;

struct DividedRuns : ::testing::Test {
  Workbench bench;
  json run(const json& changes) {
    json document = {{"target", {{"model", "experiments/models/target"}, {"dtype", "f32"}, {"kv_dtype", "f32"}}},
                     {"drafter", {{"name", "draft_model"}, {"model", "experiments/models/draft"}}},
                     {"policy", {{"length", 3}}},
                     {"engine", {{"batch", 2}, {"device", "cpu"}, {"threads", 1}, {"check", true}}},
                     {"workload", {{"prompts", "experiments/prompts.jsonl"}, {"max_new_tokens", 20}}}};
    document.merge_patch(changes);
    return complete_run(document, bench.registries(), "test");
  }
  json divided(int tensor = 2) { return {{"parallel", {{"tensor", tensor}}}}; }
  std::unique_ptr<Engine> engine(const json& changes, Side side = Side::speculative) {
    return bench.engine(run(changes), side, "");
  }
  // Of an engine loop, whose thread is rank 0 then.
  std::vector<std::vector<Token>> outputs(const json& changes) {
    const json document = run(changes);
    const auto made = bench.engine(document, Side::speculative, "");
    const auto words = bench.tokenizer(target_of(document), "");
    EngineLoop loop(*made);
    std::vector<TokenStream> streams;
    for (int i = 0; const char* text : {"Once upon a time there was a", "The river was", "Tom and Anna went to"})
      streams.push_back(loop.submit(
          request_of(document, made->target().info(), words, {}, {.number = i++, .text = text, .category = {}}, 0)));
    std::vector<std::vector<Token>> all;
    for (TokenStream& s : streams)
      all.emplace_back(s.ended().tokens.begin() + s.ended().prompt_length, s.ended().tokens.end());
    return all;
  }
};

TEST_F(DividedRuns, DecodeWhatARunOnOneDeviceDoes) {
  for (const double temperature : {0.0, 1.0}) {
    json one = {{"sampling", {{"temperature", temperature}}}, {"workload", {{"stop", {"river"}}}}}, two = one;
    two.update(divided());
    EXPECT_EQ(outputs(two), outputs(one)) << temperature;
  }
}

TEST_F(DividedRuns, HaveHalfOfTheModelAndTwiceThePages) {
  const auto one = engine(json::object()), two = engine(divided()), baseline = engine(divided(), Side::baseline);
  EXPECT_EQ(two->pool().pages(), 2 * one->pool().pages());
  EXPECT_LT(two->target().info().weight_bytes, one->target().info().weight_bytes);
  EXPECT_EQ(two->target().model(), baseline->target().model());
  EXPECT_EQ(bench.target_info(run(divided()), "").kv.layers, two->target().info().kv.layers);
}

// Rows of equal runs are equal text: who does not divide does not say so.
TEST_F(DividedRuns, AreWrittenInOneForm) {
  EXPECT_EQ(run({{"parallel", {{"tensor", 1}, {"expert", 1}}}}), run(json::object()));
  EXPECT_FALSE(run(json::object()).contains("parallel"));
  EXPECT_EQ(run({{"parallel", {{"tensor", 2}, {"expert", 1}}}}).at("parallel"), json({{"tensor", 2}}));
}

TEST_F(DividedRuns, ThatCannotBeDividedAreRefused) {
  const auto refusal = [&](const json& changes) { return sentence_of([&] { engine(changes); }); };
  EXPECT_TRUE(says(refusal({{"parallel", {{"tensor", 3}}}}), "heads of keys and values", "divide by 3"));
  EXPECT_TRUE(says(refusal({{"parallel", {{"tensor", 2}, {"expert", 2}}}}), "no experts"));
  EXPECT_TRUE(says(refusal({{"parallel", {{"tensor", 4}, {"expert", 3}}}}), "'/parallel/expert' is 3", "divide"));
  EXPECT_TRUE(says(refusal({{"parallel", {{"tensors", 2}}}}), "unknown key '/parallel/tensors'", "tensor"));
  EXPECT_TRUE(says(refusal({{"parallel", {{"tensor", 2}}}, {"trace", "a.jsonl"}}), "trace", "one device"));
  EXPECT_TRUE(says(sentence_of([&] { (void)bench.target(run(divided()), ""); }), "without an engine"));
  EXPECT_TRUE(bench.engine(run(json::object()), Side::speculative, ""));  // and nothing is broken
}

TEST(Devices, AreCountedBeforeTheyAreUsed) {
  struct Gpu final : ReferenceBackend {
    std::string name() const override { return "cuda"; }
  } gpu;
  EXPECT_TRUE(
      says(sentence_of([&] { expect_devices(gpu, 64); }), "'/parallel/tensor' is 64", "this machine has", "GPU"));
  EXPECT_EQ(sentence_of([] { expect_devices(ReferenceBackend(), 64); }), "");
}

}  // namespace
}  // namespace foretoken::test
