// How models are called in results: by name, revision and hash.
#include <filesystem>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "experiments/sweep/alternation.h"
#include "experiments/sweep/measure.h"
#include "experiments/sweep/provenance.h"
#include "tests/experiments/sweep/demo_runs.h"
#include "tests/framework/text/temporary_folder.h"

namespace foretoken::test {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

json identity(const fs::path& path) {
  const ModelIdentity found = model_identity(path);
  json all{{"name", found.name}};
  if (found.revision) all["revision"] = *found.revision;
  return all;
}

TEST(ModelIdentity, IsThatOfTheCacheOrTheFileOrTheFolder) {
  const TemporaryFolder folder;
  const fs::path snapshot = folder.path() / "hub" / "models--org--some-model" / "snapshots" / "0123abcd";
  fs::create_directories(snapshot);
  const json cached{{"name", "org/some-model"}, {"revision", "0123abcd"}};
  EXPECT_EQ(identity(snapshot), cached);
  EXPECT_EQ(identity(snapshot / ""), cached);
  EXPECT_EQ(identity(snapshot / "." / ".." / "0123abcd"), cached);
  const fs::path plain = folder.path() / "plain";
  fs::create_directories(plain);
  EXPECT_EQ(identity(plain), json({{"name", "plain"}}));
  folder.write("plain/config.json", R"({"_commit_hash": "ffee"})");
  EXPECT_EQ(identity(plain), json({{"name", "plain"}, {"revision", "ffee"}}));
  for (const char* broken : {"{", "[]", R"({"_commit_hash": 5})", R"({"_commit_hash": null})"}) {
    folder.write("plain/config.json", broken);
    EXPECT_EQ(identity(plain), json({{"name", "plain"}})) << broken;
  }
  EXPECT_EQ(identity(folder.write("no.gguf", "nothing")), json({{"name", "no.gguf"}}));
}

TEST(ModelIdentity, OfAGgufFileIsTheNameThatItHolds) {
  const fs::path data = fs::path(FORETOKEN_SOURCE_DIR) / "tests" / "data" / "gguf";
  for (const auto& entry : fs::directory_iterator(data))
    if (entry.path().extension() == ".gguf") {
      EXPECT_FALSE(model_identity(entry.path()).name.empty()) << entry.path();
    }
}

TEST_F(Runs, ALineNamesWhatItWasMeasuredWith) {
  const json line = measured({{"engine", {{"device", "auto"}, {"threads", 0}}}, {"measure", {{"repeats", 1}}}});
  EXPECT_EQ(line["run"]["engine"]["threads"], 0);
  if (line["machine"]["device"] == "cpu") {
    EXPECT_GT(line["machine"]["threads"].get<int>(), 0) << "as many as it took";
  }
  for (const char* name : {"target", "draft"}) {
    const std::string path = std::string("experiments/models/") + name;
    ASSERT_TRUE(line["models"].contains(path)) << line["models"];
    EXPECT_EQ(line["models"][path]["name"], name);
    EXPECT_EQ(line["models"][path]["hash"], line["sources"][path]);
  }
  EXPECT_EQ(line["outputs"]["baseline"], line["outputs"]["speculative"]) << "greedy";
}

TEST_F(Runs, TheHashOfOutputsIsThatOfTheTokensAlone) {
  const json once = {{"measure", {{"repeats", 1}}}, {"sampling", {{"temperature", 1}}}};
  json other_batch = once, other_seed = once;
  other_batch["engine"]["batch"] = 1, other_seed["sampling"]["seed"] = 5;
  other_batch["workload"]["limit"] = 12;  // as many prompts as a batch of two has
  const std::string plain = measured(once)["outputs"]["baseline"];
  EXPECT_EQ(measured(once)["outputs"]["baseline"], plain);
  EXPECT_EQ(measured(other_batch)["outputs"]["baseline"], plain) << "a batch changes no output";
  EXPECT_NE(measured(other_seed)["outputs"]["baseline"], plain);
  EXPECT_NE(hash_of_outputs(HashedOutputs{1, 2}), hash_of_outputs(HashedOutputs{2, 1})) << "in their order";
  EXPECT_NE(hash_of_outputs(HashedOutputs{1, std::nullopt}), hash_of_outputs(HashedOutputs{1}));
}

TEST(SameOrigin, SeesNoClocks) {
  Origin a;
  a.machine.emplace();
  a.machine->description = "x";
  a.machine->clocks_mhz = GpuClocks{.sm = 1980, .memory = std::nullopt, .sm_most = std::nullopt};
  a.machine->driver = "1";
  Origin b = a;
  b.machine->clocks_mhz->sm = 900;
  b.machine->power_limit_watts = 300;
  EXPECT_TRUE(same_origin(a, b));
  b.machine->driver = "2";
  EXPECT_FALSE(same_origin(a, b));
}

}  // namespace
}  // namespace foretoken::test
