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

// The files as the user named them: for the title, and for the commands that repeat the page.
struct PageFiles {
  std::vector<std::string> results = {"results.jsonl"};
  std::string out = "report.html";
  std::vector<std::string> where = {};  // the conditions that chose the runs
};

// What the page shows:
//   title, made {date, version, commit}, note, models, machines, commits, dates: where the figures come from
//   axes      name (of the tables' column), title, pointer, numeric, role: "method" (what is compared) or "condition"
//   runs      key, label, cells (axes as text), values (axes as they are), group (runs that differ only in their policy
//             share one), kind (of the promise), figures or error, document (the complete run)
//   tables    as `show` prints them. A cell is a text, or [text, sort key], or [text, value, low, high]; what is
//   unknown
//             is null
//   commands  text, meaning, and the sweep's document where all runs are one sweep
nlohmann::json page_payload(const View& view, const PageFiles& files);

// JSON that can stand within <script>: it has neither `<` nor a character outside ASCII.
std::string script_json(const nlohmann::json& value);
// Text that can stand in HTML.
std::string html_text(const std::string& text);

// The page. No lines at all are an Error.
std::string page(const std::vector<nlohmann::json>& lines, const PageFiles& files);

// Whether a file begins as a page of this module.
bool is_page(std::string_view bytes);

// Templates, styles and scripts in one text, with two marks for what follows from the results: made by the build from
// page/ and d3.
std::string_view page_template();

}  // namespace foretoken
