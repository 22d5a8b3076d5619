// Stored results as one HTML page: the output of `foretoken report`. The page holds all that it shows and loads
// nothing. This module must not know how the page draws: that is in page/.
#pragma once
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "experiments/report/tables.h"

namespace foretoken {

// A plot of one's own: a figure over a pointer of numbers, a colour and a panel for each value of a pointer. What is
// empty is chosen: the first number, speedup, methods, conditions.
struct PlotChoice {
  std::string x{}, y{}, colour{}, columns{};
  bool given() const { return !(x + y + colour + columns).empty(); }
};

// The files as the user named them: for the title, and for the commands that repeat the page.
struct PageFiles {
  std::vector<std::string> results = {"results.jsonl"};
  std::string out = "report.html";
  std::vector<std::string> where = {};  // the conditions that chose the runs
  PlotChoice plot{};
};

// What the page shows:
//   title, made {date, version, commit}, note, models, machines, commits, dates: where the figures come from
//   verdict   lines, and a table or null: what is best, and where speculation loses
//   axes      name (of the tables' column), title
//   runs      key, label, cells (axes as text), error of a failed one, document (the complete run)
//   plots     id, title, caption, and figures (figure_json), intervals or bars. Marks name their runs by index
//   tables    as `show` prints them. A cell is a text, or [text, sort key], or [text, value, low, high]; what is
//             unknown is null
//   commands  text, meaning, and the sweep's document where all runs are one sweep
nlohmann::json page_payload(const View& view, const PageFiles& files);

// The plots; a pointer that no run has, or a figure that there is not, is an Error that says which there are.
nlohmann::json plots_json(const View& view, const PlotChoice& choice);

// Panels of marks as the page draws them

using Indices = std::vector<std::size_t>;

// One mark of a plot. Where several have a place of their series, the first by `rank` is shown of those whose runs are.
struct PlotMark {
  double x = 0;
  Interval y{};
  double rank = 0;
  Indices runs;
  bool hollow = false;  // the output is not plain decoding's distribution
  std::vector<std::string> text;
};

struct MarkSeries {
  std::string name;
  std::vector<PlotMark> marks;
};
struct Panel {
  std::string title;
  std::vector<MarkSeries> series;
};

// Panels in the order in which they are met, and their series.
struct Panels {
  std::vector<Panel> all;

  void add(const std::string& panel, const std::string& series, PlotMark mark) {
    if (!std::isfinite(mark.x) || !std::isfinite(mark.y.value)) return;
    at(at(all, panel.empty() ? "all runs" : panel, &Panel::title).series, series, &MarkSeries::name)
        .marks.push_back(std::move(mark));
  }

 private:
  template <class T> static T& at(std::vector<T>& list, const std::string& name, std::string T::* key) {
    const auto known = std::ranges::find(list, name, key);
    if (known != list.end()) return *known;
    list.emplace_back().*key = name;
    return list.back();
  }
};

struct ScaleKind {
  std::string title;
  bool discrete = false, octaves = false, from_zero = false;
  std::vector<double> holds{};  // values that it must hold
};

nlohmann::json mark_json(const PlotMark& mark);

// {title, x, y: scales, panels: [{title, series: [{name, points: [candidates of one point]}]}]}. `merged`: marks of a
// series with one x are candidates for one point. All panels have the same scales.
nlohmann::json figure_json(Panels panels, const std::string& title, const ScaleKind& x, const ScaleKind& y,
                           bool merged);

// Per condition the best method, and those that lose; and the same in two or three sentences. Empty without speedups.
Table verdict_table(const View& view);
std::vector<std::string> verdict_lines(const View& view);

// JSON that can stand within <script>: it has neither `<` nor a character outside ASCII.
std::string script_json(const nlohmann::json& value);
// Text that can stand in HTML.
std::string html_text(const std::string& text);

// The page. No lines at all are an Error.
std::string page(const std::vector<Result>& lines, const PageFiles& files);

// Whether a file begins as a page of this module.
bool is_page(std::string_view bytes);

// Templates, styles and scripts in one text, with two marks for what follows from the results: made by the build from
// page/ and d3.
std::string_view page_template();

// The document of a sweep with exactly these runs; null where they are not all combinations of their axes, or of
// several programs or prompts. One run without axes is its own document.
nlohmann::json sweep_document(const std::vector<Summary>& runs);

// {"document": the sweep's or null, "lines": [{"text": a command, "meaning": what it does}]}, in the order in which
// they are given.
nlohmann::json repeating_commands(const View& view, const PageFiles& files);

}  // namespace foretoken
