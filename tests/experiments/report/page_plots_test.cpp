// The plots of the page, what they are drawn over, and what the first screen says.
#include <gtest/gtest.h>

#include "experiments/report/page.h"
#include "tests/experiments/report/made_results.h"
#include "tests/experiments/report/plot_marks.h"
#include "tests/support/sentence.h"
#include "tests/support/source.h"

namespace foretoken {
namespace {

using nlohmann::json;
using test::holds;
using test::marks_of;
using test::swept_lines;

json plots_of(const std::vector<json>& lines, const PlotChoice& choice = {}) {
  return plots_json(view_of(lines), choice);
}

json plot_of(const json& plots, const std::string& id) {
  for (const json& plot : plots)
    if (plot["id"] == id) return plot;
  return nullptr;
}

std::vector<std::string> ids_of(const json& plots) {
  std::vector<std::string> found;
  for (const json& plot : plots) found.push_back(plot["id"]);
  return found;
}

std::vector<std::string> names_of(const json& panels, const char* key) {
  std::vector<std::string> found;
  for (const json& one : panels) found.push_back(one[key]);
  return found;
}

using Names = std::vector<std::string>;

TEST(Plots, SpeedupOverEveryNumber) {
  const json plots = plots_of(swept_lines());
  EXPECT_EQ(ids_of(plots), (Names{"speedup-policy/length", "speedup-engine/batch", "speedup-sampling/temperature",
                                  "positions", "phases", "pareto"}));
  const json figure = plots[0]["figures"][0];
  EXPECT_EQ(names_of(figure["panels"], "title"),
            (Names{"T 0, batch 1", "T 0, batch 4", "T 1, batch 1", "T 1, batch 4"}));
  EXPECT_EQ(names_of(figure["panels"][0]["series"], "name"), (Names{"draft_model", "ngram"}));
  EXPECT_EQ(figure["panels"][0]["series"][0]["points"].size(), 2u) << "every length is a point";
  EXPECT_EQ(figure["x"]["ticks"], json({2, 8}));
  EXPECT_EQ(figure["reference"], 1);
  for (const json& mark : marks_of(figure)) {
    EXPECT_GE(mark["y"], figure["y"]["domain"][0]);
    EXPECT_LE(mark["y"], figure["y"]["domain"][1]);
  }
}

TEST(Plots, OverABatchEachPointIsTheFastestPolicyFirst) {
  const json figure = plot_of(plots_of(swept_lines()), "speedup-engine/batch")["figures"][0];
  EXPECT_EQ(names_of(figure["panels"], "title"), (Names{"T 0", "T 1"}));
  const json point = figure["panels"][0]["series"][0]["points"][0];
  ASSERT_EQ(point.size(), 2u) << "the lengths";
  EXPECT_GT(point[0]["y"], point[1]["y"]);
}

TEST(Plots, ANameHasOneColourInAllPlots) {
  std::map<std::string, json> colours;
  for (const json& plot : plots_of(swept_lines()))
    for (const json& figure : plot["figures"])
      for (const json& panel : figure["panels"])
        for (const json& series : panel["series"])
          EXPECT_EQ(colours.try_emplace(series["name"], series["colour"]).first->second, series["colour"]);
  EXPECT_EQ(colours.at("draft_model"), 0);
  EXPECT_EQ(colours.at("plain decoding"), "plain");
}

TEST(Plots, PanelsShareScalesAndWideIntervalsAreCut) {
  std::vector<json> lines = swept_lines();
  const json before = plots_of(lines)[0]["figures"][0]["y"];
  for (json& request : lines[0]["repeats"][0]["speculative"]["requests"])  // one alternation ten times as slow
    for (const char* seconds : {"share_seconds", "seconds", "decode_seconds"})
      request[seconds] = 10 * request[seconds].get<double>();
  lines[0]["repeats"][0]["speculative"]["seconds"] =
      10 * lines[0]["repeats"][0]["speculative"]["seconds"].get<double>();
  const json figure = plots_of(lines)[0]["figures"][0];
  double widest = 0;
  for (const json& mark : marks_of(figure))
    if (mark["high"].is_number()) widest = std::max(widest, mark["high"].get<double>());
  EXPECT_GT(widest, figure["y"]["domain"][1]) << "the case is one";
  EXPECT_LT(figure["y"]["domain"][1].get<double>(), 3 * before["domain"][1].get<double>());
}

TEST(Plots, AnOptionThatASweepNamesIsAnAxis) {
  std::vector<json> lines;
  for (const int longest : {2, 3, 4}) {
    lines.push_back(test::swept_line("ngram", 2, 0, 1, 1 + 0.1 * longest));
    lines.back()["run"]["drafter"]["longest"] = longest;
    lines.back()["axes"]["/drafter/longest"] = longest;
    lines.back()["key"] = std::to_string(longest);
  }
  const json figure = plot_of(plots_of(lines), "speedup-drafter/longest")["figures"][0];
  EXPECT_EQ(figure["x"]["title"], "longest of the drafter");
  ASSERT_EQ(figure["panels"][0]["series"].size(), 1u) << "the option is in no name of this plot";
  EXPECT_EQ(figure["panels"][0]["series"][0]["points"].size(), 3u);
}

TEST(Plots, OnesOwnComesFirst) {
  const json plots = plots_of(swept_lines(), {"/policy/length", "tau", "/drafter/name", "/engine/batch"});
  EXPECT_EQ(plots[0]["title"], "tau over draft length");
  const json figure = plots[0]["figures"][0];
  EXPECT_EQ(names_of(figure["panels"], "title"), (Names{"batch 1", "batch 4"}));
  EXPECT_EQ(names_of(figure["panels"][0]["series"], "name"), (Names{"drafter draft_model", "drafter ngram"}));
  EXPECT_EQ(figure["panels"][0]["series"][0]["points"][0].size(), 2u) << "two temperatures share a point";
  EXPECT_TRUE(holds(plots[0]["caption"], "the best of the runs that share it"));
  EXPECT_FALSE(figure.contains("reference"));
  EXPECT_EQ(plots[1]["id"], "speedup-policy/length");
  const json least = plots_of(swept_lines(), {.x = "/engine/batch", .y = "step_ms"})[0]["figures"][0];
  const json point = least["panels"][0]["series"][0]["points"][0];
  EXPECT_LE(point[0]["y"], point[1]["y"]) << "less is better";
}

TEST(Plots, WhatCannotBeDrawnIsSaid) {
  const auto refused = [](const PlotChoice& choice) {
    return test::sentence_of([&] { plots_of(swept_lines(), choice); });
  };
  EXPECT_TRUE(holds(refused({.y = "speedups"}), "no figure 'speedups' for --y (did you mean 'speedup'?): there are "));
  EXPECT_TRUE(holds(refused({.y = "commit"}), "no figure 'commit'")) << "a text";
  EXPECT_TRUE(holds(refused({.x = "/engine/bach"}), "no run has the field '/engine/bach', named by --x"));
  EXPECT_TRUE(holds(refused({.x = "/drafter/name"}), "--x /drafter/name is no number in any run"));
  EXPECT_TRUE(holds(refused({.colour = "drafter"}), "is not a JSON pointer"));
  EXPECT_TRUE(holds(refused({.columns = "/nothing"}), "named by --columns"));
  EXPECT_TRUE(holds(refused({.y = "log_probability"}), "no run has the figure log_probability"));
  EXPECT_TRUE(holds(test::sentence_of([] { plots_of({test::worked_line()}, {.y = "tau"}); }), "name one with --x"));
}

TEST(Plots, RunsWithoutANumberAreRows) {
  const json plots = plots_of({test::worked_line()});
  EXPECT_EQ(ids_of(plots), (Names{"speedup-rows", "positions", "phases", "pareto"}));
  ASSERT_EQ(plots[0]["intervals"].size(), 1u);
  EXPECT_EQ(plots[0]["intervals"][0]["y"], 1.6);
  const json bar = plots[2]["bars"][0];
  double sum = 0;
  for (const json& part : bar["parts"]) sum += part["ms"].get<double>();
  EXPECT_NEAR(sum, bar["total"], 1e-9);
}

TEST(Plots, PlainDecodingIsTheMedianOfTheBaselines) {
  const json figure = plot_of(plots_of(swept_lines()), "pareto")["figures"][0];
  const std::vector<json> plain = marks_of(figure, "plain decoding");
  ASSERT_EQ(plain.size(), 4u) << "two batches, two temperatures";
  EXPECT_EQ(plain[0]["runs"].size(), 4u);
  EXPECT_TRUE(holds(plain[0]["text"][0], "median of 4 baselines")) << plain[0]["text"];
  EXPECT_EQ(figure["front"], true);
}

TEST(Verdict, SaysWhatIsBestAndWhereSpeculationLoses) {
  const View view = view_of(swept_lines());
  const std::vector<std::string> lines = verdict_lines(view);
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_TRUE(lines[0].starts_with("Best: draft_model, length 8, at T 0, batch 1: 1.68 [")) << lines[0];
  EXPECT_TRUE(holds(lines[1], "Speculation is clearly slower than plain decoding in ") &&
              holds(lines[1], " of 16 runs"))
      << lines[1];
  EXPECT_TRUE(holds(lines[2], "No method clearly gains at: T 0, batch 4")) << lines[2];
  const Table table = verdict_table(view);
  ASSERT_EQ(table.rows.size(), 4u);
  EXPECT_EQ(table.rows[0].cells[2].shown(), "draft_model, length 8");
  EXPECT_EQ(table.rows[0].cells[4].shown(), "4");
  EXPECT_TRUE(holds(table.rows[1].cells[5].shown(), "ngram, length 8 (0.")) << table.rows[1].cells[5].shown();
}

TEST(Verdict, SaysWhereNothingWins) {
  std::vector<json> lines = {test::swept_line("ngram", 8, 0, 4, 0.5)};
  EXPECT_TRUE(verdict_lines(view_of(lines))[0].starts_with("No run is faster than plain decoding; the best is ngram"))
      << verdict_lines(view_of(lines))[0];
  lines = {test::swept_line("ngram", 2, 0, 1, 1.8)};
  EXPECT_EQ(verdict_lines(view_of(lines))[1], "No run is clearly slower than plain decoding.");
  lines[0].erase("repeats"), lines[0]["error"] = "out of memory";
  EXPECT_TRUE(verdict_lines(view_of(lines)).empty());
  EXPECT_TRUE(verdict_table(view_of(lines)).rows.empty());
}

}  // namespace
}  // namespace foretoken
