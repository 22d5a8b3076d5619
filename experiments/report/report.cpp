#include "experiments/report/report.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "experiments/report/tables.h"
#include "kernels/error.h"

namespace foretoken {
namespace {

using nlohmann::json;

const std::vector<std::string> kTables = {"main",    "theory", "positions", "categories", "load",
                                          "latency", "phases", "memory",    "best"};

std::string joined(const std::vector<std::string>& words) {
  std::string found;
  for (const std::string& word : words) found += (found.empty() ? "" : ", ") + word;
  return found;
}

// The named tables, in the order of kTables.
std::vector<std::string> chosen(const std::vector<std::string>& tables) {
  expect_tables(tables);
  if (tables.empty()) return kTables;
  std::vector<std::string> names;
  for (const std::string& name : kTables)
    if (std::ranges::find(tables, name) != tables.end()) names.push_back(name);
  return names;
}

// Every row names the model that ran, if it is not simply a directory's.
Table naming_models(Table table, const View& view) {
  const std::string models = view.models();
  if (models.empty()) return table;
  table.columns.insert(table.columns.begin(), {"models", "models", "what ran", Column::Kind::text});
  for (Row& row : table.rows) row.cells.insert(row.cells.begin(), Cell::of(models));
  return table;
}

Table csv_table(const View& view, const ShowOptions& options) {
  if (options.tables.size() > 1)
    throw Error("CSV holds one table: name one of " + joined(kTables) + ", or take --format json");
  const std::string name = options.tables.empty() ? "main" : chosen(options.tables).front();
  if (name == "main") return figures_table(view);
  if (name == "theory") return theory_table(view);
  if (name == "positions") return every_position_table(view);
  if (name == "categories") return category_table(view, false);
  if (name == "load") return every_load_table(view);
  if (name == "latency") return latency_table(view);
  if (name == "memory") return memory_table(view);
  return name == "phases" ? phase_table(view) : best_table(view);
}

// The axes of a run, by their pointers.
json axes_json(const View& view, const json& run) {
  json found = json::object();
  for (const Axis& axis : view.axes.columns()) {
    found[axis.pointer] = told(run, axis.pointer);
  }
  return found;
}

std::string programs(const View& view) {
  json cells = json::array(), best = json::array();
  for (const Summary& summary : view.cells) {
    cells.push_back(to_json(summary));
    cells.back()["axes"] = axes_json(view, summary.run());
  }
  const auto key = [&](std::size_t i) { return view.cells[i].result.key; };
  for (const Best& b : best_of(view)) {
    json as_good = json::array();
    for (const std::size_t i : b.as_good) as_good.push_back(key(i));
    best.push_back({{"key", key(b.cell)},
                    {"axes", axes_json(view, view.cells[b.cell].run())},
                    {"speedup", to_json(b.speedup)},
                    {"candidates", b.candidates},
                    {"as_good", as_good}});
  }
  return json{{"schema", 1}, {"cells", cells}, {"best", best}}.dump(1) + "\n";
}

std::string report(const std::vector<Result>& lines, const ShowOptions& options) {
  expect_tables(options.tables);
  const View view(lines);
  if (options.format == "json") return programs(view);
  if (options.format == "csv") return naming_models(csv_table(view, options), view).csv();
  if (options.format != "terminal" && options.format != "markdown")
    throw Error("unknown format '" + options.format + "': there are terminal, markdown, csv, json");
  const bool markdown = options.format == "markdown";
  std::vector<Table> tables = shown_tables(view, options.tables);
  if (const std::string models = view.models(); !models.empty())
    for (Table& table : tables) table.note += (table.note.empty() ? "" : " ") + models + ".";
  std::string found;
  for (const Table& table : tables) found += (markdown ? table.markdown() : table.terminal(options.width)) + "\n";
  return found + legend(tables, options.width, markdown);
}

}  // namespace

void expect_tables(const std::vector<std::string>& names) {
  for (const std::string& name : names)
    if (std::ranges::find(kTables, name) == kTables.end())
      throw Error("unknown table '" + name + "': there are " + joined(kTables));
}

// Those without categories, drafts or several lengths have no content.
std::vector<Table> shown_tables(const View& view, const std::vector<std::string>& names) {
  std::vector<Table> tables;
  for (const std::string& name : chosen(names)) {
    if (name == "main") tables.push_back(main_table(view));
    if (name == "theory") tables.push_back(theory_table(view));
    if (name == "positions")
      for (Table& table : position_tables(view))
        if (table.columns.size() > view.columns().size()) tables.push_back(std::move(table));
    if (name == "categories") tables.push_back(category_table(view, true));
    if (name == "load")
      for (Table& table : load_tables(view)) tables.push_back(std::move(table));
    if (name == "latency") tables.push_back(latency_table(view));
    if (name == "phases") tables.push_back(phase_table(view));
    if (name == "memory") tables.push_back(memory_table(view));
    if (name == "best" && !view.axes.of_policy().empty()) tables.push_back(best_table(view));
  }
  std::erase_if(tables, [](const Table& table) { return table.rows.empty(); });
  return tables;
}

std::string show(const std::vector<Result>& lines, const ShowOptions& options) {
  return of_lines([&] { return report(lines, options); });
}

}  // namespace foretoken
