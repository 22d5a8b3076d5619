// Results from before a key was added are known as those of the runs that have its default.
#include <fstream>

#include "experiments/report/merge.h"
#include "tests/experiments/report/committed_results.h"
#include "tests/experiments/sweep/demo_runs.h"
#include "tests/framework/text/temporary_folder.h"

namespace foretoken::test {
namespace {

class OlderResults : public Runs {
 protected:
  // As a line was written before the keys "turns" and "keep_outputs".
  static json older(json line) {
    line["run"]["workload"].erase("turns"), line["run"]["measure"].erase("keep_outputs");
    line["key"] = key_of(line["run"]);
    return line;
  }
  std::string identity(const json& run) { return identity_of(run, bench.registries()); }
  std::string file_of(const json& line) {
    std::ofstream(results_) << line.dump() << "\n";
    return results_;
  }

  TemporaryFolder folder_;
  std::string results_ = (folder_.path() / "r.jsonl").string();
};

TEST_F(OlderResults, AreRecognizedInCommittedFiles) {
  int lines = 0;
  for (const json& line : committed_results("cpu/formats")) {
    const json whole = complete_run(line["run"], bench.registries(), "a committed line"), before = older(line);
    ASSERT_EQ(identity(line["run"]), key_of(whole));
    ASSERT_NE(before["key"], line["key"]);
    ASSERT_EQ(identity(before["run"]), key_of(whole));
    ++lines;
  }
  EXPECT_EQ(lines, 45);
}

TEST_F(OlderResults, LackOptionsThatComponentsHaveGotSince) {
  const auto tree = [&](bool cut) {
    return run_of({{"drafter", {{"name", "draft_tree"}, {"shape", {1, 1}}, {"cut", cut}}}}).document;
  };
  json before = tree(false);
  before["drafter"].erase("cut");
  EXPECT_EQ(identity(before), key_of(tree(false)));
  EXPECT_NE(identity(before), key_of(tree(true)));
}

TEST_F(OlderResults, TheDefaultDateIsNotWritten) {
  EXPECT_EQ(run_of({{"workload", {{"date", "2024-07-26"}}}}).document, run_of().document);
  EXPECT_NE(run_of({{"workload", {{"date", "2024-07-27"}}}}).document, run_of().document);
}

TEST_F(OlderResults, OfOtherValuesAreOtherRuns) {
  const json run = run_of().document;
  const auto with = [&](const char* at, const json& value) {
    json other = run;
    other[json::json_pointer(at)] = value;
    return identity(other);
  };
  EXPECT_EQ(identity(run), key_of(run));
  EXPECT_NE(with("/workload/turns", 2), identity(run));
  EXPECT_NE(with("/workload/date", "2025-02-03"), identity(run));
  EXPECT_NE(with("/measure/keep_outputs", true), identity(run));
  EXPECT_NE(with("/policy/length", 7), identity(run));
  json unknown = run;
  unknown["drafter"] = {{"name", "of a plugin"}};
  EXPECT_EQ(identity(unknown), key_of(unknown));
  json drawn = run;  // a later key whose default is not what runs did before
  drawn["workload"].erase("lengths");
  EXPECT_NE(identity(drawn), identity(run));
  EXPECT_EQ(identity(json{{"name", "no run of this program"}}), key_of({{"name", "no run of this program"}}));
}

TEST_F(OlderResults, AreNotMeasuredAgain) {
  const foretoken::Run run = run_of({{"workload", {{"limit", 2}}}});
  const json before = older(measure_run(run, bench, "", [](double) {}));
  const SweepOptions options{file_of(before), "", "test", true, false};
  const SweepOutcome outcome = run_sweep({run}, bench, options);
  ASSERT_EQ(outcome.lines.size(), 1u);
  EXPECT_EQ(outcome.lines[0], before);
  EXPECT_EQ(load_results(results_).size(), 1u);
  MergedResults merged([&](const json& one) { return identity(one); });
  EXPECT_TRUE(merged.add(before));
  EXPECT_TRUE(merged.measured(run.key)) << "the processes of --gpus share what is known";
  const foretoken::Run more = run_of({{"workload", {{"limit", 2}, {"max_new_tokens", 3}}}});
  EXPECT_EQ(run_sweep({run, more}, bench, options).lines.size(), 2u);
  EXPECT_EQ(load_results(results_).size(), 2u) << "another run is measured";
}

}  // namespace
}  // namespace foretoken::test
