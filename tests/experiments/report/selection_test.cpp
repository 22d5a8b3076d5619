// Which runs are looked at, and what is said where there are none.

#include <gtest/gtest.h>

#include "experiments/report/report.h"
#include "tests/experiments/report/made_results.h"
#include "tests/support/sentence.h"
#include "tests/support/source.h"

namespace foretoken {
namespace {

using nlohmann::json;
using test::holds;
using test::swept_lines;

std::size_t left_by(const std::vector<std::string>& where) {
  std::vector<Result> results = made(swept_lines());
  select(where, {&results});
  return results.size();
}

std::string selection_refusal(const std::vector<std::string>& where) {
  return test::sentence_of([&] { left_by(where); });
}

TEST(Selection, KeepsRunsThatMeetAllConditions) {
  EXPECT_EQ(left_by({}), 16u);
  EXPECT_EQ(left_by({"/drafter/name=ngram"}), 8u);
  EXPECT_EQ(left_by({"/drafter=ngram"}), 8u) << "a component by its name";
  EXPECT_EQ(left_by({"/drafter={\"name\": \"ngram\"}"}), 8u);
  EXPECT_EQ(left_by({"/drafter/name=ngram", "/engine/batch=4", "/sampling/temperature=0"}), 2u);
  EXPECT_EQ(left_by({"/sampling/temperature=1"}), 8u) << "1 is 1.0";
  EXPECT_EQ(left_by({"/target/model=experiments/models/target"}), 16u);
}

TEST(Selection, SaysWhatThereIs) {
  EXPECT_TRUE(
      holds(selection_refusal({"/engine/batch=7"}), "no run meets --where /engine/batch=7: /engine/batch is 1, 4"));
  EXPECT_TRUE(holds(selection_refusal({"/drafter/name=x"}), "/drafter/name is draft_model, ngram"));
  EXPECT_TRUE(holds(selection_refusal({"/drafter=x"}), "/drafter is draft_model, ngram"));
  const std::string unknown = selection_refusal({"/engine/bach=1"});
  EXPECT_TRUE(holds(unknown, "(did you mean '/engine/batch'?); there are /engine/batch, /engine/device")) << unknown;
  EXPECT_TRUE(holds(selection_refusal({"/policy/length=2", "/policy/length=8"}), "and the conditions before it"));
  for (const char* bad : {"engine/batch=1", "/engine/batch", "", "=1"})
    EXPECT_TRUE(holds(selection_refusal({bad}), "--where takes /POINTER=VALUE")) << bad;
  EXPECT_TRUE(holds(selection_refusal({"/a~b=1"}), "is not a JSON pointer"));
}

TEST(Selection, JudgesBothSidesOfAComparisonTogether) {
  std::vector<Result> a = made(swept_lines()), b = {a[0]};
  select({"/drafter/name=ngram"}, {&a, &b});
  EXPECT_EQ(a.size(), 8u);
  EXPECT_TRUE(b.empty());
}

std::vector<json> lines_of(const std::vector<Result>& results) {
  std::vector<json> lines;
  for (const Result& result : results) lines.push_back(to_json(result));
  return lines;
}

TEST(Selection, OfTheSameRunTheNewestLineCounts) {
  Result old = made(test::swept_line("ngram", 2, 0, 1, 1.5)), fresh = made(test::swept_line("ngram", 2, 0, 1, 1.2));
  old.date = "2026-11-21T08:00:00Z";
  fresh.date = "2026-11-22T08:00:00Z";
  const Result other = made(test::swept_line("ngram", 4, 0, 1, 1.5));
  EXPECT_EQ(lines_of(joined({{fresh, other}, {old}})), lines_of({fresh, other}));
  EXPECT_EQ(lines_of(joined({{old}, {other, fresh}})), lines_of({fresh, other}));
  Result begun = fresh;
  begun.date = "2026-11-23T08:00:00Z";
  begun.unfinished = DoneOf{.done = 1, .of = 3};
  EXPECT_EQ(lines_of(joined({{old}, {begun}})), lines_of({old})) << "one that is not finished hides none that is";
  EXPECT_EQ(lines_of(joined({{begun}, {old}})), lines_of({old}));
}

TEST(Selection, OriginSaysThatMachinesDiffer) {
  std::vector<json> lines = swept_lines();
  EXPECT_FALSE(holds(show(lines, {"markdown"}), "machines"));
  lines[0]["machine"] = {{"cpu", "another CPU"}, {"cores", 8}};
  EXPECT_TRUE(holds(show(lines, {"markdown"}),
                    "Measured on 2 machines, whose times do not compare: a CPU (2 cores); another CPU (8 cores)."));
}

// The fastest of four lengths was stopped after one of three alternations.
std::vector<Result> stopped_sweep() {
  std::vector<Result> results;
  for (const int length : {1, 2, 4, 8}) {
    results.push_back(made(test::swept_line("ngram", length, 0, 1, length == 8 ? 3 : 1 + 0.1 * length)));
    if (length == 8) results.back().unfinished = DoneOf{.done = 1, .of = 3};
  }
  return results;
}

TEST(Unfinished, EveryTableOfCsvMarksThem) {
  for (const TableKind& kind : table_kinds()) {
    if (kind.name == "best" || kind.name == "load" || kind.name == "memory" || kind.name == "categories") continue;
    const std::string csv = show(stopped_sweep(), {"csv", {kind.name}});
    EXPECT_TRUE(csv.starts_with("policy.length,unfinished,")) << kind.name << ": " << csv;
    EXPECT_TRUE(holds(csv, "\n8,1 of 3 alternations,")) << kind.name << ": " << csv;
    EXPECT_TRUE(holds(csv, "\n4,,")) << kind.name << ": " << csv;
  }
  const std::string across = show(stopped_sweep(), {"csv", {}, 118, {}, "/policy/length"});
  EXPECT_TRUE(holds(across, "1 of 3 alternations")) << across;
  EXPECT_FALSE(holds(show(swept_lines(), {"csv"}), "unfinished")) << "of a whole sweep there is no such column";
}

TEST(Unfinished, NoneIsRanked) {
  const std::string best = show(stopped_sweep(), {"markdown", {"best"}});
  EXPECT_TRUE(holds(best, "Without 1 run that is not finished, of which the table main says how far.")) << best;
  EXPECT_TRUE(holds(best, "| 4 | 3 |")) << best;
  const json found = json::parse(show(stopped_sweep(), {"json"}));
  ASSERT_EQ(found["best"].size(), 1u);
  EXPECT_EQ(found["best"][0]["axes"]["/policy/length"], 4);
  EXPECT_EQ(found["best"][0]["candidates"], 3);
  EXPECT_FALSE(holds(show(swept_lines(), {"markdown", {"best"}}), "not finished"));
}

TEST(Unfinished, WordsOfABatchAreSlots) {
  for (const std::string& text : {show(swept_lines(), {"markdown"}), result_schema().dump()})
    for (const char* words : {"places of the batch", "places were", "a place is free"})
      EXPECT_FALSE(holds(text, words)) << words;
}

std::string shown_by(const std::string& format, const std::vector<std::string>& by) {
  return show(swept_lines(), {format, {"main"}, 118, by});
}

TEST(Sections, EveryFormatHasATableForEachValue) {
  for (const char* format : {"terminal", "markdown", "latex"}) {
    const std::string text = shown_by(format, {"/engine/batch"});
    for (const char* title : {"Acceptance and speed: batch 1\n", "Acceptance and speed: batch 4\n"})
      EXPECT_TRUE(holds(text, title)) << text;
    EXPECT_FALSE(holds(text, " batch  ") || holds(text, "| batch |") || holds(text, "& batch &")) << text;
  }
  const std::string csv = shown_by("csv", {"/engine/batch", "/drafter/name"});
  EXPECT_TRUE(csv.starts_with("\"Every figure: batch 1, drafter draft_model\"\n")) << csv;
  EXPECT_TRUE(holds(csv, "\n\n\"Every figure: batch 4, drafter ngram\"\nsampling.temperature,policy.length,key,"))
      << csv;
  const json found = json::parse(shown_by("json", {"/engine/batch"}));
  ASSERT_EQ(found["sections"].size(), 2u);
  EXPECT_FALSE(found.contains("cells"));
  EXPECT_EQ(found["sections"][1]["title"], "batch 4");
  EXPECT_EQ(found["sections"][1]["by"], (json{{"/engine/batch", 4}}));
  EXPECT_EQ(found["sections"][1]["cells"].size(), 8u);
  EXPECT_FALSE(found["sections"][1]["cells"][0]["axes"].contains("/engine/batch"));
  EXPECT_EQ(found["sections"][0]["best"].size(), 4u);
}

TEST(Sections, AComponentHasOneNameInAllOfThem) {
  std::vector<json> lines;
  for (const int batch : {1, 4})
    for (const int longest : {2, 3}) {
      if (batch == 4 && longest == 3) continue;
      lines.push_back(test::swept_line("ngram", 2, 0, batch, 1.5));
      lines.back()["run"]["drafter"]["longest"] = longest;
      lines.back()["key"] = std::to_string(batch) + std::to_string(longest);
    }
  const json found = json::parse(show(lines, {"json", {}, 118, {"/engine/batch"}}));
  EXPECT_EQ(found["sections"][1]["cells"][0]["names"]["drafter"], "ngram (longest 2)") << "alone in its section";
  const json apart = json::parse(show(lines, {"json", {}, 118, {"/drafter/longest"}}));
  EXPECT_EQ(apart["sections"][0]["cells"][0]["names"]["drafter"], "ngram");
  EXPECT_EQ(apart["sections"][0]["title"], "longest 2");
}

TEST(Across, ValuesOfAFieldAreColumns) {
  ShowOptions options{.format = "csv", .across = "/engine/batch", .figures = {"tau", "speedup"}};
  const std::vector<std::string> rows = test::split_lines(show(swept_lines(), options));
  EXPECT_EQ(rows[0],
            "drafter,sampling.temperature,policy.length,tau_at_1,tau_at_1_low,tau_at_1_high,tau_at_4,"
            "tau_at_4_low,tau_at_4_high,speedup_at_1,speedup_at_1_low,speedup_at_1_high,speedup_at_4,"
            "speedup_at_4_low,speedup_at_4_high");
  EXPECT_EQ(rows.size(), 1u + 8u);
  options.format = "json", options.figures = {"alpha"};
  const json table = json::parse(show(swept_lines(), options))["across"];
  EXPECT_EQ(table["columns"][3]["title"], "alpha, batch 1");
  EXPECT_EQ(table["rows"][0]["cells"][3].size(), 4u);
  options.format = "latex";
  EXPECT_TRUE(show(swept_lines(), options).starts_with("% By batch\n"));
}

TEST(Across, WhatWasNotMeasuredIsADash) {
  std::vector<json> lines = swept_lines();
  lines.erase(lines.begin());
  lines.back().erase("repeats"), lines.back()["error"] = "out of memory";
  const std::string text = show(lines, {.format = "markdown", .across = "/engine/batch", .figures = {"speedup"}});
  EXPECT_TRUE(holds(text, "| draft_model | 0 | 2 | - | ") && holds(text, "| ngram | 1 | 8 | 0.")) << text;
  EXPECT_TRUE(holds(text, "] | - |\n")) << text;
}

TEST(Across, BadInputIsAnError) {
  const auto refused = [](const ShowOptions& options) {
    return test::sentence_of([&] { show(swept_lines(), options); });
  };
  EXPECT_TRUE(holds(refused({.across = "/engine/bach"}), "no run has the field '/engine/bach', named by --across"));
  EXPECT_TRUE(
      holds(refused({.across = "/engine/batch", .figures = {"tua"}}), "no figure 'tua' for --figures (did you"));
}

TEST(Sections, AnUnknownPointerIsAnError) {
  const auto refused = [](const std::string& pointer) {
    return test::sentence_of([&] { shown_by("terminal", {pointer}); });
  };
  EXPECT_TRUE(holds(refused("/engine/bach"), "no run has the field '/engine/bach', named by --by"));
  EXPECT_TRUE(holds(refused("batch"), "is not a JSON pointer"));
}

}  // namespace
}  // namespace foretoken
