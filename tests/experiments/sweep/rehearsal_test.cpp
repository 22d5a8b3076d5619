// Runs that cannot be measured are known before the first one is, by reason, without loading weights.
#include "experiments/sweep/rehearsal.h"

#include <algorithm>
#include <fstream>
#include <string>
#include <vector>

#include "experiments/report/results.h"
#include "tests/experiments/sweep/demo_runs.h"
#include "tests/framework/text/temporary_folder.h"
#include "tests/support/sentence.h"
#include "tests/support/states.h"

namespace foretoken::test {
namespace {

class Rehearsals : public Runs {
 protected:
  // The one reason that speaks against a run; empty: none.
  std::string reason(const json& changes) {
    const auto found = rehearse({run_of(changes)}, bench, "");
    EXPECT_LE(found.size(), 1u);
    return found.empty() ? "" : found.front().reason;
  }
  std::string prompts(const std::vector<std::size_t>& words) {
    const auto file = folder.path() / "prompts.jsonl";
    std::ofstream out(file);
    for (const std::size_t n : words) {
      std::string text = "word";
      for (std::size_t i = 1; i < n; ++i) text += " word";
      out << json{{"prompt", text}}.dump() << "\n";
    }
    return file.string();
  }

  TemporaryFolder folder;
};

TEST_F(Rehearsals, NothingSpeaksAgainstARunThatCanBeMeasured) {
  EXPECT_EQ(reason(json::object()), "");
  EXPECT_EQ(reason({{"engine", {{"memory_mib", nullptr}, {"memory_fraction", 0.1}}}}), "");
  EXPECT_EQ(bench.target_info(run_of().document, "").weight_bytes, 0) << "no weights were loaded";
}

TEST_F(Rehearsals, FindWhatMeasuringWouldRunInto) {
  const std::vector<json> bad{
      {{"target", {{"model", "nowhere"}}}},
      {{"drafter", {{"model", "nowhere"}}}},
      {{"drafter", {{"name", "draft_tree"}}}, {"policy", {{"length", 1}}}},
      {{"drafter", {{"name", "draft_tree"}, {"draws", "independent"}}},
       {"policy", {{"length", 4}, {"nodes", 45}}},
       {"verifier", {{"name", "without_replacement"}}}},
      {{"engine", {{"memory_mib", 8000000}}}},
      {{"engine", {{"memory_mib", 1}}}, {"workload", {{"max_new_tokens", 2000}}}},
      {{"workload", {{"prompts", "nowhere.jsonl"}}}},
      {{"workload", {{"categories", {"poetry"}}}}},
      {{"workload", {{"prompts", prompts({3})}, {"limit", 1}}}},
      {{"sampling", {{"logit_bias", {{"4096", 1}}}}}},
  };
  for (const json& changes : bad) {
    const std::string found = reason(changes), later = failure(changes);
    EXPECT_NE(found, "") << changes;
    EXPECT_NE(later, "") << changes;
    EXPECT_TRUE(holds(found, later.substr(later.find("workload: ") == std::string::npos ? 0 : later.find(": ") + 2)) ||
                holds(found, "are free"))
        << found << "\n"
        << later;
  }
}

TEST_F(Rehearsals, PromptsThatAreTooLongAreOneReason) {
  const std::string file = prompts({5, 9000, 5, 8000, 5, 7000, 5, 5, 5, 5, 5, 5, 5, 5, 5});
  const json long_ones = {{"workload", {{"prompts", file}, {"limit", 0}}}};
  const std::string found = reason(long_ones);
  EXPECT_TRUE(says(found, "3 of 15 prompts", "(2, 4, 6)", "the context of experiments/models/target is", "9000"));
}

TEST_F(Rehearsals, RunsAreGroupedByReason) {
  const json absent = {{"target", {{"model", "nowhere"}}}};
  json absent_too = absent, huge = {{"engine", {{"memory_mib", 8000000}}}},
       huger = {{"engine", {{"memory_mib", 9000000}}}};
  absent_too["sampling"]["seed"] = 7;
  const std::vector<foretoken::Run> runs{run_of(absent), run_of(), run_of(huge), run_of(absent_too), run_of(huger)};
  const auto found = rehearse(runs, bench, "");
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].runs.size(), 2u);
  EXPECT_EQ(found[1].runs.size(), 2u) << "reasons that differ in a number are one";
  EXPECT_TRUE(says(found[1].reason, "8000000"));
  EXPECT_TRUE(says(sentence_of(found[0], 5), "2 of 5 runs cannot be measured: ", "nowhere", "(the first: the run)"));
}

TEST_F(Rehearsals, ARunIsOfAllItsReasons) {
  json both = {{"drafter", {{"model", "nowhere"}}}, {"workload", {{"prompts", prompts({9000})}, {"repeats", 12}}}};
  json one = both;
  one["drafter"]["model"] = "experiments/models/draft";
  const auto found = rehearse({run_of(both), run_of(one)}, bench, "");
  ASSERT_EQ(found.size(), 2u);
  EXPECT_TRUE(says(found[0].reason, "nowhere"));
  EXPECT_EQ(found[0].runs.size(), 1u);
  EXPECT_TRUE(says(found[1].reason, "1 of 1 prompts"));
  EXPECT_EQ(found[1].runs.size(), 2u);
  const SweepOptions options{folder.path() / "both.jsonl", "", "test", true};
  EXPECT_EQ(rehearse_sweep({run_of(both), run_of(one)}, bench, options).refused, 2) << "each run counts once";
}

TEST_F(Rehearsals, RefuseASweepBeforeItsFirstRun) {
  SweepOptions options{folder.path() / "r.jsonl", "", "test", true};
  const std::vector<foretoken::Run> runs{run_of({{"measure", {{"repeats", 1}}}}),
                                         run_of({{"target", {{"model", "nowhere"}}}})};
  const SweepOutcome refused = run_sweep(runs, bench, options);
  EXPECT_EQ(refused.exit_code(), 1);
  EXPECT_EQ(refused.refused, 1);
  EXPECT_TRUE(refused.lines.empty());
  EXPECT_TRUE(load_results(options.results).empty());
  EXPECT_EQ(rehearse_sweep(runs, bench, options).refused, 1);
  options.keep_going = true;
  const SweepOutcome measured = run_sweep(runs, bench, options);
  EXPECT_EQ(measured.exit_code(), 1);
  ASSERT_EQ(measured.lines.size(), 2u);
  EXPECT_FALSE(measured.lines[0].failed());
  EXPECT_TRUE(says(*measured.lines[1].error, "nowhere"));
  EXPECT_EQ(rehearse_sweep({runs[0]}, bench, options).exit_code(), 0);
}

// What needs weights is not known before they are loaded: it is no reason against a run.
TEST_F(Rehearsals, AComponentThatComputesWhenItIsMadeIsNotRefused) {
  Registries registries;
  register_drafters(registries), register_verifiers(registries);
  registries.drafters.add("curious",
                          entry_that<Drafter>(states(Needs()), [](const json&, Host& host) -> std::unique_ptr<Drafter> {
                            host.target_model()->forward(host.backend(), {}, {});
                            throw Error("no weights, no drafter");
                          }));
  Workbench other(registries);
  const json run = complete_run(demo({{"drafter", {{"name", "curious"}, {"model", nullptr}}}}), registries, "test");
  EXPECT_TRUE(rehearse({{run, json::object(), key_of(run)}}, other, "").empty());
}

}  // namespace
}  // namespace foretoken::test
