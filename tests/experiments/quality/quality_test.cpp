// What `quality` refuses before it measures anything.
#include "experiments/quality/quality.h"

#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "experiments/quantize/quantize.h"
#include "framework/text/json_file.h"
#include "tests/support/sentence.h"

namespace foretoken::test {
namespace {

namespace fs = std::filesystem;

const fs::path kDraft = fs::path(FORETOKEN_SOURCE_DIR) / "experiments" / "models" / "draft";

class QualityRefuses : public testing::Test {
 protected:
  void SetUp() override { fs::create_directories(here_); }
  void TearDown() override { fs::remove_all(here_); }

  // The sentence; nothing is measured before it.
  std::string refusal(const fs::path& model, const std::vector<std::string>& dtypes) const {
    QualityOptions o;
    o.model = model.string(), o.dtypes = dtypes, o.device = "cpu", o.quiet = true, o.max_new_tokens = 0;
    o.windows.predicted = 20, o.results = (here_ / "results.jsonl").string();
    const std::string sentence = sentence_of([&] { (void)run_quality(o); });
    EXPECT_FALSE(fs::exists(o.results) && fs::file_size(o.results) > 0) << "a row was measured before the refusal";
    return sentence;
  }

  // Of one test: they run at the same time.
  fs::path here_ = fs::temp_directory_path() / (std::string("foretoken_quality_") +
                                                ::testing::UnitTest::GetInstance()->current_test_info()->name());
};

TEST_F(QualityRefuses, ATypeThatContradictsTheCheckpointInAnyRow) {
  QuantizeOptions o;
  o.model = kDraft, o.format = "int4", o.out = here_ / "int4";
  (void)quantize_checkpoint(o, [](int, int) {});
  EXPECT_TRUE(says(refusal(o.out, {"bf16", "nf4"}), "contradicts", "'nf4'"));
}

TEST_F(QualityRefuses, ATypeWhoseGroupsDoNotDivideInAnyRow) {
  const fs::path narrow = here_ / "narrow";
  fs::create_directories(narrow);
  for (const auto& entry : fs::directory_iterator(kDraft)) fs::copy(entry.path(), narrow);
  auto config = read_json(narrow / "config.json");
  config["intermediate_size"] = 160;
  std::ofstream(narrow / "config.json") << config;
  EXPECT_TRUE(says(refusal(narrow, {"int8", "fp8_block"}), "160 inputs", "'model.layers.0.mlp.down_proj", "fp8_block",
                   "out of --dtype"));
}

TEST_F(QualityRefuses, CachesThatAreNotThinnedByTwoNumbers) {
  for (const char* thinned : {"256", "4+", "+256", "4+0", "-1+256", "4+256x", "4+1e3", "4 + 256"}) {
    QualityOptions o;
    o.model = kDraft.string(), o.thinned = {"4+16", thinned}, o.device = "cpu", o.quiet = true;
    EXPECT_TRUE(says(sentence_of([&] { (void)run_quality(o); }), std::string("'") + thinned + "' of --thin", "4+256"));
  }
}

// Less of the cache predicts worse, and all of it as the model does.
TEST(QualityThinned, IsARowBesideTheWholeCache) {
  const fs::path results = fs::temp_directory_path() / "foretoken_quality_thinned.jsonl";
  fs::remove(results);
  QualityOptions o;
  o.model = kDraft.string(), o.thinned = {"0+16", "4+500"}, o.device = "cpu", o.quiet = true, o.format = "json";
  o.windows.predicted = 400, o.results = results.string();
  testing::internal::CaptureStdout();
  EXPECT_EQ(run_quality(o), 0);
  (void)testing::internal::GetCapturedStdout();
  std::ifstream file(results);
  std::string first, second;
  std::getline(file, first), std::getline(file, second);
  const auto few = nlohmann::json::parse(first)["quality"], all = nlohmann::json::parse(second)["quality"];
  EXPECT_EQ(few["thinned"], "0+16");
  EXPECT_EQ(all["thinned"], "4+500");
  EXPECT_GT(few["predictions"]["kl"]["value"], 0.01);
  EXPECT_EQ(all["predictions"]["kl"]["value"], 0);
  EXPECT_TRUE(few["outputs"].is_null());
  fs::remove(results);
}

// Types that the model's own JSON chooses are part of what is judged, not of what it is judged by.
TEST(QualityReference, IsTheModelAsStored) {
  const fs::path results = fs::temp_directory_path() / "foretoken_quality_reference.jsonl";
  fs::remove(results);
  QualityOptions o;
  o.model = nlohmann::json({{"directory", kDraft.string()}, {"head_dtype", "int4"}}).dump();
  o.dtypes = {"auto"}, o.device = "cpu", o.quiet = true, o.max_new_tokens = 0, o.format = "json";
  o.windows.predicted = 200, o.results = results.string();
  testing::internal::CaptureStdout();
  EXPECT_EQ(run_quality(o), 0);
  (void)testing::internal::GetCapturedStdout();
  const nlohmann::json line = read_json(results);
  EXPECT_EQ(line["run"]["target"]["model"]["head_dtype"], "int4");
  EXPECT_EQ(line["reference"]["target"].dump().find("int4"), std::string::npos);
  EXPECT_GT(line["quality"]["predictions"]["kl"]["value"], 0.001);
  fs::remove(results);
}

}  // namespace
}  // namespace foretoken::test
