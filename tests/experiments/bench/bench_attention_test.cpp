// Attention alone, as in `foretoken bench --steps`: its bytes, on every device of this machine, and its lines.
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "experiments/bench/bench_steps.h"
#include "framework/text/json_file.h"
#include "tests/framework/text/temporary_folder.h"

namespace foretoken::test {
namespace {

using nlohmann::json;

// The cache of a layer of this model.
LayerShape layer_of(const ModelConfig& m, DType dtype) { return {m.kv_heads, m.head_size, dtype}; }

TEST(BenchAttention, BytesAreKeysAndValuesOnce) {
  const LayerShape bf16{8, 128, DType::bf16}, codes{8, 128, DType::e4m3};
  const auto bytes = [](int rows, const LayerShape& layer) { return AttentionLoad{64, 4096, rows, layer}.bytes(); };
  EXPECT_EQ(bytes(1, bf16), 64.0 * 4096 * 8 * 128 * 2 * 2);
  EXPECT_EQ(bytes(1, codes), 64.0 * 4096 * 8 * (128 + 4) * 2) << "a scale for each token and head";
  EXPECT_EQ(bytes(8, bf16), bytes(1, bf16)) << "rows share what they read";
  EXPECT_DOUBLE_EQ(share_of(1e9, 0.5e-3, 4e12), 0.5);
}

// Also on the reference device, which reads every page and table of the layout.
TEST(BenchAttention, RunsOnEveryBackendOfAHost) {
  const ModelConfig m = ModelConfig::load("experiments/models/draft");
  for (const auto& backend : {make_reference_backend(), make_cpu_backend(2)})
    for (const DType dtype : {DType::bf16, DType::i8}) {
      const LayerShape layer = layer_of(m, dtype);
      for (const AttentionLoad& load : {AttentionLoad{1, 1, 1, layer}, AttentionLoad{3, 37, 5, layer}})
        EXPECT_GT(attention_seconds(*backend, m, load, 2), 0) << backend->name();
    }
  const AttentionLoad beyond{1, 4, 5, layer_of(m, DType::bf16)};
  EXPECT_TRUE(
      says(sentence_of([&] { attention_seconds(*make_reference_backend(), m, beyond, 1); }), "5 rows", "context of 4"));
}

class AttentionScenario : public testing::Test {
 protected:
  // The printed line of a scenario with this share of the bandwidth as its bar.
  std::string printed(double share, bool as_json) const {
    const json scenario = {{"name", "alone"},   {"target", {{"model", "experiments/models/draft"}}},
                           {"attention", true}, {"batch", 2},
                           {"context", 64},     {"guesses", 3},
                           {"steps", 2},        {"share", share}};
    StepsOptions options;
    options.file =
        folder.write("s.json", json{{"engine", {{"device", "cpu"}, {"threads", 1}}}, {"scenarios", {scenario}}}.dump());
    options.json = as_json, options.results = (folder.path() / "steps.jsonl").string();
    testing::internal::CaptureStdout();
    EXPECT_EQ(run_steps(options), 0);
    return testing::internal::GetCapturedStdout();
  }
  TemporaryFolder folder;
};

TEST_F(AttentionScenario, HasALineOfItsOwn) {
  const json line = json::parse(printed(1e-9, true));
  EXPECT_EQ(json::parse(read_file(folder.path() / "steps.jsonl")), line);
  const ModelConfig m = ModelConfig::load("experiments/models/draft");
  EXPECT_EQ(line.at("kv_bytes"), (AttentionLoad{2, 64, 4, layer_of(m, DType::bf16)}.bytes()));
  EXPECT_EQ(line.at("rows"), 4);
  EXPECT_NEAR(line.at("share"),
              line["kv_bytes"].get<double>() / (line["layer_us"].get<double>() * 1e-6) /
                  line["read_bytes_per_second"].get<double>(),
              1e-9);
  EXPECT_EQ(line.at("met"), true);
  for (const char* key : {"machine", "commit", "date"}) EXPECT_TRUE(line.contains(key)) << key;
}

TEST_F(AttentionScenario, SaysWhetherItsBarIsMet) {
  EXPECT_TRUE(says(printed(1e-9, false), "\nalone ", "us a layer", "of the copy bandwidth (at least 1e-09: met)\n"));
  EXPECT_TRUE(says(printed(1e9, false), "(at least 1e+09: MISSED)\n"));
}

}  // namespace
}  // namespace foretoken::test
