// Figures at their edges: the largest tree that counts may describe, a failed run, one model in two forms, shares of
// prompts, short steady windows, and which rows a table of categories has.
#include <cmath>

#include <gtest/gtest.h>

#include "experiments/report/axes.h"
#include "experiments/report/experiment.h"
#include "experiments/report/report.h"
#include "experiments/report/tables.h"
#include "experiments/report/tree_counts.h"
#include "framework/decode/draft_tree.h"
#include "kernels/error.h"
#include "tests/experiments/report/made_results.h"

namespace foretoken {
namespace {

using nlohmann::json;

using Counts = std::vector<std::vector<long>>;

SideRecord children(const Counts& offered, const Counts& accepted) {
  SideRecord found;
  found.offered_children = offered;
  found.accepted_children = accepted;
  return found;
}

// So many levels of so many places, each offered three times and accepted once.
SideRecord counts(std::size_t levels, std::size_t places) {
  return children(Counts(levels, std::vector<long>(places, 3)), Counts(levels, std::vector<long>(places, 1)));
}

TEST(ChildAcceptanceCounts, AreThoseOfTreesThatMayBe) {
  ChildAcceptance all;
  EXPECT_FALSE(all.add(SideRecord())) << "without counts";
  EXPECT_TRUE(all.add(counts(kMaxPath, 1)));
  EXPECT_TRUE(all.add(counts(1, kMaxNodes - 1)));
  EXPECT_THROW(all.add(counts(kMaxPath + 1, 1)), Error);
  EXPECT_THROW(all.add(counts(1, kMaxNodes)), Error);
  const auto altered = [](std::size_t level, const std::vector<long>& accepted) {
    SideRecord found = counts(2, 2);
    (*found.accepted_children)[level] = accepted;
    return found;
  };
  EXPECT_TRUE(ChildAcceptance().add(altered(1, {3, 0}))) << "all, and none";
  EXPECT_THROW(ChildAcceptance().add(altered(1, {4, 0})), Error);
  EXPECT_THROW(ChildAcceptance().add(altered(0, {1})), Error);
  SideRecord fewer = counts(2, 2);
  fewer.accepted_children->pop_back();
  EXPECT_THROW(ChildAcceptance().add(fewer), Error);
}

TEST(ChildAcceptanceCounts, AddUpByLevelAndPlace) {
  ChildAcceptance all;
  all.add(children({{90, 20}, {10}}, {{45, 5}, {8}}));
  all.add(children({{30}, {70, 95}, {4}}, {{15}, {20, 19}, {1}}));
  ASSERT_EQ(all.counts().size(), 3u);
  EXPECT_EQ(all.counts()[0][0].offered, 120);
  EXPECT_EQ(all.counts()[0][0].accepted, 60);
  EXPECT_EQ(all.counts()[0][1].offered, 20);
  EXPECT_EQ(all.counts()[1][1].accepted, 19);
  EXPECT_EQ(all.counts()[2][0].accepted, 1);
  EXPECT_EQ(all.at_all_levels(0).offered, 204);
  EXPECT_EQ(all.at_all_levels(0).accepted, 89);
  EXPECT_EQ(all.at_all_levels(1).offered, 115);
  EXPECT_EQ(all.at_all_levels(2).offered, 0);
  EXPECT_FALSE(all.pooled(0, 0));
  EXPECT_TRUE(all.pooled(1, 0)) << "80 rounds";
  EXPECT_TRUE(all.pooled(2, 1)) << "no round";
  // Places 0 and 1 have 100 rounds at all levels together, place 2 has none.
  EXPECT_EQ(all.probabilities(), (std::vector<std::vector<double>>{
                                     {60.0 / 120, 24.0 / 115}, {89.0 / 204, 24.0 / 115}, {89.0 / 204, 24.0 / 115}}));
}

TEST(ChildAcceptanceCounts, AHundredRoundsAreEnough) {
  const auto with = [](int offered) {
    ChildAcceptance all;
    all.add(children({{offered}, {200}}, {{50}, {20}}));
    return all.probabilities();
  };
  EXPECT_EQ(with(100)[0][0], 0.5);
  EXPECT_EQ(with(99)[0][0], 70.0 / 299);
}

// Nothing was measured, so nothing is claimed.
TEST(FailedRun, HasNoFigures) {
  json line = test::worked_line();
  line.erase("repeats"), line.erase("agreement");
  line["error"] = "out of memory";
  const Summary s = summarize(line);
  EXPECT_TRUE(s.failed());
  EXPECT_FALSE(s.compared || s.prompts_alone || s.alternations_differ || s.theory.branched || s.theory.full_length);
  EXPECT_EQ(s.compared_texts + s.differing_texts + s.failed_requests + s.left_out + s.repeats + s.prompts, 0);
  const TheoryFigures& t = s.theory;
  for (const double figure : {t.draft_length, t.mean_drafted, t.tau, t.plain_ms, t.draft_ms, t.verify_ms, t.cost,
                              t.speedup, s.steady_share, s.question_speedup, s.from_cache})
    EXPECT_EQ(figure, 0);
  for (const SideFigures& side : {s.speculative, s.baseline})
    for (const double figure :
         {side.tokens, side.seconds, side.rounds, side.steps, side.drafted, side.tested, side.accepted,
          side.prompt_tokens, side.prefix_rows, side.preempted, side.steady_seconds, side.cut, side.memory.total()})
      EXPECT_EQ(figure, 0);
  EXPECT_TRUE(s.histogram.empty() && s.positions.empty() && s.categories.empty() && s.by_prompt.empty());
  EXPECT_TRUE(s.samples.prompts.empty());
}

// A steady window that never began is shorter than any; of a line without the figure nothing is said.
TEST(SteadyShare, IsMarkedWhereItIsShort) {
  json line = test::worked_line();
  const auto marked = [&] { return show({line}, {"markdown", {"main"}, 118}).find(", short") != std::string::npos; };
  EXPECT_FALSE(marked());
  EXPECT_TRUE(std::isnan(summarize(line).steady_share));
  for (const double share : {0.0, 0.7, 0.8}) {
    for (json& repeat : line["repeats"])
      for (json& request : repeat["speculative"]["requests"])
        request["steady_seconds"] = share * request["share_seconds"].get<double>();
    EXPECT_EQ(marked(), share < 0.75) << share;
  }
}

// A window that never began has the length 0; of one that the line does not mention no length is known.
TEST(SteadyWindow, IsUnknownWithoutItsCountsAndEmptyWhereItNeverBegan) {
  json line = test::worked_line();
  const auto served = [&] { return read_experiment(line["repeats"]).speculative.at(0).at(0); };
  const auto set = [&](const json& tokens, const json& seconds) {
    for (json& repeat : line["repeats"])
      for (const char* side : {"speculative", "baseline"})
        for (json& request : repeat[side]["requests"])
          request["steady_tokens"] = tokens, request["steady_seconds"] = seconds;
  };
  EXPECT_TRUE(std::isnan(served().steady_seconds) && std::isnan(served().steady_tokens));
  EXPECT_FALSE(summarize(line).steady_speedup.known());
  set(0, 0.0);
  EXPECT_EQ(served().steady_seconds, 0);
  EXPECT_EQ(served().steady_tokens, 0);
  EXPECT_FALSE(summarize(line).steady_speedup.known());
  set(2, 0.25);
  EXPECT_EQ(std::fmod(served().steady_seconds, 0.25), 0);
  EXPECT_GT(served().steady_seconds, 0);
  EXPECT_EQ(summarize(line).steady_speedup.value, 1);
  line["repeats"][0]["speculative"]["requests"][0].erase("steady_seconds");
  EXPECT_FALSE(summarize(line).steady_speedup.known()) << "a part of the window is not the window";
}

// Prompt by prompt: (tokens, rounds) and (accepted, tested), summed over both alternations.
TEST(SamplesOfALine, AreItsTotalsByPrompt) {
  const Samples samples = summarize(test::worked_line()).samples;
  EXPECT_EQ(samples.prompts, (std::vector<int>{0, 1}));
  const auto terms = [](const Measurements& m) {
    std::vector<std::pair<double, double>> found;
    for (const Term& t : m.terms) found.emplace_back(t.top, t.bottom);
    return found;
  };
  using Terms = std::vector<std::pair<double, double>>;
  EXPECT_EQ(terms(samples.tau), (Terms{{24, 10}, {16, 10}}));
  EXPECT_EQ(terms(samples.alpha), (Terms{{14, 16}, {6, 14}}));
  // One term for each prompt and alternation: tokens and seconds of speculation.
  EXPECT_EQ(terms(samples.tokens_per_second), (Terms{{12, 1}, {12, 1}, {8, 1}, {8, 1}}));
  EXPECT_EQ(terms(samples.speedup), (Terms{{12, 1}, {12, 1}, {8, 1}, {8, 1}}));
  for (const Term& t : samples.tokens_per_second.terms)
    EXPECT_EQ(std::pair(t.base_top, t.base_bottom), std::pair(1., 1.));
  EXPECT_EQ(std::pair(samples.speedup.terms[0].base_top, samples.speedup.terms[0].base_bottom), std::pair(12., 2.));
}

TEST(ModelsInTables, DifferInWhatTheyAreInflatedTo) {
  for (const char* group : {"target", "drafter"}) {
    std::vector<json> runs(2, json{{"target", {{"model", "m/t"}}}, {"drafter", {{"name", "d"}, {"model", "m/d"}}}});
    runs[1][group]["inflate"] = "llama-3.1-8b";
    const Axes axes(runs, {});
    ASSERT_EQ(axes.columns().size(), 1u) << group;
    const bool target = group == std::string("target");
    EXPECT_EQ(axes.columns()[0].pointer, target ? "/target/model" : "/drafter");
    EXPECT_EQ(axes.cell(0, runs[1]).shown(), target ? "t inflated to llama-3.1-8b" : "d (d inflated to llama-3.1-8b)");
  }
}

std::vector<std::string> rows_of(const std::vector<json>& lines, bool fastest_alone, std::string& title) {
  const Table table = category_table(view_of(lines), fastest_alone);
  title = table.title;
  std::vector<std::string> rows;
  for (const Row& row : table.rows) {
    rows.emplace_back();
    for (std::size_t i = 0; i + 5 < row.cells.size(); ++i) rows.back() += row.cells[i].shown() + " ";
  }
  return rows;
}

TEST(Categories, AreThoseOfTheFastestPolicyAloneWherePoliciesDiffer) {
  std::string title;
  const std::vector<json> lengths{test::swept_line("ngram", 2, 0, 1, 1.0), test::swept_line("ngram", 4, 0, 1, 1.5)};
  using Rows = std::vector<std::string>;
  EXPECT_EQ(rows_of(lengths, true, title), (Rows{"4 story ", "4 math "}));
  EXPECT_EQ(title, "By category (only each group's fastest row)");
  EXPECT_EQ(rows_of(lengths, false, title), (Rows{"2 story ", "2 math ", "4 story ", "4 math "}));
  EXPECT_EQ(title, "By category");
  const std::vector<json> batches{test::swept_line("ngram", 2, 0, 1, 1.0), test::swept_line("ngram", 2, 0, 4, 1.5)};
  for (const bool fastest_alone : {true, false}) {
    EXPECT_EQ(rows_of(batches, fastest_alone, title), (Rows{"1 story ", "1 math ", "4 story ", "4 math "}));
    EXPECT_EQ(title, "By category");
  }
}

}  // namespace
}  // namespace foretoken
