// Stored results as one HTML page: the output of `foretoken report`. The page holds all that it shows and loads
// nothing. This module must not know how the page draws: that is in page/.
#pragma once
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

}  // namespace foretoken
