// The output of `show` and `compare`, for people and for programs.
#include "experiments/report/report.h"

#include <cmath>
#include <cstdlib>
#include <fstream>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "experiments/report/terminal.h"
#include "tests/experiments/report/made_results.h"
#include "tests/support/sentence.h"
#include "tests/support/source.h"

namespace foretoken {
namespace {

using nlohmann::json;
using test::holds;
using test::swept_lines;

std::string shown(const std::vector<json>& lines, const std::string& format,
                  const std::vector<std::string>& tables = {}) {
  ShowOptions options;
  options.format = format;
  options.tables = tables;
  return show(lines, options);
}

// The first line that begins with some words; empty if none does.
std::string line_with(const std::string& text, const std::string& begin) {
  for (const std::string& line : test::split_lines(text))
    if (line.starts_with(begin)) return line;
  return "";
}

json failed_line(const std::string& sentence) {
  json line = test::swept_line("ngram", 4, 0, 1, 1);
  line.erase("repeats");
  line["error"] = sentence;
  return line;
}

TEST(Report, MainTableHoldsTheFiguresOfARun) {
  const std::string text = shown({test::worked_line()}, "terminal", {"main"});
  const std::string row = line_with(text, "draft_model");
  EXPECT_TRUE(row.starts_with("draft_model   0.67    0.50  2.00    2.11   10.0    6.2       -  1.60 [")) << text;
  EXPECT_TRUE(row.ends_with("]  exact ✓, unclear")) << "two prompts of 1.2 and 2.0 prove nothing\n" << text;
  EXPECT_TRUE(holds(text, "1 run of 2 prompts in 2 alternations with the baseline; a CPU (2 cores); abc.")) << text;
}

TEST(Report, FailedRequestsAreTold) {
  const json line = test::line_with_a_failure();
  const std::string text = shown({line}, "markdown"), phases = shown({line}, "markdown", {"phases"});
  EXPECT_TRUE(holds(text, "1 request of 1 run failed: the figures there are those of the other prompts")) << text;
  EXPECT_TRUE(holds(text, "exact ✓, 1 failed")) << text;
  EXPECT_FALSE(holds(text, "Acceptance by position:")) << text;
  EXPECT_TRUE(holds(phases, "1 request of 1 run failed") && holds(phases, "| - | - | - |")) << phases;
  EXPECT_FALSE(holds(phases, "nan")) << phases;
  EXPECT_FALSE(holds(shown({test::worked_line()}, "markdown"), "request of"));
  const auto csv = test::split_lines(shown({line}, "csv"));
  EXPECT_TRUE(holds(csv[0], ",prompts,failed_requests,") && holds(csv[1], ",2,2,1,")) << csv[0] << csv[1];
}

TEST(Report, SharedBaselinesAreTold) {
  json line = test::worked_line();
  EXPECT_FALSE(holds(show({line}, {}), "shared"));
  line["shared_baseline"] = true;
  EXPECT_TRUE(
      holds(show({line}, {"markdown", {}, 118}),
            "Baselines of 1 run were shared with other runs (--share-baselines), not measured in alternation."));
}

// Only what lines say of themselves is told.
TEST(Report, OriginSaysWhichRunsWereInterleaved) {
  json a = test::swept_line("ngram", 2, 0, 1, 1.5), b = test::swept_line("ngram", 4, 0, 1, 1.5);
  EXPECT_FALSE(holds(show({a, b}, {"markdown", {}, 118}), "interleaved"));
  a["interleaved"] = 7;
  EXPECT_TRUE(holds(show({a, b}, {"markdown", {}, 118}), "Alternations of 1 run were interleaved: rounds of 7 runs."));
  b["interleaved"] = 1;  // alone in its rounds
  EXPECT_TRUE(holds(show({a, b}, {"markdown", {}, 118}), "Alternations of 1 run were interleaved: rounds of 7 runs."));
  a["interleaved"] = 2, b["interleaved"] = 2;
  EXPECT_TRUE(
      holds(show({a, b}, {"markdown", {}, 118}), "Alternations of the runs were interleaved: rounds of 2 runs."));
}

TEST(Report, FitsATerminalAndExplainsItself) {
  std::vector<json> lines = swept_lines();
  lines.push_back(failed_line(
      "the pool of 2 MiB is too small for one sequence of 1024 tokens; raise /engine/memory_mib to 16 MiB"));
  const std::string text = shown(lines, "terminal");
  for (const std::string& line : test::split_lines(text)) EXPECT_LE(display_width(line), 118) << line;
  for (const char* title :
       {"Acceptance and speed", "Theory beside measurement", "Acceptance by position: accepted / tested",
        "Acceptance by position: rounds", "By category", "Time of a step", "Best draft length"})
    EXPECT_TRUE(holds(text, std::string("\n") + title) || text.starts_with(title)) << title;
  for (const char* meaning :
       {"alpha ", "accept ", "tau ", "theory ", "tok/s ", "plain ", "ttft ", "speedup [95 %] ", "notes "})
    EXPECT_NE(line_with(text, meaning), "") << meaning;
  EXPECT_FALSE(holds(text, "draft_mod…")) << "drafters' names are whole";
}

TEST(Report, RowsWhereSpeculationLosesSaySo) {
  const std::string text = shown(swept_lines(), "terminal", {"main"});
  EXPECT_TRUE(holds(line_with(text, "ngram        0      1       8"), ", loses")) << text;
  EXPECT_FALSE(holds(line_with(text, "draft_model  0      1       8"), "loses")) << text;
  EXPECT_TRUE(holds(line_with(text, "draft_model  0      4       2"), ", unclear")) << text;
}

TEST(Report, TreesHaveNoTheoryOfChains) {
  json line = test::worked_line();
  for (json& repeat : line["repeats"]) repeat["speculative"]["drafted"] = 25;
  for (const char* table : {"main", "theory"}) {
    const std::string row = line_with(shown({line}, "markdown", {table}), "| draft_model");
    EXPECT_TRUE(!row.empty() && !holds(row, "2.11") && !holds(row, "~")) << row;
    EXPECT_TRUE(holds(line_with(shown({test::worked_line()}, "markdown", {table}), "| draft_model"), "2.11")) << table;
  }
}

TEST(Report, RowsWhoseTreesWereCutSaySo) {
  json line = test::worked_line();
  EXPECT_FALSE(holds(line_with(shown({line}, "markdown", {"main"}), "| draft_model"), "cut"));
  line["repeats"][0]["speculative"]["cut"] = 3;
  EXPECT_TRUE(holds(line_with(shown({line}, "markdown", {"main"}), "| draft_model"), "cut"));
  EXPECT_TRUE(holds(shown({line}, "csv"), ",cut,"));
}

TEST(Report, FailedRunsShowTheirSentence) {
  std::vector<json> lines = swept_lines();
  lines.push_back(failed_line("the draft has another vocabulary"));
  EXPECT_TRUE(holds(line_with(shown(lines, "terminal", {"main"}), "ngram        0      1       4"),
                    "the draft has another vocabulary"));
  EXPECT_TRUE(holds(shown(lines, "markdown", {"main"}), "| ngram | 0 | 1 | 4 | the draft has another vocabulary |"));
  EXPECT_TRUE(holds(shown(lines, "csv"), ",the draft has another vocabulary\n"));
  EXPECT_EQ(json::parse(shown(lines, "json"))["cells"].size(), lines.size());
}

TEST(Report, DifferingTextsAreCounted) {
  json line = test::worked_line();
  line["agreement"]["differing_texts"] = 1;
  EXPECT_TRUE(holds(shown({line}, "terminal", {"main"}), "exact ✗1/2"));
  line["agreement"]["compared"] = false;
  EXPECT_FALSE(holds(line_with(shown({line}, "terminal", {"main"}), "draft_model"), "✓"));
}

TEST(Report, EveryTableTellsLossyRows) {
  std::vector<json> lines = swept_lines();
  for (json& line : lines)
    if (line["run"]["drafter"]["name"] == "ngram") line["promise"] = "lossy: typical acceptance, epsilon .3";
  for (const char* table : {"main", "theory", "positions", "categories", "phases", "best"}) {
    const std::string text = shown(lines, "terminal", {table});
    EXPECT_TRUE(holds(text, "  output  ") && holds(line_with(text, "ngram"), "lossy")) << text;
    EXPECT_TRUE(holds(line_with(text, "draft_m"), "exact")) << text;
    EXPECT_FALSE(holds(shown(swept_lines(), "terminal", {table}), "lossy"));
  }
  EXPECT_TRUE(holds(shown(lines, "markdown", {"main"}), "lossy: typical acceptance, epsilon .3."));
  EXPECT_TRUE(holds(shown(lines, "csv"), "\"lossy: typical acceptance, epsilon .3\""));
}

// Path-identical verifiers are exact too: no separate column.
TEST(Report, KindsOfExactAreNotMixed) {
  std::vector<json> lines = swept_lines();
  lines[0]["promise"] = "exact, path-identical";
  EXPECT_FALSE(holds(shown(lines, "terminal", {"main"}), "length  output"));
  EXPECT_TRUE(line_with(shown(lines, "terminal", {"main"}), "draft_model  0      1       2").ends_with("exact ✓"));
}

TEST(Report, BestLengthAndThoseAsGood) {
  const std::string text = shown(swept_lines(), "terminal", {"best"});
  EXPECT_TRUE(line_with(text, "draft_model  0      1  8").ends_with("2.00")) << "prompt by prompt, 2 is slower\n"
                                                                             << text;
  EXPECT_TRUE(line_with(text, "ngram        0      1  2").ends_with("2.00")) << text;
  EXPECT_TRUE(line_with(text, "ngram        0      4  2").ends_with("loses")) << text;
  const json best = json::parse(shown(swept_lines(), "json"))["best"];
  ASSERT_EQ(best.size(), 8u);
  EXPECT_EQ(best[0]["axes"]["/policy/length"], 8);
  EXPECT_EQ(best[0]["as_good"], json::array());
}

// Of 4 and 8 the data cannot say which is faster; the interval of the one that was picked is wider than its own.
TEST(Report, TheBestIsPickedFromTheSameData) {
  std::vector<json> lines;
  for (const auto& [length, gain] : {std::pair(2, 1.5), std::pair(4, 1.6799), std::pair(8, 1.68)})
    lines.push_back(test::swept_line("draft_model", length, 0, 1, gain));
  const json found = json::parse(shown(lines, "json")), &best = found["best"][0], &own = found["cells"][2]["figures"];
  EXPECT_EQ(best["axes"]["/policy/length"], 8);
  EXPECT_EQ(best["candidates"], 3);
  EXPECT_EQ(best["as_good"], json::array({"draft_model4-0-1"}));
  EXPECT_EQ(best["speedup"]["value"], own["speedup"]["value"]);
  EXPECT_LE(best["speedup"]["low"], own["speedup"]["low"]);
  EXPECT_GE(best["speedup"]["high"], own["speedup"]["high"]);
}

TEST(Report, PhasesAddUp) {
  const std::string text = shown({test::worked_line()}, "csv", {"phases"});
  EXPECT_TRUE(text.starts_with("drafter,step_ms,draft_ms,target_ms,verify_ms,host_ms,overhead_percent,")) << text;
  // 1.54 s over 10 steps: 154 ms, of them drafts .4 + 2 %, target 1 s, verify 3 %.
  EXPECT_TRUE(holds(shown({test::worked_line()}, "terminal", {"phases"}),
                    "154.00  43.08  28%  100.00  65%  4.62   3%  6.30   4%"))
      << text;
}

TEST(Report, PositionsInCsvAreAllOfThem) {
  const std::string text = shown(swept_lines(), "csv", {"positions"});
  EXPECT_EQ(test::split_lines(text).size(), 1u + 8 * (2 + 8));
  EXPECT_TRUE(holds(text, "draft_model,0,1,8,8,240,180,120,0.6666666666666666,,,0.5")) << text;
}

TEST(Report, PositionsOfDraftsThatConfidenceEndsAreApart) {
  std::vector<json> lines;
  for (const int length : {2, 4, 8}) lines.push_back(test::swept_line("draft_model", length, 0, 1, 1.5));
  lines[2]["run"]["policy"]["confidence"] = 0.4, lines[2]["axes"]["/policy/confidence"] = 0.4;
  const std::string text = shown(lines, "terminal", {"positions"});
  EXPECT_TRUE(holds(text, "\nfixed                        4  0.67  ") &&
              holds(text, "\nfixed (confidence 0.4)       8  0.67  "))
      << text;
  EXPECT_TRUE(holds(text, "(each group's longest drafts)") && !holds(text, "\nfixed                        2  "))
      << text;
}

TEST(Report, NoDraftsNoPositions) {
  json line = test::worked_line();
  for (json& repeat : line["repeats"]) repeat["speculative"] = repeat["baseline"];
  EXPECT_FALSE(holds(shown({line}, "terminal"), "by position"));
  EXPECT_TRUE(
      line_with(shown({line}, "terminal", {"main"}), "draft_model").starts_with("draft_model      -       -  1.00"));
}

TEST(Report, WhatCannotBeShownIsSaid) {
  const auto sentence = [](const std::vector<json>& lines, const std::string& format,
                           const std::vector<std::string>& tables) {
    return test::sentence_of([&] { shown(lines, format, tables); });
  };
  EXPECT_TRUE(holds(sentence({}, "terminal", {}), "no results"));
  EXPECT_TRUE(holds(sentence(swept_lines(), "html", {}), "terminal, markdown, latex, csv, json"));
  EXPECT_TRUE(holds(sentence(swept_lines(), "terminal", {"phase"}),
                    "main, theory, positions, categories, load, latency, phases, "
                    "memory, best"));
  EXPECT_TRUE(holds(sentence(swept_lines(), "csv", {"main", "best"}), "one table"));
}

// A table names inflated or random models, so their costs are not taken for those of a directory.
TEST(Report, EveryTableNamesModelsThatWereMade) {
  std::vector<json> lines = swept_lines();
  const std::string plain = shown(lines, "terminal");
  for (json& line : lines) {
    line["run"]["target"]["inflate"] = "llama-3.1-8b";
    if (line["run"]["drafter"]["name"] != "draft_model") continue;
    line["run"]["drafter"].update(json{{"model", "d"}, {"inflate", "llama-3.2-1b"}});
  }
  const std::string want =
      "target: experiments/models/target inflated to llama-3.1-8b; drafter: d inflated to llama-3.2-1b";
  for (const char* table : {"main", "theory", "positions", "categories", "phases", "best"}) {
    EXPECT_TRUE(holds(shown(lines, "markdown", {table}), want)) << table;
    for (const std::string& row : test::split_lines(shown(lines, "csv", {table})))
      EXPECT_TRUE(row.empty() || row.starts_with("models,") || row.starts_with(want)) << row;
    EXPECT_FALSE(holds(shown(swept_lines(), "csv", {table}), "models,"));
  }
  EXPECT_EQ(shown(swept_lines(), "terminal"), plain);
}

// Two numbers are equal to 1e-9; all else exactly. Compilers may differ in a last bit.
bool alike(const json& a, const json& b) {
  if (a.is_number() && b.is_number())
    return std::abs(a.get<double>() - b.get<double>()) <= 1e-9 * std::max(1.0, std::abs(b.get<double>()));
  if (a.type() != b.type() || a.size() != b.size()) return false;
  if (a.is_object()) {
    for (const auto& [key, value] : a.items())
      if (!b.contains(key) || !alike(value, b[key])) return false;
    return true;
  }
  if (!a.is_array()) return a == b;
  for (std::size_t i = 0; i < a.size(); ++i)
    if (!alike(a[i], b[i])) return false;
  return true;
}

// The figures that the notebook reads, pinned: the same lines must give the same figures and intervals. With
// FORETOKEN_UPDATE_GOLDEN set both files are written anew.
TEST(Report, FiguresForProgramsArePinned) {
  const std::string folder = std::string(FORETOKEN_SOURCE_DIR) + "/tests/notebooks/";
  if (std::getenv("FORETOKEN_UPDATE_GOLDEN")) {
    std::vector<json> lines;
    for (const int batch : {1, 4})
      for (const int length : {2, 8})
        lines.push_back(test::swept_line("draft_model", length, 0, batch, batch == 1 ? 1.6 : 1.1));
    for (const int length : {2, 8}) lines.push_back(test::swept_line("ngram", length, 1, 1, length == 2 ? 1.2 : 0.8));
    lines.push_back(failed_line("the draft has another vocabulary"));
    std::ofstream results(folder + "results.jsonl");
    for (const json& line : lines) results << test::whole(line).dump() << "\n";
    std::ofstream(folder + "figures.json") << shown(lines, "json");
  }
  std::vector<json> lines;
  for (const std::string& line : test::split_lines(test::read_source("tests/notebooks/results.jsonl")))
    if (!line.empty()) lines.push_back(json::parse(line));
  ASSERT_EQ(lines.size(), 7u);
  EXPECT_TRUE(alike(json::parse(shown(lines, "json")), json::parse(test::read_source("tests/notebooks/figures.json"))));
}

}  // namespace
}  // namespace foretoken
