// What is left of a sweep and about how long it takes: from like runs of the file, or from timed steps.
#include "experiments/sweep/estimate.h"

#include <fstream>
#include <memory>

#include <gtest/gtest.h>

#include "experiments/sweep/alternation.h"
#include "experiments/sweep/rounds.h"
#include "tests/experiments/sweep/demo_runs.h"
#include "tests/framework/text/temporary_folder.h"
#include "tests/support/sentence.h"

namespace foretoken::test {
namespace {

class Estimates : public Runs {
 protected:
  foretoken::Run of(int length, const json& changes = json::object()) {
    json all{{"policy", {{"length", length}}}, {"workload", {{"limit", 2}}}, {"measure", {{"repeats", 2}}}};
    all.update(changes, true);  // a null stays, which demo() takes out
    foretoken::Run run = run_of(all);
    run.axes = {{"/policy/length", length}};
    return run;
  }
  TemporaryFolder folder;
  SweepOptions options{folder.path() / "r.jsonl", "", "test", true, false};
};

TEST_F(Estimates, TimeStepsWhereNothingIsMeasured) {
  const auto found = estimate({of(1), of(2, {{"workload", {{"max_new_tokens", 24}}}})}, bench, options);
  ASSERT_EQ(found.size(), 2u);
  for (const Expected& e : found) {
    EXPECT_EQ(e.basis, RestsOn::timed);
    EXPECT_GT(e.seconds, 0);
    EXPECT_EQ(e.done, 0);
  }
  EXPECT_GT(found[1].seconds, found[0].seconds) << "twice the tokens";
  EXPECT_LT(found[1].seconds, 2 * found[0].seconds) << "of equal prompts";
  EXPECT_FALSE(std::filesystem::exists(options.results)) << "nothing is written";
  const std::string text = as_text(found, 0);
  EXPECT_TRUE(says(text, "length 1", "length 2", "2 runs: 0 measured, 2 to measure", "timed steps of plain decoding"));
}

TEST_F(Estimates, ScaleLikeRunsOfTheFile) {
  const foretoken::Run first = of(1);
  ResultsFile file(options.results);
  Result result = measure_run(first, bench, "", [](double) {});
  result.seconds = 100;
  file.append(result);
  const json ngram{{"drafter", {{"name", "ngram"}, {"model", nullptr}}}};
  const auto found =
      estimate({first, of(2), of(3, {{"workload", {{"max_new_tokens", 18}}}}), of(4, {{"measure", {{"repeats", 6}}}}),
                of(5, ngram), of(6, {{"measure", {{"seconds", 500}}}}), of(7, {{"engine", {{"batch", 1}}}}),
                of(8, {{"workload", {{"prompt_tokens", 500}}}})},
               bench, options);
  const auto expected = [&](int length) {
    return *std::ranges::find_if(found, [&](const Expected& e) { return e.run.axes["/policy/length"] == length; });
  };
  EXPECT_EQ(found.back().run.key, first.key) << "those that are measured are last";
  EXPECT_EQ(expected(1).basis, RestsOn::none);
  EXPECT_EQ(expected(2).basis, RestsOn::same_drafter);
  EXPECT_NEAR(expected(2).seconds, 100, 1e-6);
  EXPECT_NEAR(expected(3).seconds, 150, 5) << "half as many tokens more";
  EXPECT_NEAR(expected(4).seconds, 300, 1e-6) << "three times the alternations";
  EXPECT_EQ(expected(5).basis, RestsOn::same_target);
  EXPECT_NEAR(expected(5).seconds, 100, 1e-6);
  EXPECT_NEAR(expected(6).seconds, 500, 1e-6) << "asked for by time";
  EXPECT_EQ(expected(7).basis, RestsOn::timed) << "another batch is not like it";
  EXPECT_EQ(expected(8).basis, RestsOn::timed) << "nor are prompts of another length";
  const std::string text = as_text(found, 0);
  EXPECT_TRUE(says(text, "length 1  measured", "length 4  about 5 min", "8 runs: 1 measured, 7 to measure",
                   "5 from measured runs", "(4 of them of the same drafter)", "2 from timed steps"));
  const json told = as_json(found);
  EXPECT_EQ(told["runs"].size(), 8u);
  EXPECT_EQ(told["runs"].back()["measured"], true);
  EXPECT_GT(told["seconds"], 1150);
}

TEST_F(Estimates, CountAlternationsThatAreKept) {
  const std::vector<foretoken::Run> runs{of(1)};
  Unfinished unfinished(options.results);
  ResultsFile file(options.results);
  MeasuredAlternation alternation =
      measure_alternation(runs[0], 0, prepare(runs[0], bench, ""), bench, "", [](double) {}, nullptr);
  alternation.seconds = 30;
  unfinished.add(to_json(alternation));
  const auto found = estimate(runs, bench, options);
  EXPECT_EQ(found[0].done, 1);
  EXPECT_EQ(found[0].basis, RestsOn::same_drafter) << "its own alternation";
  EXPECT_NEAR(found[0].seconds, 30, 1e-6);
  EXPECT_TRUE(says(as_text(found, 2), "1 of 2 alternations, about 30 s", "about 15 s on 2 GPUs"));
}

TEST_F(Estimates, NameRunsThatFail) {
  const auto found = estimate({of(1, {{"workload", {{"prompts", "nowhere.jsonl"}}}}), of(2)}, bench, options);
  EXPECT_EQ(found[0].basis, RestsOn::unknown);
  EXPECT_EQ(found[1].basis, RestsOn::timed);
  EXPECT_GT(found[1].seconds, 0);
  EXPECT_TRUE(says(as_text(found, 0), "cannot be measured (--rehearse says why)"));
  EXPECT_TRUE(as_json(found)["runs"][0]["seconds"].is_null());
}

TEST_F(Estimates, CountWhatChangedFilesHaveMeasuredAgain) {
  const auto prompts = (folder.path() / "p.jsonl").string();
  std::filesystem::copy_file("experiments/prompts.jsonl", prompts);
  const foretoken::Run run = of(1, {{"workload", {{"prompts", prompts}}}}),
                       other = of(2, {{"workload", {{"prompts", prompts}}}});
  ResultsFile(options.results).append(measure_run(run, bench, "", [](double) {}));
  Unfinished(options.results)
      .add(to_json(measure_alternation(other, 0, prepare(other, bench, ""), bench, "", [](double) {}, nullptr)));
  EXPECT_EQ(estimate({run}, bench, options)[0].basis, RestsOn::none);
  EXPECT_EQ(estimate({other}, bench, options)[0].done, 1);
  std::ofstream(prompts, std::ios::app) << R"({"prompt": "Another one."})" << "\n";
  const auto found = estimate({run, other}, bench, options);
  EXPECT_NE(found[0].basis, RestsOn::none) << "a sweep measures it again";
  EXPECT_GT(found[0].seconds, 0);
  EXPECT_EQ(found[1].done, 0);
}

TEST_F(Estimates, KnowWhenTheLastRequestArrives) {
  const json open{{"workload", {{"rate", 0.1}}}};
  const foretoken::Run run = of(1, open);
  const Loop loop = loop_of(run.document, jobs_of(run.document, bench, "").size(), 0);
  const double last = seconds(loop.arrival(jobs_of(run.document, bench, "").size() - 1));
  EXPECT_GE(estimate({run}, bench, options)[0].seconds, 4 * last) << "two sides in two alternations";
  options.share_baselines = true;
  const auto shared = estimate({run, of(2, open)}, bench, options);
  EXPECT_LT(shared[1].seconds, 4 * last);
  EXPECT_GE(shared[1].seconds, 2 * last);
}

TEST_F(Estimates, KnowALoadThatRisesAndFalls) {
  const auto at = [&](int length, const json& rates) { return of(length, {{"workload", {{"rates", rates}}}}); };
  const json slow{{10, 0.1}, {20, 0.2}}, quick{{1, 100}, {1, 200}};
  const foretoken::Run run = at(1, slow);
  const std::size_t requests = jobs_of(run.document, bench, "").size();
  const double last = seconds(loop_of(run.document, requests, 0).arrival(requests - 1));
  EXPECT_GE(estimate({run}, bench, options)[0].seconds, 4 * last) << "two sides in two alternations";
  ResultsFile(options.results).append(measure_run(at(1, quick), bench, "", [](double) {}));
  EXPECT_EQ(estimate({at(2, quick)}, bench, options)[0].basis, RestsOn::same_drafter);
  EXPECT_EQ(estimate({at(2, {{1, 100}, {1, 300}})}, bench, options)[0].basis, RestsOn::timed) << "another load";
}

TEST_F(Estimates, SayThatADraftModelIsMissing) {
  const auto found = estimate({of(1, {{"drafter", {{"model", "experiments/models/nowhere"}}}})}, bench, options);
  EXPECT_EQ(found[0].basis, RestsOn::unknown);
}

TEST_F(Estimates, HoldOneTargetAtATime) {
  const json other{{"target", {{"model", "experiments/models/draft"}}},
                   {"drafter", {{"name", "ngram"}, {"model", nullptr}}}};
  const foretoken::Run first = of(1), second = of(2, other);
  const std::weak_ptr<Model> target = bench.target(first.document, "");
  estimate({first, second}, bench, options);
  EXPECT_TRUE(target.expired()) << "as the second is timed";
}

TEST(Durations, AreShort) {
  EXPECT_EQ(duration(0.2), "1 s");
  EXPECT_EQ(duration(99), "99 s");
  EXPECT_EQ(duration(3000), "50 min");
  EXPECT_EQ(duration(7200), "2 h");
  EXPECT_EQ(duration(11100), "3 h 5 min");
}

}  // namespace
}  // namespace foretoken::test
