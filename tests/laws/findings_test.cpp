// What laws say of what they found: figures of a sample, sums of scenarios in a report, agendas and findings as lines
// of text, workers that answer.
#include <algorithm>
#include <cmath>
#include <set>

#include <gtest/gtest.h>
#include <unistd.h>

#include "experiments/conformance/check.h"
#include "experiments/conformance/devices.h"
#include "experiments/conformance/workers.h"
#include "tests/laws/mutant_scenario.h"
#include "tests/support/sentence.h"

namespace foretoken::test {
namespace {

TEST(Findings, OfASampleAreItsChiSquareAndSize) {
  ReferenceBackend b;
  const SampledCase c{.target = {.vocab = 3, .order = 2, .seed = 81, .impossible = 0}, .found = 0.06};
  const Finding f = sampled(subject(with_rule(all_registries(), Bug::none), kDraftModel, kMutant), c, b);
  EXPECT_TRUE(f.holds);
  EXPECT_GT(f.cases, 1000);
  EXPECT_TRUE(f.measure > c.level && f.measure < 1);
  EXPECT_TRUE(f.accepted > 0 && f.rejected > 0);
  // Of 3 * 3 outputs of two tokens, all are possible.
  EXPECT_TRUE(says(f.what, "draft_model table:far, fixed 2, mutant: chi-square ",
                   " of 8 degrees, " + std::to_string(f.cases) + " texts"));
  EXPECT_GT(sampled(subject(with_rule(all_registries(), Bug::none), kDraftModel, kMutant),
                    {.target = c.target, .found = 0.05}, b)
                .cases,
            f.cases)
      << "less is found in more";
}

TEST(Lines, OfFindingsAreRead) {
  Finding f{
      .what = "a\nb \xff", .where = "[0 1]", .measure = 0.25, .cases = 3, .accepted = 4, .rejected = 5, .cut_to = 2};
  f.seen = {{"preemptions", 6}, {"prefix rows", 0}};
  f.fail("because");
  const std::string line = line_of(f);
  EXPECT_EQ(line.find('\n'), std::string::npos);
  const Finding read = finding_from(line);
  EXPECT_FALSE(read.holds);
  EXPECT_TRUE(says(read.what, "a\nb ", "; because"));
  EXPECT_EQ(read.why, "because");
  EXPECT_EQ(read.where, "[0 1]");
  EXPECT_EQ(std::tuple(read.measure, read.cases, read.accepted, read.rejected, read.cut_to),
            std::tuple(0.25, 3l, 4l, 5l, 2));
  EXPECT_EQ(read.seen, f.seen);
  f.measure = std::nan("");
  EXPECT_TRUE(std::isnan(finding_from(line_of(f)).measure));
  EXPECT_TRUE(finding_from(line_of(Finding{})).holds);
}

TEST(Lines, OfAgendasAreRead) {
  Agenda a;
  a.subjects = {"A", "B"}, a.proposing = {"B"}, a.left_out = {"C needs a file"}, a.level = 0.125;
  a.plugins = {{"libmine.so", "0123"}}, a.pairings = {"P beside D"};
  a.reports.push_back({.law = "exact", .subject = "A", .reason = "", .scenarios = 7});
  a.reports.push_back(
      {.law = "cache", .subject = "B", .ruling = LawReport::Ruling::inapplicable, .reason = "why", .scenarios = 0});
  a.jobs.push_back({1, 2, "first"}), a.jobs.push_back({0, 3, "second"});
  const Agenda read = agenda_from(line_of(a));
  EXPECT_EQ(read.subjects, a.subjects);
  EXPECT_EQ(read.proposing, a.proposing);
  EXPECT_EQ(read.left_out, a.left_out);
  EXPECT_EQ(read.pairings, a.pairings);
  EXPECT_EQ(read.level, 0.125);
  ASSERT_EQ(read.plugins.size(), 1u);
  EXPECT_EQ(read.plugins[0].path + read.plugins[0].hash, "libmine.so0123");
  ASSERT_EQ(read.reports.size(), 2u);
  EXPECT_EQ(read.reports[0].law + read.reports[0].subject, "exactA");
  EXPECT_EQ(read.reports[0].scenarios, 7);
  EXPECT_EQ(read.reports[0].ruling, LawReport::Ruling::holds);
  EXPECT_EQ(read.reports[1].ruling, LawReport::Ruling::inapplicable);
  EXPECT_EQ(read.reports[1].reason, "why");
  ASSERT_EQ(read.jobs.size(), 2u);
  EXPECT_EQ(std::tuple(read.jobs[0].report, read.jobs[0].number, read.jobs[0].scenario),
            std::tuple(std::size_t(1), 2, std::string("first")));
  EXPECT_EQ(read.jobs[1].report, 0u);
}

// Breadth first, each scenario of one drafter or verifier once, and why others have none.
TEST(Agendas, RunWhatConcernsOneComponentOnce) {
  const json other{{"name", "draft_model"}, {"model", "table:other"}}, coupled{{"name", "coupled"}};
  const Registries r = all_registries();
  const json fixed{{"name", "fixed"}, {"length", 4}};
  const Prepared two{{candidate({r, {other, fixed, kSampling}}, false, false),
                      candidate({r, {other, fixed, {{"name", "block_verification"}}}}, false, false),
                      candidate({r, {{{"name", "none"}}, fixed, kSampling}}, false, false)},
                     {},
                     {"left out"},
                     {{"p.so", "1"}}};
  const Agenda a = agenda_of(two, {"memory", "batch", "rounds"});
  EXPECT_EQ(a.subjects.size(), 3u);
  EXPECT_EQ(a.proposing, (std::vector<std::string>{a.subjects[0], a.subjects[1]}));
  EXPECT_EQ(a.left_out, std::vector<std::string>{"left out"});
  EXPECT_EQ(a.plugins.size(), 1u);
  EXPECT_EQ(a.reports.size(), 3 * kit_laws().size());
  EXPECT_TRUE(std::ranges::is_sorted(a.jobs, {}, &Job::number)) << "every law has run some when the time is up";
  std::map<std::size_t, int> jobs;
  for (const Job& job : a.jobs) ++jobs[job.report];
  std::vector<LawReport> of_memory;
  for (std::size_t i = 0; i < a.reports.size(); ++i) {
    const LawReport& report = a.reports[i];
    EXPECT_EQ(report.scenarios, jobs[i]);
    EXPECT_EQ(report.ruling, jobs[i] > 0 ? LawReport::Ruling::holds : LawReport::Ruling::inapplicable);
    EXPECT_EQ(report.reason.empty(), jobs[i] > 0);
    const bool named = report.law == "memory" || report.law == "batch" || report.law == "rounds";
    EXPECT_EQ(report.reason == "it was not run: other laws were named", !named) << report.law;
    if (report.law == "batch") {
      EXPECT_GT(jobs[i], 0);
    }
    if (report.law == "memory") of_memory.push_back(report);
  }
  ASSERT_EQ(of_memory.size(), 3u);
  EXPECT_GT(of_memory[0].scenarios, 4);
  EXPECT_EQ(of_memory[1].reason, "what it concerns is tested in another combination");
  EXPECT_EQ(of_memory[2].reason, "the drafter proposes nothing");
}

// Why a law has no scenario, where nothing but its own condition decides.
TEST(Agendas, SayWhyALawDoesNotApply) {
  const json fixed{{"name", "fixed"}, {"length", 4}};
  const Candidate c = candidate({all_registries(), {kDraftModel, fixed, kSampling}}, false, false);
  const auto why = [&](const std::string& law, const Environment& e) {
    return std::ranges::find(kit_laws(), law, &KitLaw::name)->inapplicable(c, e);
  };
  EXPECT_EQ(why("device", {}), "the reference is the only device here");
  Environment with_cpu;
  with_cpu.devices.push_back({"cpu", [] { return make_cpu_backend(1); }});
  EXPECT_EQ(why("device", with_cpu), "");
  EXPECT_EQ(why("rounds", {}), "it concerns the verifier alone, which was not chosen; --verifier chooses it");
  EXPECT_EQ(why("coupled", {}), "the verifier promises \"exact\", not \"path-identical\"");
  for (const char* law : {"exact", "sampled", "greedy", "batch", "memory", "cache", "acceptance", "limits", "causal"})
    EXPECT_EQ(why(law, {}), "") << law;
}

TEST(SimulatedDevices, HaveFetchedWhenSomethingIsCopiedFromThem) {
  SimulatedDevice device;
  const Tensor from = device.upload(Tensor::host_copy<float>(std::vector<float>{3}, DType::f32)),
               fetched = Tensor::host_copy<float>(std::vector<float>{0}, DType::f32),
               copied = Tensor::host_copy<float>(std::vector<float>{0}, DType::f32);
  device.fetch(from, fetched);
  EXPECT_EQ(*fetched.data<float>(), 0) << "it is on its way";
  device.copy(from, copied);
  EXPECT_EQ(*copied.data<float>(), 3);
  EXPECT_EQ(*fetched.data<float>(), 3);
}

Service squares() {
  return {"hello", [](std::size_t task) {
            if (task == 2) _exit(7);
            return std::to_string(task * task);
          }};
}

TEST(WorkersAnswer, EveryTaskOnceInWhateverOrder) {
  for (const int processes : {1, 3}) {
    Workers workers(processes, 60, squares);
    EXPECT_EQ(workers.greeting(), "hello");
    EXPECT_FALSE(is_worker());
    std::map<std::size_t, std::string> answers;
    workers.run(
        6, [] { return true; },
        [&](const Answer& a) {
          EXPECT_FALSE(answers.contains(a.task));
          answers[a.task] = a.text + a.failure;
          EXPECT_FALSE(a.late);
          EXPECT_GE(a.seconds, 0);
        });
    EXPECT_EQ(answers,
              (std::map<std::size_t, std::string>{
                  {0, "0"}, {1, "1"}, {2, "its process ended with exit code 7"}, {3, "9"}, {4, "16"}, {5, "25"}}));
  }
}

TEST(WorkersAnswer, AsLongAsTheyMayGoOn) {
  Workers workers(1, 60, squares);
  (void)workers.greeting();
  int answered = 0;
  workers.run(1000, [&] { return answered < 2; }, [&](const Answer&) { ++answered; });
  EXPECT_EQ(answered, 2);
}

TEST(WorkersAnswer, AreWorkersAndMayWriteMuch) {
  Workers workers(1, 60, [] {
    return Service{std::to_string(int(is_worker())),
                   [](std::size_t task) { return std::string(300000, char('a' + task)); }};
  });
  EXPECT_EQ(workers.greeting(), "1");
  std::vector<std::string> answers;
  workers.run(2, [] { return true; }, [&](const Answer& a) { answers.push_back(a.text); });
  EXPECT_EQ(answers, (std::vector<std::string>{std::string(300000, 'a'), std::string(300000, 'b')}));
}

TEST(WorkersAnswer, WhatIsLateIsStoppedAndTheOthersGoOn) {
  Workers workers(1, 0.4, [] {
    return Service{"", [](std::size_t task) {
                     if (task == 0) sleep(600);
                     return std::string("done");
                   }};
  });
  EXPECT_THROW((void)Workers(1, 60, []() -> Service { throw Error("no table"); }).greeting(), Error);
  std::map<std::size_t, Answer> answers;
  workers.run(2, [] { return true; }, [&](const Answer& a) { answers[a.task] = a; });
  EXPECT_TRUE(answers[0].late);
  EXPECT_EQ(answers[0].failure, "did not end within 0.4 s and was stopped");
  EXPECT_GT(answers[0].seconds, 0.4);
  EXPECT_FALSE(answers[1].late);
  EXPECT_EQ(answers[1].text, "done");
}

}  // namespace
}  // namespace foretoken::test
