// One run on the demo models: its line must agree with the engine's work.
#include "experiments/sweep/runner.h"

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <numeric>
#include <set>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "experiments/report/results.h"
#include "experiments/session/interrupt.h"
#include "experiments/session/request.h"
#include "experiments/session/run_document.h"
#include "experiments/sweep/workload.h"
#include "tests/experiments/sweep/demo_runs.h"
#include "tests/framework/text/temporary_folder.h"

namespace foretoken::test {
namespace {

using nlohmann::json;

void expect_consistent(const json& m, std::size_t requests) {
  ASSERT_EQ(m["requests"].size(), requests);
  for (const char* key : {"tokens", "rounds", "drafted", "tested", "accepted", "prompt_tokens"})
    EXPECT_EQ(sum(m["requests"], key), m[key]) << key;
  EXPECT_EQ(sum(m["drafted_at"]), m["drafted"]);
  EXPECT_EQ(sum(m["tested_at"]), m["tested"]);
  EXPECT_EQ(sum(m["accepted_at"]), m["accepted"]);
  EXPECT_EQ(sum(m["histogram"]), m["rounds"]);
  long accepted = 0;
  for (std::size_t n = 0; n < m["histogram"].size(); ++n) accepted += long(n) * m["histogram"][n].get<long>();
  EXPECT_EQ(accepted, m["accepted"]);
  EXPECT_LE(m["tokens"], m["rounds"].get<long>() + m["accepted"].get<long>());
  double shares = 0;
  for (const json& r : m["requests"]) {
    shares += r["share_seconds"].get<double>();
    EXPECT_GT(r["ttft"], 0);
    EXPECT_NEAR(r["ttft"].get<double>() + r["decode_seconds"].get<double>(), r["seconds"].get<double>(), 1e-6);
    EXPECT_LE(r["tokens"], 12);
    EXPECT_GE(r["first_tokens"], 1);
    EXPECT_LE(r["first_tokens"].get<long>() - 1, r["accepted"].get<long>());
    EXPECT_EQ(r["first_tokens"] == r["tokens"], r["rounds"] == 1);
  }
  EXPECT_NEAR(shares, m["seconds"].get<double>(), 0.02 * m["seconds"].get<double>());
  EXPECT_LE(m["phases"]["total"], m["seconds"]);
}

TEST_F(Runs, ALineAddsUp) {
  const json line = measured();
  ASSERT_EQ(line["repeats"].size(), 2u);
  for (const json& repeat : line["repeats"]) {
    expect_consistent(repeat["baseline"], 12);  // 2 at once: six for each slot
    expect_consistent(repeat["speculative"], 12);
    EXPECT_EQ(repeat["baseline"]["drafted"], 0);
    EXPECT_EQ(repeat["baseline"]["tokens"], repeat["baseline"]["rounds"]);
    EXPECT_EQ(repeat["baseline"]["tokens"], repeat["speculative"]["tokens"]);
    EXPECT_EQ(sum(repeat["baseline"]["requests"], "first_tokens"), 12);
    EXPECT_GT(sum(repeat["speculative"]["requests"], "first_tokens"), 12)
        << "a first draft stands with the first token";
    EXPECT_GT(repeat["speculative"]["accepted"], 0);
    EXPECT_LT(repeat["speculative"]["rounds"], repeat["baseline"]["rounds"]);
  }
  EXPECT_EQ(line["repeats"][0]["first"], "baseline");
  EXPECT_EQ(line["repeats"][1]["first"], "speculative");
  for (const char* side : {"baseline", "speculative"})
    EXPECT_EQ(line["repeats"][0][side]["prefix_rows"], line["repeats"][1][side]["prefix_rows"])
        << "each engine begins afresh";
  EXPECT_EQ(line["agreement"], json({{"compared", true}, {"compared_texts", 24}, {"differing_texts", 0}}));
  EXPECT_EQ(line["promise"], "exact");
  EXPECT_EQ(line["target"]["vocab"], 4096);
}

TEST_F(Runs, ALineAddsUpWherePromptsTakeManySteps) {
  const json line = measured({{"engine", {{"step_rows", 6}}}, {"measure", {{"repeats", 1}}}});
  for (const char* side : {"baseline", "speculative"}) {
    const json& m = line["repeats"][0][side];
    expect_consistent(m, 12);  // includes steps in which a request reads its prompt and emits nothing
    EXPECT_GT(m["prompt_tokens"].get<long>(), 12 * 6) << "the prompts fit into one step";
  }
}

TEST_F(Runs, BaselinesMayServeEveryRunThatDiffersInWhoGuesses) {
  const TemporaryFolder folder;
  const json once = {{"measure", {{"repeats", 2}}}, {"workload", {{"limit", 2}}}};
  json longer = once, ngram = once, warm = once;
  longer["policy"] = {{"length", 5}}, warm["sampling"] = {{"temperature", 0.5}};
  ngram["drafter"] = {{"name", "ngram"}, {"model", nullptr}};
  const std::vector<foretoken::Run> runs{run_of(once), run_of(longer), run_of(ngram), run_of(warm)};
  const SweepOutcome outcome = run_sweep(runs, bench, {folder.path() / "r.jsonl", "", "test", true, true});
  ASSERT_EQ(outcome.failed, 0);
  const auto repeat = [&](int run, int i) {
    return to_json(outcome.lines[std::size_t(run)])["repeats"][std::size_t(i)];
  };
  for (const Result& result : outcome.lines) EXPECT_TRUE(result.shared_baseline);
  for (int run = 1; run < 3; ++run)
    for (int i = 0; i < 2; ++i) {
      EXPECT_EQ(repeat(run, i)["baseline"], repeat(0, i)["baseline"]);
      EXPECT_NE(repeat(run, i)["speculative"], repeat(0, i)["speculative"]);
      EXPECT_EQ(repeat(run, i)["speculative"]["tokens"], repeat(0, i)["baseline"]["tokens"]);
    }
  EXPECT_NE(repeat(0, 1)["baseline"], repeat(0, 0)["baseline"]) << "each alternation has its own";
  EXPECT_NE(repeat(3, 0)["baseline"]["phases"], repeat(0, 0)["baseline"]["phases"])
      << "another temperature is another baseline";
  for (const Result& result : outcome.lines) EXPECT_EQ(result.agreement->differing_texts, 0);
}

TEST_F(Runs, EveryRequestHasDrawsOfItsOwn) {
  const json run = run_of({{"engine", {{"batch", 8}}}, {"sampling", {{"temperature", 1}, {"samples", 2}}}}).document;
  std::set<std::uint64_t> streams;
  const std::vector<Job> jobs = jobs_of(run, bench, "");
  for (const Job& job : jobs) streams.insert(job.request.stream);
  EXPECT_GE(jobs.size(), 32u);
  EXPECT_EQ(streams.size(), jobs.size());
}

TEST_F(Runs, CoupledTextsAreComparedAtAnyTemperatureOthersAreNot) {
  EXPECT_EQ(measured({{"sampling", {{"temperature", 1}}},
                      {"verifier", {{"name", "coupled"}}}})["agreement"]["compared_texts"],
            24);
  EXPECT_EQ(measured({{"sampling", {{"temperature", 1}}}})["agreement"],
            json({{"compared", false}, {"compared_texts", 0}, {"differing_texts", 0}}));
}

TEST_F(Runs, ADifferenceIsAFailureButOnCuda) {
  Result result;
  EXPECT_FALSE(texts_differ(result));
  result.agreement = Agreement{.compared = true, .compared_texts = 2, .differing_texts = 1};
  result.origin.machine.emplace();
  result.origin.machine->device = "cpu";
  EXPECT_TRUE(texts_differ(result));
  result.origin.machine->device = "cuda";
  EXPECT_FALSE(texts_differ(result));
  result.run["engine"]["numerics"] = "invariant";
  EXPECT_TRUE(texts_differ(result));
  result.promise = "lossy: keeps what the target finds likely";
  EXPECT_FALSE(texts_differ(result)) << "it never promised plain decoding's text";
  result.promise = "exact, path-identical";
  EXPECT_TRUE(texts_differ(result));
}

TEST_F(Runs, WhatGoesWrongIsOneSentence) {
  EXPECT_TRUE(says(failure({{"target", {{"model", "nowhere"}}}}), "nowhere", "directory"));
  EXPECT_TRUE(says(failure({{"workload", {{"prompts", "nowhere.jsonl"}}}}), "nowhere.jsonl"));
  EXPECT_TRUE(says(failure({{"workload", {{"categories", {"poetry"}}}}}), "poetry", "story"));
  EXPECT_TRUE(says(failure({{"engine", {{"memory_mib", 1}}}, {"workload", {{"max_new_tokens", 2000}}}}), "memory_mib"));
  EXPECT_TRUE(says(failure({{"engine", {{"memory_mib", 8000000}}}}), "memory"));
}

// An exception through a plugin's component becomes its Error; a Ctrl-C during it must not be recorded as the run's
// result.
TEST_F(Runs, AnErrorAfterCtrlCIsNoResult) {
  const auto interrupted_run = [&] {
    std::signal(SIGINT, SIG_DFL);  // a shell starts background jobs with it ignored
    watch_interrupts();
    std::raise(SIGINT);
    try {
      to_json(measure_run(run_of({{"target", {{"model", "nowhere"}}}}), bench, "", [](double) {}));
    } catch (const Interrupted&) {
      std::_Exit(kInterruptedExit);
    }
    std::_Exit(0);
  };
  EXPECT_EXIT(interrupted_run(), testing::ExitedWithCode(kInterruptedExit), "");
}

TEST(Interrupts, ThatWereIgnoredStayIgnored) {
  const auto with = [](void (*before)(int), int signal) {
    std::signal(signal, before);
    watch_interrupts();
    std::raise(signal);
    std::_Exit(interrupted() ? kInterruptedExit : 0);
  };
  for (const int signal : {SIGINT, SIGTERM}) {
    EXPECT_EXIT(with(SIG_IGN, signal), testing::ExitedWithCode(0), "");
    EXPECT_EXIT(with(SIG_DFL, signal), testing::ExitedWithCode(kInterruptedExit), "");
  }
}

TEST_F(Runs, ASweepGoesOnAfterAFailureAndResumes) {
  const TemporaryFolder folder;
  const SweepOptions options{folder.path() / "r.jsonl", "", "test", true, false, true};
  const std::vector<foretoken::Run> runs{run_of({{"target", {{"model", "nowhere"}}}}),
                                         run_of({{"measure", {{"repeats", 1}}}})};
  const SweepOutcome first = run_sweep(runs, bench, options);
  EXPECT_EQ(first.failed, 1);
  EXPECT_EQ(first.exit_code(), 1);
  ASSERT_EQ(first.lines.size(), 2u);
  EXPECT_TRUE(first.lines[0].failed());
  EXPECT_EQ(first.lines[1].repeats.size(), 1u);
  const SweepOutcome second = run_sweep(runs, bench, options);
  EXPECT_EQ(to_json(second.lines[1]), to_json(first.lines[1])) << "not measured again";
  EXPECT_EQ(load_results(options.results).size(), 3u) << "the failure is tried again";
}

// The models of a failed run must not take the memory of the next ones.
TEST_F(Runs, ModelsOfAFailedRunAreLetGo) {
  const json other = {{"target", {{"model", "experiments/models/draft"}}},
                      {"drafter", {{"name", "none"}, {"model", nullptr}}}};
  std::weak_ptr<Model> target;
  {
    const foretoken::Run run = run_of({{"workload", {{"prompts", "nowhere.jsonl"}}}});
    target = bench.target(run.document, "");
    EXPECT_TRUE(to_json(measure_run(run, bench, "", [](double) {})).contains("error"));
    EXPECT_FALSE(target.expired()) << "the next run may want it";
  }
  measured(other);
  EXPECT_TRUE(target.expired());
}

TEST_F(Runs, StopTextsEndARequestWhereverRoundsCutIt) {
  const json stop = {{"workload", {{"stop", {"the", ". "}}, {"max_new_tokens", 40}}}, {"measure", {{"repeats", 1}}}};
  const json line = measured(stop);
  EXPECT_EQ(line["agreement"]["differing_texts"], 0);
  int stopped = 0;
  for (const json& r : line["repeats"][0]["speculative"]["requests"]) stopped += r["finish"] == "stop_rule";
  EXPECT_GT(stopped, 0);
}

TEST_F(Runs, AStopTextIsFoundAtTheTokenThatCompletesIt) {
  const auto tokenizer = bench.tokenizer("experiments/models/target", "");
  const auto tokens = tokenizer->encode("one two three, four five six. And so on for a while", false);
  for (std::size_t chunk = 1; chunk <= tokens.size(); ++chunk) {
    const StopRule rule = stop_at(tokenizer, {"five six", "ee, four"});
    std::optional<int> found;
    for (std::size_t seen = 0; seen < tokens.size() && !found; seen += chunk)
      found = rule(std::span(tokens).first(std::min(tokens.size(), seen + chunk)), int(seen));
    ASSERT_TRUE(found);
    const std::string text = tokenizer->decode(std::span(tokens).first(std::size_t(*found)));
    EXPECT_NE(text.find("ee, four"), std::string::npos) << chunk;
    EXPECT_EQ(tokenizer->decode(std::span(tokens).first(std::size_t(*found - 1))).find("ee, four"), std::string::npos)
        << chunk;
  }
}

TEST_F(Runs, MoreAlternationsFollowUntilTheTimeIsUsed) {
  const json line = measured({{"measure", {{"repeats", 1}, {"seconds", 4}}}});
  double seconds = 0;
  for (const json& repeat : line["repeats"])
    seconds += repeat["baseline"]["seconds"].get<double>() + repeat["speculative"]["seconds"].get<double>();
  EXPECT_TRUE(line["repeats"].size() > 1 || seconds > 4) << "one alternation of " << seconds << " s";
  EXPECT_GT(seconds, 0.5);
}

}  // namespace
}  // namespace foretoken::test
