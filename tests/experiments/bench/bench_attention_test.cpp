// Attention alone, as in `foretoken bench --steps`: its bytes, on every device of this machine, and its lines.
#include "experiments/bench/bench_attention.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "experiments/bench/bench_steps.h"
#include "framework/text/json_file.h"
#include "tests/framework/text/temporary_folder.h"

namespace foretoken::test {
namespace {

using nlohmann::json;

TEST(BenchAttention, BytesAreKeysAndValuesOnce) {
  ModelConfig m;
  m.heads = 32, m.kv_heads = 8, m.head_size = 128;
  EXPECT_EQ((AttentionLoad{64, 4096, 1}.bytes(m)), 64.0 * 4096 * 8 * 128 * 2 * 2);
  EXPECT_EQ((AttentionLoad{64, 4096, 8}.bytes(m)), (AttentionLoad{64, 4096, 1}.bytes(m)))
      << "rows share what they read";
  EXPECT_DOUBLE_EQ(share_of(1e9, 0.5e-3, 4e12), 0.5);
}

// Also on the reference device, which reads every page and table of the layout.
TEST(BenchAttention, RunsOnEveryBackendOfAHost) {
  const ModelConfig m = ModelConfig::load("experiments/models/draft");
  for (const auto& backend : {make_reference_backend(), make_cpu_backend(2)})
    for (const AttentionLoad& load : {AttentionLoad{1, 1, 1}, AttentionLoad{3, 37, 5}})
      EXPECT_GT(attention_seconds(*backend, m, load, 2), 0) << backend->name();
  EXPECT_TRUE(says(sentence_of([&] { attention_seconds(*make_reference_backend(), m, {1, 4, 5}, 1); }), "5 rows",
                   "context of 4"));
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
  EXPECT_EQ(line.at("kv_bytes"), (AttentionLoad{2, 64, 4}.bytes(m)));
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
