// Compaction alone, as in `foretoken bench --steps`: its bytes, on every device of this machine, and its line.
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "experiments/bench/bench_steps.h"
#include "tests/framework/text/temporary_folder.h"

namespace foretoken::test {
namespace {

using nlohmann::json;

TEST(BenchCompaction, BytesAreReadAndWritten) {
  const CompactionLoad load{64, 1024, 8, KvShape(32, 8, 128, DType::bf16)};
  EXPECT_EQ(load.bytes(), 2.0 * 64 * 8 * 32 * 2 * 8 * 128 * 2);
}

TEST(BenchCompaction, RunsOnEveryBackendOfAHost) {
  for (const auto& backend : {make_reference_backend(), make_cpu_backend(2)})
    for (const DType dtype : {DType::bf16, DType::i8}) {
      const KvShape cache(2, 2, 16, dtype);
      for (const CompactionLoad& load : {CompactionLoad{1, 16, 1, cache}, CompactionLoad{3, 64, 13, cache}})
        EXPECT_GT(compaction_seconds(*backend, load, 2), 0) << backend->name();
      EXPECT_TRUE(says(sentence_of([&] { compaction_seconds(*backend, {1, 31, 9, cache}, 1); }), "9 rows",
                       "context of 31", "at least 32"));
    }
}

TEST(BenchCompaction, HasALineOfItsOwn) {
  const TemporaryFolder folder;
  const json target = {{"model", "experiments/models/draft"}},
             scenarios = {{{"name", "step"}, {"target", target}, {"context", 32}, {"steps", 2}},
                          {{"name", "moves"},
                           {"target", target},
                           {"context", 32},
                           {"steps", 2},
                           {"moves", 8},
                           {"over", "step"},
                           {"most", 1e9}}};
  StepsOptions options;
  options.file =
      folder.write("s.json", json{{"engine", {{"device", "cpu"}, {"threads", 1}}}, {"scenarios", scenarios}}.dump());
  options.json = true, options.only = "";
  testing::internal::CaptureStdout();
  EXPECT_EQ(run_steps(options), 0);
  const std::string out = testing::internal::GetCapturedStdout();
  const json line = json::parse(out.substr(out.find('\n') + 1));
  EXPECT_GT(line.at("compaction_us"), 0);
  EXPECT_EQ(line.at("rows"), 8);
  EXPECT_EQ(line.at("bars").at(0).at("met"), true);
  options.json = false;
  testing::internal::CaptureStdout();
  EXPECT_EQ(run_steps(options), 0);
  EXPECT_TRUE(
      says(testing::internal::GetCapturedStdout(), "\nmoves ", "of keys and values", "of 'step' (at most 1e+09: met)"));
}

}  // namespace
}  // namespace foretoken::test
