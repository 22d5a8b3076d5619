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
#include "experiments/sweep/interrupt.h"
#include "experiments/sweep/quickstart.h"
#include "experiments/sweep/run_document.h"
#include "experiments/sweep/stop_strings.h"
#include "experiments/sweep/workload.h"
#include "tests/framework/text/temporary_folder.h"

namespace foretoken::test {
namespace {

using nlohmann::json;

json demo(const json& changes) {
  json run = {{"target", {{"model", "experiments/models/target"}}},
              {"drafter", {{"name", "draft_model"}, {"model", "experiments/models/draft"}}},
              {"policy", {{"length", 3}}},
              {"engine", {{"batch", 2}, {"device", "cpu"}, {"threads", 1}, {"check", true}}},
              {"workload",
               {{"prompts", "experiments/prompts.jsonl"}, {"limit", 6}, {"max_new_tokens", 12}, {"lengths", "equal"}}},
              {"measure", {{"repeats", 2}}}};
  run.merge_patch(changes);
  return run;
}

class Runs : public testing::Test {
 protected:
  foretoken::Run run_of(const json& changes = json::object()) {
    const json document = complete_run(demo(changes), bench.registries(), "test");
    return {document, json::object(), key_of(document)};
  }
  json measured(const json& changes = json::object()) {
    const json line = measure_run(run_of(changes), bench, "", [](double) {});
    EXPECT_FALSE(line.contains("error")) << line["error"];
    return line;
  }
  std::string failure(const json& changes) {
    return measure_run(run_of(changes), bench, "", [](double) {}).value("error", "");
  }
  Workbench bench;
};

long sum(const json& counts) {
  return std::accumulate(counts.begin(), counts.end(), 0l, [](long n, const json& c) { return n + c.get<long>(); });
}
long sum(const json& requests, const char* key) {
  return std::accumulate(requests.begin(), requests.end(), 0l,
                         [&](long n, const json& r) { return n + r[key].get<long>(); });
}

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
    expect_consistent(repeat["baseline"], 12);  // 2 at once: six for each place
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
  EXPECT_FALSE(texts_differ(line));
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
  const auto repeat = [&](int run, int i) { return outcome.lines[std::size_t(run)]["repeats"][std::size_t(i)]; };
  for (const json& line : outcome.lines) EXPECT_EQ(line["shared_baseline"], true);
  for (int run = 1; run < 3; ++run)
    for (int i = 0; i < 2; ++i) {
      EXPECT_EQ(repeat(run, i)["baseline"], repeat(0, i)["baseline"]);
      EXPECT_NE(repeat(run, i)["speculative"], repeat(0, i)["speculative"]);
      EXPECT_EQ(repeat(run, i)["speculative"]["tokens"], repeat(0, i)["baseline"]["tokens"]);
    }
  EXPECT_NE(repeat(0, 1)["baseline"], repeat(0, 0)["baseline"]) << "each alternation has its own";
  EXPECT_NE(repeat(3, 0)["baseline"]["phases"], repeat(0, 0)["baseline"]["phases"])
      << "another temperature is another baseline";
  for (const json& line : outcome.lines) EXPECT_EQ(line["agreement"]["differing_texts"], 0);
}

TEST_F(Runs, AlternationsDoTheSameAgain) {
  const json line = measured({{"sampling", {{"temperature", 1}}}});
  EXPECT_EQ(line["alternations"], json({{"compared", true}, {"differing", json::array()}}));
  EXPECT_EQ(line["thrown_away"], json::array());
}

// While all places are taken: a part of the time, with whole rounds of the requests in it.
TEST_F(Runs, TheSteadyWindowIsAPartOfTheRun) {
  const json line = measured({{"workload", {{"lengths", "drawn"}}}, {"measure", {{"repeats", 1}}}});
  for (const char* side : {"baseline", "speculative"}) {
    const json& m = line["repeats"][0][side];
    double seconds = 0;
    long tokens = 0;
    for (const json& r : m["requests"]) {
      seconds += r["steady_seconds"].get<double>(), tokens += r["steady_tokens"].get<long>();
      EXPECT_LE(r["steady_tokens"], r["tokens"]);
    }
    EXPECT_NEAR(seconds, m["steady"]["seconds"].get<double>(), 1e-9);
    EXPECT_GT(seconds, 0.5 * m["seconds"].get<double>());
    EXPECT_LT(seconds, m["seconds"].get<double>()) << "the first step fills the batch, the last ones drain it";
    EXPECT_LT(m["steady"]["steps"], m["steps"]);
    EXPECT_LT(tokens, m["tokens"].get<long>());
  }
  EXPECT_EQ(line["repeats"][0]["baseline"]["steady"]["steps"].get<long>() * 2,
            sum(line["repeats"][0]["baseline"]["requests"], "steady_tokens"))
      << "plain decoding emits a token for both places in each";
}

TEST_F(Runs, RequestsAreDistinctUnlessRepeatsAreAskedFor) {
  const auto jobs = [&](const json& changes) {
    return jobs_of(run_of({{"engine", {{"batch", 8}}}, {"workload", changes}}).document, bench, "");
  };
  const auto distinct = [](const std::vector<Job>& all) {
    std::set<int> prompts;
    for (const Job& job : all) prompts.insert(job.prompt);
    return prompts.size();
  };
  const auto few = jobs({{"limit", 6}}), again = jobs({{"limit", 6}, {"repeats", 8}});
  EXPECT_EQ(few.size(), 48u);
  EXPECT_EQ(distinct(few), 48u) << "six for each place";
  EXPECT_EQ(again.size(), 48u);
  EXPECT_EQ(distinct(again), 6u);
  EXPECT_EQ(jobs({{"limit", 60}}).size(), 60u);
  const std::string refused = failure({{"engine", {{"batch", 128}}}});
  EXPECT_TRUE(says(refused, "400 prompts", "768", "/workload/repeats")) << refused;
}

TEST_F(Runs, DrawnLengthsDependOnThePromptAlone) {
  const auto lengths = [&](const json& changes) {
    std::vector<int> found;
    for (const Job& job : jobs_of(run_of(changes).document, bench, ""))
      found.push_back(job.request.limits.max_new_tokens);
    return found;
  };
  const json drawn = {{"workload", {{"lengths", "drawn"}, {"max_new_tokens", 64}}}};
  const std::vector<int> first = lengths(drawn);
  EXPECT_EQ(std::set<int>(first.begin(), first.end()).size() > 6, true);
  for (const int n : first) EXPECT_TRUE(n >= 32 && n <= 64) << n;
  json warm = drawn, more = drawn;
  warm["sampling"] = {{"temperature", 1}, {"seed", 9}}, more["engine"] = {{"batch", 8}};
  EXPECT_EQ(lengths(warm), first);
  EXPECT_EQ(lengths({{"workload", {{"max_new_tokens", 64}}}}), std::vector<int>(12, 64));
  EXPECT_EQ(drawn_length(5, 0, 1), 1);
}

// What is stopped from outside is seen by the processor's time, whatever the engine.
TEST_F(Runs, TimeThatWasNotOursIsSeen) {
  const json run = run_of().document;
  const auto jobs = jobs_of(run, bench, "");
  const auto engine = bench.engine(run, Side::baseline, "");
  bool slept = false;
  const Measured m = measure(*engine, jobs, 2, [&](double part) {
    if (part > 0.5 && !std::exchange(slept, true)) std::this_thread::sleep_for(std::chrono::milliseconds(700));
  });
  EXPECT_NEAR(m.measure["stopped_seconds"].get<double>(), 0.7, 0.1);
  EXPECT_EQ(measure(*bench.engine(run, Side::baseline, ""), jobs, 2, [](double) {}).measure["stopped_seconds"], 0.0);
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
  json line = {{"agreement", {{"differing_texts", 1}}}, {"machine", {{"device", "cpu"}}}};
  EXPECT_TRUE(texts_differ(line));
  line["machine"]["device"] = "cuda";
  EXPECT_FALSE(texts_differ(line));
  line["run"]["engine"]["numerics"] = "invariant";
  EXPECT_TRUE(texts_differ(line));
  line["promise"] = "lossy: keeps what the target finds likely";
  EXPECT_FALSE(texts_differ(line)) << "it never promised plain decoding's text";
  line["promise"] = "exact, path-identical";
  EXPECT_TRUE(texts_differ(line));
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
    watch_interrupts();
    std::raise(SIGINT);
    try {
      measure_run(run_of({{"target", {{"model", "nowhere"}}}}), bench, "", [](double) {});
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
  const SweepOptions options{folder.path() / "r.jsonl", "", "test", true};
  const std::vector<foretoken::Run> runs{run_of({{"target", {{"model", "nowhere"}}}}),
                                         run_of({{"measure", {{"repeats", 1}}}})};
  const SweepOutcome first = run_sweep(runs, bench, options);
  EXPECT_EQ(first.failed, 1);
  EXPECT_EQ(first.exit_code(), 1);
  ASSERT_EQ(first.lines.size(), 2u);
  EXPECT_TRUE(first.lines[0].contains("error"));
  EXPECT_TRUE(first.lines[1].contains("repeats"));
  const SweepOutcome second = run_sweep(runs, bench, options);
  EXPECT_EQ(second.lines[1], first.lines[1]) << "not measured again";
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
    EXPECT_TRUE(measure_run(run, bench, "", [](double) {}).contains("error"));
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

TEST(QuickstartSize, FitsTheTimeItIsGiven) {
  const Costs fast{64, 1.0}, middling{30, 2.0}, slow{8, 20.0};
  for (const Costs& costs : {fast, middling})
    for (const double seconds : {40.0, 90.0, 170.0, 600.0}) {
      const Size size = size_for(costs, seconds, 60);
      EXPECT_EQ(size.prompts % 6, 0);
      EXPECT_GE(size.prompts, 24);
      EXPECT_LE(size.prompts, 60);
      if (size.max_new_tokens > 16) {
        EXPECT_LE(3 * size.prompts * costs.request_by_request * size.max_new_tokens / costs.max_new_tokens,
                  1.01 * seconds);
      }
    }
  EXPECT_EQ(size_for(fast, 170, 60).prompts, 54);
  EXPECT_EQ(size_for(fast, 1000, 60).prompts, 60);
  EXPECT_EQ(size_for(slow, 30, 60).max_new_tokens, 16) << "the least that says anything";
}

}  // namespace
}  // namespace foretoken::test
