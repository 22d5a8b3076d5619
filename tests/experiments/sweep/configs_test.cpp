// Every committed document of experiments/configs/ is valid for this program and names files that exist.
#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include <gtest/gtest.h>

#include "experiments/bench/bench_steps.h"
#include "experiments/report/published.h"
#include "experiments/session/run_document.h"
#include "experiments/sweep/sweep.h"
#include "experiments/sweep/workload.h"
#include "framework/components/pairing.h"
#include "framework/model/model.h"
#include "framework/model/model_choice.h"

namespace foretoken::test {
namespace {

using nlohmann::json;

// The directory of a model, if it has one.
void expect_model(const json& owner) {
  if (owner.value("model", json()).is_null()) return;
  const ModelChoice choice = ModelChoice::read(owner["model"], owner.value("inflate", json()));
  if (!choice.directory.empty()) {
    EXPECT_TRUE(std::filesystem::exists(locate(choice.directory) / "config.json")) << choice.directory;
  }
}

void expect_fits(const json& run, const Registries& registries) {
  if (run["drafter"]["name"] == "guesses") return;  // of bench alone: it is in no registry
  EXPECT_NO_THROW(expect_fit_whole(registries, {run["drafter"], run["policy"], run["verifier"]}, ModelInfo()));
}

void expect_runnable(const json& run, const Registries& registries) {
  expect_model(run["target"]);
  expect_model(run["drafter"]);
  EXPECT_FALSE(choose_prompts(read_prompts(locate(run["workload"]["prompts"])), run["workload"]["categories"],
                              run["workload"]["limit"])
                   .empty());
  EXPECT_EQ(complete_run(run, registries, "again"), run) << "a complete run is complete";
  expect_fits(run, registries);
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
      for (const foretoken::Scenario& scenario : read_scenarios(file, "", "", registries)) {
        expect_model(scenario.run["target"]), expect_model(scenario.run["drafter"]);
        expect_fits(scenario.run, registries);
      }
    } else {
      // One with figures of a paper names models that are not here, and runs with its stand-ins.
      EXPECT_FALSE(expand(document, {}, registries, file).empty());
      for (const foretoken::Run& run : expand(document, stand_ins(document, file), registries, file))
        expect_runnable(run.document, registries);
    }
  }
  for (const char* name :
       {"quickstart.json",     "lengths.json",     "verifiers.json",     "copying.json",      "inflated.json",
        "heads_inflated.json", "heads.json",       "heads_choice.json",  "formats.json",      "formats_inflated.json",
        "load.json",           "steps.json",       "steps_formats.json", "steps_caches.json", "steps_contexts.json",
        "thinned.json",        "steps_trees.json", "soak.json",          "spec_bench.json",   "leviathan.json",
        "steps_rows.json",     "steps_scales.json"})
    EXPECT_TRUE(found.contains(name)) << name;
}

// Every figure belongs to one run of its document, and every run has a figure.
TEST(Configs, PublishedFiguresHaveTheirRuns) {
  Registries registries;
  register_drafters(registries), register_verifiers(registries);
  int documents = 0;
  for (const auto& entry : std::filesystem::directory_iterator("experiments/configs/published")) {
    if (entry.path().extension() != ".json") continue;
    const std::string file = entry.path().string();
    SCOPED_TRACE(file);
    const auto document = read_document(file);
    PublishedDocument published{
        .name = file, .published = published_of(document, file).value(), .runs = {}, .names = {}};
    published.names = {named_values(document, {}, file)};
    std::vector<Result> none;
    for (const foretoken::Run& run : expand(document, {}, registries, file)) {
      published.runs.push_back(run.document);
      Result& result = none.emplace_back();
      result.key = run.key, result.run = run.document, result.error = "not measured";
    }
    const json found = json::parse(compare_published(none, published, {.format = "json", .results = file}));
    std::set<std::string> keys;
    for (const json& table : found["tables"])
      for (const json& row : table["rows"]) {
        EXPECT_EQ(row["models"], document["published"]["settings"].contains("models") ? "others" : "the paper's");
        EXPECT_TRUE(row["differs"].empty()) << row;
        keys.insert(row["key"].get<std::string>());
      }
    EXPECT_EQ(keys.size(), published.runs.size()) << "a run without a figure";
    ++documents;
  }
  EXPECT_EQ(documents, 10);
}

// The exact verifiers side by side on trees, by temperature, nodes and shape.
TEST(Configs, TreesHoldEveryExactVerifier) {
  Registries registries;
  register_drafters(registries), register_verifiers(registries);
  std::set<std::string> exact, measured;
  for (const std::string& name : registries.verifiers.names())
    if (registries.verifiers.traits({{"name", name}}, ModelInfo()).exact()) exact.insert(name);
  for (const std::string file : {"experiments/configs/trees.json", "experiments/configs/trees_without_repeats.json"}) {
    std::set<std::pair<std::string, std::string>> shapes;
    std::set<std::tuple<std::string, int, double>> runs;
    for (const foretoken::Run& run : expand(read_document(file), {}, registries, file)) {
      const std::string verifier = run.document["verifier"]["name"];
      measured.insert(verifier);
      shapes.insert({verifier, run.document["drafter"]["shape"].dump()});
      runs.insert({verifier, run.document["policy"]["nodes"], run.document["sampling"]["temperature"]});
    }
    for (const auto& [verifier, shape] : shapes) {
      EXPECT_EQ(std::ranges::count(shapes, verifier, &std::pair<std::string, std::string>::first), 2) << verifier;
      for (const int nodes : {4, 8, 16, 32, 64, 128})
        for (const double temperature : {0.0, 0.5, 1.0})
          EXPECT_TRUE(runs.contains({verifier, nodes, temperature})) << verifier << ", " << nodes << " nodes";
    }
  }
  EXPECT_EQ(measured, exact);
}

// Rows of one sequence, and batches of long contexts: what a change of attention is measured by.
TEST(Configs, StepsHoldRowsOfOneSequenceAndBatchesOfLongContexts) {
  Registries registries;
  register_drafters(registries), register_verifiers(registries);
  std::set<std::tuple<int, int, int>> found;  // batch, rows of a sequence, context
  for (const foretoken::Scenario& s : read_scenarios("experiments/configs/steps.json", "", "", registries)) {
    const json &model = s.run["target"]["model"], &drafter = s.run["drafter"]["name"];
    const bool plain = !s.prompt && !s.attention && (drafter == "none" || drafter == "guesses") &&
                       s.run["engine"]["numerics"] != "invariant";
    if (plain && model.is_object() && model.value("random", "") == "llama-3.1-8b")
      found.insert({s.batch, s.guesses + 1, s.context});
  }
  for (const int context : {1024, 8192, 32768})
    for (const int rows : {1, 16, 32, 64})
      EXPECT_TRUE(found.contains({1, rows, context})) << rows << " rows of one sequence, context " << context;
  for (const int batch : {4, 16}) EXPECT_TRUE(found.contains({batch, 1, 8192})) << "batch " << batch << " at 8192";
}

// Each tree is compared with chains of as many rows, and every exact verifier with its step.
TEST(Configs, StepsOfTreesHoldChainsOfAsManyRowsAndEveryVerifier) {
  Registries registries;
  register_drafters(registries), register_verifiers(registries);
  std::map<std::string, std::tuple<int, int, int>> chains;  // batch, rows of a sequence, context
  std::set<std::tuple<int, int, int>> trees;
  std::set<std::string> verified;
  int beside = 0, moves = 0, dynamic = 0;
  for (const foretoken::Scenario& s : read_scenarios("experiments/configs/steps_trees.json", "", "", registries)) {
    const std::tuple<int, int, int> rows{s.batch, s.guesses + 1, s.context};
    if (s.verify_share > 0 && s.guesses > 0) verified.insert(s.run["verifier"]["name"]);
    dynamic += s.draft_most > 0;
    moves += s.moves > 0;
    if (s.guesses == 0 || s.verify_share > 0) continue;
    if (s.children == 1) {
      chains[s.name] = rows;
    } else if (const auto chain = chains.find(s.over); chain != chains.end()) {
      EXPECT_EQ(chain->second, rows) << s.name;
      EXPECT_GT(s.most, 0) << s.name;
      beside += s.guessing < s.batch;
      if (s.guessing == s.batch) trees.insert(rows);
    }
  }
  for (const int context : {1024, 4096})
    for (const int batch : {1, 16, 64})
      for (const int nodes : {32, 64}) EXPECT_TRUE(trees.contains({batch, nodes, context})) << batch << " x " << nodes;
  EXPECT_EQ(beside, 2);
  EXPECT_GT(moves, 0);
  EXPECT_GT(dynamic, 0);
  for (const std::string& name : registries.verifiers.names()) {
    const auto traits = registries.verifiers.traits({{"name", name}}, ModelInfo());
    const bool trees_too = traits.exact() && name != "block_verification";  // which takes chains alone
    EXPECT_EQ(verified.contains(name), trees_too) << name;
  }
}

}  // namespace
}  // namespace foretoken::test
