// Every committed document of experiments/configs/ is valid for this program and names files that exist.
#include <set>

#include <gtest/gtest.h>

#include "experiments/bench/bench_scenarios.h"
#include "experiments/sweep/run_document.h"
#include "experiments/sweep/sweep.h"
#include "experiments/sweep/workload.h"
#include "framework/model/model_choice.h"

namespace foretoken::test {
namespace {

using nlohmann::json;

// The directory of a model, if it has one.
void expect_model(const json& owner) {
  if (!owner.contains("model")) return;
  const ModelChoice choice = ModelChoice::read(owner["model"], owner.value("inflate", json()));
  if (!choice.directory.empty()) {
    EXPECT_TRUE(std::filesystem::exists(locate(choice.directory) / "config.json")) << choice.directory;
  }
}

void expect_runnable(const json& run, const Registries& registries) {
  expect_model(run["target"]);
  expect_model(run["drafter"]);
  EXPECT_FALSE(choose_prompts(read_prompts(locate(run["workload"]["prompts"])), run["workload"]["categories"],
                              run["workload"]["limit"])
                   .empty());
  EXPECT_EQ(complete_run(run, registries, "again"), run) << "a complete run is complete";
}

TEST(Configs, EveryOneIsUnderstood) {
  Registries registries;
  register_drafters(registries), register_verifiers(registries);
  std::set<std::string> found;
  for (const auto& entry : std::filesystem::recursive_directory_iterator("experiments/configs")) {
    if (entry.path().extension() != ".json") continue;
    const std::string file = entry.path().string();
    SCOPED_TRACE(file);
    found.insert(entry.path().filename().string());
    const auto document = read_document(file);
    if (document.contains("scenarios")) {
      for (const Scenario& scenario : read_scenarios(file, "", "", registries))
        expect_model(scenario.run["target"]), expect_model(scenario.run["drafter"]);
    } else {
      for (const foretoken::Run& run : expand(document, {}, registries, file))
        expect_runnable(run.document, registries);
    }
  }
  for (const char* name : {"quickstart.json", "lengths.json", "verifiers.json", "copying.json", "inflated.json",
                           "steps.json", "soak.json"})
    EXPECT_TRUE(found.contains(name)) << name;
}

}  // namespace
}  // namespace foretoken::test
