// What a run serves and when it counts: distinct requests, drawn lengths, the steady window, time that was not ours.
#include <chrono>
#include <set>
#include <thread>
#include <vector>

#include "experiments/sweep/workload.h"
#include "tests/experiments/report/made_results.h"
#include "tests/experiments/sweep/demo_runs.h"
#include "tests/experiments/sweep/tries.h"
#include "tests/support/sentence.h"

namespace foretoken::test {
namespace {

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
  EXPECT_EQ(distinct(few), 48u) << "six for each slot";
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

// Acceptance is that of any machine; what depends on times is shown nowhere.
TEST_F(Runs, AreWithoutSpeedsWhereABusyMachineIsAccepted) {
  const json changes{{"measure", {{"busy", "accept"}}}}, line = measured(changes), usual = measured();
  const Summary busy = summarize(line), quiet = summarize(usual);
  EXPECT_EQ(busy.error, "");
  EXPECT_EQ(busy.alpha.value, quiet.alpha.value);
  EXPECT_EQ(busy.tau.value, quiet.tau.value);
  EXPECT_TRUE(quiet.speedup.known());
  for (const Interval& figure : {busy.speedup, busy.steady_speedup, busy.decode_speedup, busy.tokens_per_second})
    EXPECT_FALSE(figure.known());
  const json figures = to_json(busy)["figures"];
  EXPECT_TRUE(figures["baseline"]["tokens_per_second"].is_null());
  EXPECT_TRUE(figures["theory"]["speedup"].is_null());
  for (const std::string table : {"main", "theory", "categories", "latency", "phases", "best"})
    EXPECT_FALSE(holds(show({line}, {"csv", {table}, 0}), "nan")) << table;
  EXPECT_TRUE(says(show({line}, {"markdown", {}, 0}), ", no speeds", "/measure/busy"));
  EXPECT_FALSE(says(show({usual}, {"markdown", {"main"}, 0}), ", no speeds"));
  EXPECT_NE(compare({line}, {usual}, {}), "");
  EXPECT_TRUE(
      says(sentence_of([&] { run_of({{"measure", {{"busy", "maybe"}}}}); }), "'/measure/busy'", "refuse, accept"));
}

TEST_F(Runs, OutputsAreKeptWhereAskedFor) {
  const json line = measured({{"measure", {{"keep_outputs", true}}}}), without = measured();
  for (const char* side : {"baseline", "speculative"}) {
    for (const json& request : line["repeats"][0][side]["requests"]) EXPECT_FALSE(request["output"].empty());
    EXPECT_FALSE(line["repeats"][1][side]["requests"][0].contains("output")) << "all alternations have the same";
    EXPECT_FALSE(without["repeats"][0][side]["requests"][0].contains("output"));
  }
  for (std::size_t i = 0; i < line["repeats"][0]["baseline"]["requests"].size(); ++i)
    EXPECT_EQ(line["repeats"][0]["baseline"]["requests"][i]["output"],
              line["repeats"][0]["speculative"]["requests"][i]["output"]);
}

// What is stopped from outside is seen by the processor's time, whatever the engine. Other work may take the machine
// away from this test as well, but not from every try.
TEST_F(Runs, TimeThatWasNotOursIsSeen) {
  const json run = run_of().document;
  const auto jobs = jobs_of(run, bench, "");
  const auto stopped_for = [&](int milliseconds) {
    const auto engine = bench.engine(run, Side::baseline, "");
    bool slept = milliseconds == 0;
    const Measured m = measure(*engine, jobs, 2, [&](double part) {
      if (part > 0.5 && !std::exchange(slept, true))
        std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
    });
    return to_json(m.record)["stopped_seconds"].get<double>();
  };
  const auto near = [](double seconds) { return std::abs(seconds - 0.7) <= 0.1; };
  EXPECT_TRUE(in_one_of(10, [&] { return stopped_for(700); }, near));
  EXPECT_TRUE(in_one_of(10, [&] { return stopped_for(0); }, [](double seconds) { return seconds == 0; }));
}

}  // namespace
}  // namespace foretoken::test
