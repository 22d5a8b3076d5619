// The counts of a measurement, against those of the reports of its steps, counted here a second time from what README
// and laws say that they are.
#include <map>
#include <numeric>
#include <tuple>

#include <gtest/gtest.h>

#include "experiments/conformance/components.h"
#include "experiments/sweep/measure.h"
#include "kernels/reference/reference_backend.h"
#include "tests/support/rule_mutants.h"

namespace foretoken::test {
namespace {

using namespace conformance;
using nlohmann::json;

constexpr int kAtOnce = 3;

// A measurement of twelve requests, and the reports of its steps.
struct Watched {
  Measured found;
  std::vector<StepReport> reports;
  std::vector<TestRequest> requests;
  std::vector<double> parts;              // what after_step was called with
  std::map<SequenceId, std::size_t> job;  // by sequence

  // Of the judged sequences of all steps.
  template <class F> void each(const F& f) const {
    for (const StepReport& report : reports)
      for (const SequenceReport& r : report.sequences)
        if (r.judged) f(r);
  }
  // How many of them have more than i, for i = 0, 1, ...
  template <class F> json at(const F& count, std::int64_t only = -1) const {
    std::vector<long> found;
    each([&](const SequenceReport& r) {
      if (only >= 0 && job.at(r.id) != std::size_t(only)) return;
      const std::size_t n = std::size_t(count(r));
      found.resize(std::max(found.size(), n));
      for (std::size_t i = 0; i < n; ++i) ++found[i];
    });
    return found;
  }
};

Watched watched(const json& drafter, bool logprobs = false) {
  const Registries registries = with_mutant_rule(with_scripted(all_registries()), MutantRule::recursive, RuleBug::none);
  const Models models = table_models({.vocab = 5, .order = 2, .seed = 31});
  ReferenceBackend backend;
  Engine engine(backend, models.target, registries, {drafter, {{"name", "fixed"}, {"length", 4}}, {{"name", "rule"}}},
                {.batch = 4, .step_rows = 40, .page_rows = 2, .pages = 34, .check = true}, models.load);
  Watched w;
  w.requests = random_requests(12, 5, 9, 14, 3);
  std::vector<Job> jobs;
  for (std::size_t i = 0; i < w.requests.size(); ++i) {
    Job job;
    job.prompt = int(i / 2), job.category = i % 3 ? "story" : "";
    job.request.prompt = w.requests[i].prompt, job.request.stream = 100 + i;
    job.request.limits.max_new_tokens = 6 + int(i % 4) * 3;
    job.request.sampling = {.temperature = 1, .logprobs = logprobs};
    jobs.push_back(std::move(job));
  }
  w.found = measure(
      engine, jobs, kAtOnce, [&](double part) { w.parts.push_back(part); },
      [&](const StepReport& report) { w.reports.push_back(report); });
  for (const StepReport& report : w.reports)
    for (const Sequence& s : report.finished) w.job[s.id] = std::size_t(s.stream - 100);
  return w;
}

std::vector<json> drafters() {
  return {{{"name", "none"}}, {{"name", "draft_model"}, {"model", "table:other"}}, random_tree(2, "mixed")};
}

TEST(MeasureRecorder, SumsOfSteps) {
  for (const json& drafter : drafters()) {
    const Watched w = watched(drafter);
    const json m = to_json(w.found.record);
    long rows = 0, cut = 0, preempted = 0;
    Phases phases;
    for (const StepReport& r : w.reports) rows += r.rows, cut += r.cut, preempted += r.preempted, phases += r.phases;
    EXPECT_EQ(m["steps"], w.reports.size());
    EXPECT_EQ(m["rows"], rows);
    EXPECT_EQ(m["cut"], cut);
    EXPECT_EQ(m["preempted"], preempted);
    EXPECT_EQ(m["recorded"], 0);
    EXPECT_EQ(m["phases"], json({{"schedule", phases.schedule},
                                 {"draft_forward", phases.draft_forward},
                                 {"draft_other", phases.draft_other},
                                 {"target_forward", phases.target_forward},
                                 {"verify", phases.verify},
                                 {"deliver", phases.deliver},
                                 {"total", phases.total}}));
    ASSERT_EQ(w.parts.size(), w.reports.size());
    EXPECT_EQ(w.parts.back(), 1);
    EXPECT_TRUE(std::ranges::is_sorted(w.parts));
  }
}

TEST(MeasureRecorder, CountsByPosition) {
  for (const json& drafter : drafters()) {
    const Watched w = watched(drafter);
    const json m = to_json(w.found.record);
    EXPECT_EQ(m["drafted_at"], w.at([](const SequenceReport& r) { return r.depth; }));
    EXPECT_EQ(m["tested_at"], w.at([](const SequenceReport& r) { return r.tested(); }));
    EXPECT_EQ(m["accepted_at"], w.at([](const SequenceReport& r) { return r.accepted; }));
    std::map<int, long> rounds;
    w.each([&](const SequenceReport& r) { ++rounds[r.accepted]; });
    std::vector<long> histogram(std::size_t(rounds.rbegin()->first + 1));
    for (const auto& [accepted, n] : rounds) histogram[std::size_t(accepted)] = n;
    EXPECT_EQ(m["histogram"], json(histogram));
    EXPECT_EQ(drafter["name"] == "none", histogram.size() == 1);
  }
}

TEST(MeasureRecorder, ChildrenByLevelAndPlace) {
  for (const json& drafter : drafters()) {
    const Watched w = watched(drafter);
    std::size_t levels = 0;
    w.each([&](const SequenceReport& r) { levels = std::max(levels, r.levels.size()); });
    json offered = json::array(), accepted = json::array();
    for (std::size_t l = 0; l < levels; ++l) {
      const auto reached = [l](const SequenceReport& r) { return r.levels.size() > l; };
      offered.push_back(w.at([&](const SequenceReport& r) { return reached(r) ? r.levels[l].children : 0; }));
      std::vector<long> counts(offered.back().size());
      w.each([&](const SequenceReport& r) {
        if (reached(r) && r.levels[l].accepted >= 0) ++counts[std::size_t(r.levels[l].accepted)];
      });
      accepted.push_back(counts);
    }
    EXPECT_EQ(to_json(w.found.record)["offered_children"], offered);
    EXPECT_EQ(to_json(w.found.record)["accepted_children"], accepted);
    EXPECT_EQ(drafter["name"] == "random_tree", levels > 0 && offered[0].size() > 1);
  }
}

// Steps that read no prompt, by their rows: what step times are fitted to.
TEST(MeasureRecorder, StepsByRows) {
  for (const json& drafter : drafters()) {
    const Watched w = watched(drafter);
    std::map<int, json> expected;
    for (const StepReport& report : w.reports) {
      long judged = 0, drafted = 0, prompts = 0, depth = 0;
      for (const SequenceReport& r : report.sequences)
        judged += r.judged, drafted += r.drafted, prompts += r.prompt_rows, depth = std::max<long>(depth, r.depth);
      if (prompts > 0 || judged == 0) continue;
      json& sum = expected[report.rows];
      if (sum.is_null())
        sum = {{"rows", report.rows}, {"steps", 0},           {"sequences", 0}, {"levels", 0},
               {"drafted", 0},        {"draft_seconds", 0.0}, {"seconds", 0.0}};
      const auto add = [&](const char* key, auto n) { sum[key] = sum[key].get<decltype(n)>() + n; };
      add("steps", 1l), add("sequences", judged), add("levels", depth), add("drafted", drafted);
      add("draft_seconds", report.phases.draft_forward + report.phases.draft_other);
      add("seconds", report.phases.total);
    }
    json all = json::array();
    for (const auto& [rows, sum] : expected) all.push_back(sum);
    EXPECT_GT(all.size(), 1u);
    EXPECT_EQ(to_json(w.found.record)["steps_of_rows"], all);
  }
}

TEST(MeasureRecorder, RequestByRequest) {
  for (const json& drafter : drafters()) {
    const Watched w = watched(drafter, true);
    std::map<std::string, long> totals;
    for (std::size_t i = 0; i < w.requests.size(); ++i) {
      const json r = to_json(w.found.record)["requests"][i];
      long rounds = 0, drafted = 0, tested = 0, accepted = 0, tokens = 0, first = 0;
      w.each([&](const SequenceReport& s) {
        if (w.job.at(s.id) != i) return;
        if (rounds++ == 0) first = long(s.emitted.size());
        drafted += s.drafted, tested += s.tested(), accepted += s.accepted, tokens += long(s.emitted.size());
      });
      const std::map<std::string, long> own{{"rounds", rounds}, {"drafted", drafted},
                                            {"tested", tested}, {"accepted", accepted},
                                            {"tokens", tokens}, {"prompt_tokens", long(w.requests[i].prompt.size())}};
      for (const auto& [key, n] : own) EXPECT_EQ(r[key], n) << key << " of " << i, totals[key] += n;
      EXPECT_EQ(r["first_tokens"], first);
      EXPECT_EQ(r["prompt"], i / 2);
      EXPECT_EQ(r.value("category", ""), i % 3 ? "story" : "");
      EXPECT_EQ(r["finish"], "length");
      EXPECT_EQ(tokens, 6 + long(i % 4) * 3);
      EXPECT_EQ(r["tested_at"], w.at([](const SequenceReport& s) { return s.tested(); }, std::int64_t(i)));
      EXPECT_EQ(r["accepted_at"], w.at([](const SequenceReport& s) { return s.accepted; }, std::int64_t(i)));
      EXPECT_FALSE(r.contains("failure"));
      EXPECT_TRUE(w.found.failures[i].empty());
    }
    for (const auto& [key, n] : totals) EXPECT_EQ(to_json(w.found.record)[key], n) << key;
  }
}

TEST(MeasureRecorder, TextsAndLogProbabilities) {
  const Watched w = watched(drafters()[2], true), without = watched(drafters()[2]);
  for (const StepReport& report : w.reports)
    for (const Sequence& s : report.finished) {
      const std::size_t i = w.job.at(s.id);
      EXPECT_EQ(w.found.outputs[i], std::vector<Token>(s.tokens.begin() + s.prompt_length, s.tokens.end()));
      EXPECT_NEAR(to_json(w.found.record)["requests"][i]["log_probability"].get<double>(),
                  std::accumulate(s.logprobs.begin(), s.logprobs.end(), 0.0), 1e-9);
      EXPECT_FALSE(to_json(without.found.record)["requests"][i].contains("log_probability"));
    }
  EXPECT_EQ(w.job.size(), w.requests.size());
}

// While all places are taken, by requests of which the first ones have emitted.
TEST(MeasureRecorder, TheSteadyWindow) {
  for (const json& drafter : drafters()) {
    const Watched w = watched(drafter);
    std::set<std::size_t> started;
    std::map<std::size_t, long> tokens;
    long steps = 0;
    for (const StepReport& report : w.reports) {
      bool filled = true;
      for (std::size_t i = 0; i < std::size_t(kAtOnce); ++i) filled = filled && started.contains(i);
      const bool steady = filled && report.sequences.size() == std::size_t(kAtOnce);
      steps += steady;
      for (const SequenceReport& r : report.sequences) {
        if (!r.judged) continue;
        started.insert(w.job.at(r.id));
        if (steady) tokens[w.job.at(r.id)] += long(r.emitted.size());
      }
    }
    const json m = to_json(w.found.record);
    EXPECT_EQ(m["steady"]["steps"], steps);
    EXPECT_TRUE(steps > 0 && steps < long(w.reports.size()));
    double steady = 0, shares = 0;
    for (std::size_t i = 0; i < w.requests.size(); ++i) {
      const json& r = m["requests"][i];
      EXPECT_EQ(r["steady_tokens"], tokens[i]) << i;
      steady += r["steady_seconds"].get<double>(), shares += r["share_seconds"].get<double>();
      EXPECT_LE(r["steady_seconds"], r["share_seconds"]);
      EXPECT_NEAR(r["seconds"].get<double>(), r["ttft"].get<double>() + r["decode_seconds"].get<double>(), 1e-9);
      EXPECT_GT(r["ttft"], 0);
    }
    EXPECT_NEAR(steady, m["steady"]["seconds"].get<double>(), 1e-9);
    EXPECT_NEAR(shares, m["seconds"].get<double>(), 1e-9);
    EXPECT_LT(steady, shares);
  }
}

// Between the rounds of a request: one fewer than it has rounds.
TEST(MeasureRecorder, GapsAreBetweenRounds) {
  const Watched w = watched(drafters()[1]);
  long gaps = 0;
  for (const json& times : json(to_json(w.found.record)["gaps"])) gaps += times.get<long>();
  EXPECT_EQ(gaps, to_json(w.found.record)["rounds"].get<long>() - long(w.requests.size()));
}

// Prompts of which no two begin alike, in a pool that is too small for all: nothing is in the cache when they are first
// read, and after a preemption a sequence finds its own pages.
TEST(MeasureRecorder, WhatIsReadAgainIsNotFromTheCache) {
  const Models models = table_models({.vocab = 5, .order = 2, .seed = 31});
  const Registries registries = all_registries();
  const auto measured = [&](int pages, int passes) {
    ReferenceBackend backend;
    Engine engine(backend, models.target, registries,
                  {{{"name", "none"}}, {{"name", "fixed"}, {"length", 0}}, {{"name", "speculative_sampling"}}},
                  {.batch = 4, .step_rows = 40, .page_rows = 2, .pages = pages, .check = true}, models.load);
    std::vector<Job> jobs(std::size_t(4 * passes));
    for (std::size_t i = 0; i < jobs.size(); ++i) {
      jobs[i].request.prompt = std::vector<Token>(9, Token(i % 4)), jobs[i].request.stream = i;
      jobs[i].request.limits.max_new_tokens = 24;
    }
    const json m = to_json(measure(engine, jobs, 4, [](double) {}).record);
    return std::tuple(m["prefix_rows"].get<long>(), long(engine.target().cache().prefix_rows_reused()),
                      m["preempted"].get<long>());
  };
  const auto [rows, again, preempted] = measured(40, 1);
  EXPECT_GT(preempted, 0);
  EXPECT_GT(again, 0) << "else nothing was to be left out";
  EXPECT_EQ(rows, 0);
  const auto [found, all, none] = measured(400, 3);
  EXPECT_EQ(none, 0);
  EXPECT_EQ(found, 2 * 4 * 8) << "the last token of a prompt is always fed";
  EXPECT_EQ(found, all);
}

}  // namespace
}  // namespace foretoken::test
