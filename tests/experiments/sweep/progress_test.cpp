// What progress says where standard error is no terminal, and labels of runs.
#include "experiments/sweep/progress.h"

#include <gtest/gtest.h>

#include "experiments/sweep/alternation.h"
#include "experiments/sweep/runner.h"

namespace foretoken::test {
namespace {

using nlohmann::json;
using testing::internal::CaptureStderr;
using testing::internal::GetCapturedStderr;

TEST(Progress, TellsHowManyAndWhatIsLeft) {
  CaptureStderr();
  {
    Progress progress("run", 4, 0, false);
    progress.show(1, "not told");
    progress.show(1, "again");  // nothing new
    progress.show(2, "too soon");
    progress.show(4, "the end");
  }
  EXPECT_EQ(GetCapturedStderr(), "run: 1 of 4 runs, 0:00 left\nrun: 4 of 4 runs\n");
}

TEST(Progress, KnowsNothingOfTheTimeBeforeSomethingWasDone) {
  const auto said = [](int kept, int done, double fraction) {
    CaptureStderr();
    Progress("work", 10, kept, false, "files").show(done, "", fraction);
    return GetCapturedStderr();
  };
  EXPECT_EQ(said(0, 0, 0), "work: 0 of 10 files\n");
  EXPECT_EQ(said(0, 0, 0.04), "work: 0 of 10 files\n") << "a 20th of a unit is too little";
  EXPECT_EQ(said(0, 0, 0.5), "work: 0 of 10 files, 0:00 left\n");
  EXPECT_EQ(said(3, 3, 0), "work: 3 of 10 files\n") << "kept ones took no time";
  EXPECT_EQ(said(3, 4, 0), "work: 4 of 10 files, 0:00 left\n");
}

TEST(Progress, IsQuietWhereAskedTo) {
  CaptureStderr();
  {
    Progress progress("run", 4, 0, true);
    progress.show(1, "");
    progress.show(4, "");
    progress.clear();
  }
  EXPECT_EQ(GetCapturedStderr(), "");
}

TEST(Labels, AreTheAxesOfARun) {
  const auto label = [](const json& axes) { return label_of({json::object(), axes, ""}); };
  EXPECT_EQ(label(json::object()), "the run");
  EXPECT_EQ(label({{"/drafter", {{"name", "ngram"}}}, {"/policy/length", 4}}), "drafter ngram, length 4");
  EXPECT_EQ(label({{"/engine/device", "cpu"}, {"/workload/stop", json::array({"x"})}}), "device cpu, stop [\"x\"]");
  EXPECT_EQ(label({{"/target", {{"model", "m"}}}}), "target {\"model\":\"m\"}");
  EXPECT_EQ(label({{"/drafter", {{"name", 3}}}}), "drafter {\"name\":3}");
}

TEST(Labels, BaselinesAreTheRunsWithoutDrafterAndPolicy) {
  const json run{{"drafter", {{"name", "ngram"}}}, {"policy", {{"length", 2}}}, {"engine", {{"batch", 1}}}};
  EXPECT_EQ(baseline_of(run), R"({"engine":{"batch":1}})");
  json other = run;
  other["engine"]["batch"] = 2;
  EXPECT_NE(baseline_of(other), baseline_of(run));
  other = run, other["verifier"]["name"] = "coupled";
  EXPECT_NE(baseline_of(other), baseline_of(run)) << "plain decoding draws as the verifier does";
  json cold = run, warm = run;
  cold["workload"] = {{"limit", 2}, {"start", "cold"}};
  warm["workload"] = {{"limit", 2}, {"start", "warm"}}, warm["trace"] = "trace.jsonl";
  EXPECT_EQ(baseline_of(cold), baseline_of(warm));
}

// Measured once in a round for all runs with one baseline.
TEST(SharedBaselines, AreMeasuredOnceARound) {
  Baselines shared;
  int measured = 0;
  const auto side = [](int seconds) {
    MeasuredSide found;
    found.record.seconds = seconds;
    return found;
  };
  const auto once = [&] { return side(++measured); };
  const json a{{"drafter", "x"}, {"policy", 1}, {"seed", 1}}, b{{"drafter", "y"}, {"policy", 2}, {"seed", 1}},
      c{{"drafter", "x"}, {"policy", 1}, {"seed", 2}};
  EXPECT_FALSE(shared.known(a));
  EXPECT_EQ(shared.of(a, once).record.seconds, 1);
  EXPECT_TRUE(shared.known(b));
  EXPECT_FALSE(shared.known(c));
  EXPECT_EQ(shared.of(b, once).record.seconds, 1);
  EXPECT_EQ(shared.of(c, once).record.seconds, 2);
  shared.clear();
  EXPECT_FALSE(shared.known(a));
  EXPECT_EQ(shared.of(b, once).record.seconds, 3);
  shared.put(c, side(9));
  EXPECT_EQ(shared.of(c, once).record.seconds, 9);
  EXPECT_EQ(measured, 3);
}

TEST(SweepOutcome, ExitCodes) {
  EXPECT_EQ((SweepOutcome{{}, 0, false}.exit_code()), 0);
  EXPECT_EQ((SweepOutcome{{}, 1, false}.exit_code()), 1);
  EXPECT_EQ((SweepOutcome{{}, 1, true}.exit_code()), 130);
  EXPECT_EQ((SweepOutcome{{}, 0, false, 2}.exit_code()), 1);
}

}  // namespace
}  // namespace foretoken::test
