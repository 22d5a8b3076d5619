#include "experiments/report/report.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "experiments/report/tables.h"
#include "framework/text/known_names.h"
#include "kernels/error.h"

namespace foretoken {
namespace {

using nlohmann::json;

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
    throw Error("CSV holds one table: name one of " + listed(names_of(table_kinds())) + ", or take --format json");
  const std::string name = options.tables.empty() ? "main" : options.tables[0];
  return std::ranges::find(table_kinds(), name, &TableKind::name)->csv(view);
}

// The axes of a run, by their pointers.
json axes_json(const View& view, const json& run) {
  json found = json::object();
  for (const std::size_t axis : view.axes.all()) found[view.axes.columns()[axis].pointer] = view.axes.value(axis, run);
  return found;
}

// Of its components; and of a plot's line over temperatures, batches or lengths: "method" without what the policy is.
json names_json(const View& view, const json& run) {
  json found = json::object();
  for (const char* part : {"drafter", "verifier", "policy"})
    found[part] = view.axes.names().name(run, std::string("/") + part);
  std::vector<std::size_t> line, method;
  for (const std::size_t axis : view.axes.all()) {
    const std::string& pointer = view.axes.columns()[axis].pointer;
    if (pointer == "/sampling/temperature" || pointer == "/engine/batch" || pointer == "/policy/length") continue;
    line.push_back(axis);
    if (group_of(pointer) != "policy") method.push_back(axis);
  }
  for (const auto& [name, axes] : {std::pair("line", &line), std::pair("method", &method)}) {
    const std::string label = view.axes.label(run, *axes);
    found[name] = label.empty() ? found["drafter"] : json(label);
  }
  return found;
}

// All figures by their names in CSV; bounds under NAME_low and NAME_high.
json values_json(const Summary& summary) {
  json found = json::object();
  for (const auto& [name, cell, better] : run_figures(summary)) {
    found[name] = cell.kind == Cell::Kind::text ? json(cell.text) : finite(cell.interval.value);
    if (cell.kind != Cell::Kind::interval) continue;
    found[name + "_low"] = finite(cell.interval.low);
    found[name + "_high"] = finite(cell.interval.high);
  }
  return found;
}

json programs(const View& view, const ShowOptions& options) {
  json cells = json::array(), best = json::array();
  for (const Summary& summary : view.cells) {
    cells.push_back(to_json(summary));
    json& cell = cells.back();
    cell["label"] = view.axes.label(summary.run());
    cell["names"] = names_json(view, summary.run());
    cell["axes"] = axes_json(view, summary.run());
    if (!summary.failed()) cell["values"] = values_json(summary);
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
  json found = {{"cells", cells}, {"best", best}};
  if (!options.across.empty()) found["across"] = table_json(across_table(view, options.across, options.figures));
  return found;
}

// The runs of one value of each pointer that tables are divided by.
struct Section {
  std::string title;  // "batch 4"; empty: all runs
  json by;            // the values by their pointers
  View view;
};

// With one name for a component in all of them.
std::vector<Section> sections_of(const std::vector<Result>& lines, const ShowOptions& options) {
  const std::vector<std::string>& by = options.by;
  std::vector<Summary> summaries = summarize(lines);
  std::vector<Section> found;
  std::vector<json> runs;
  for (const Summary& summary : summaries) runs.push_back(summary.run());
  std::vector<std::string> apart = by;
  if (!options.across.empty()) apart.push_back(options.across);
  for (const std::string& pointer : apart)
    if (!runs.empty()) expect_known(runs, pointer, pointer == options.across ? "named by --across" : "named by --by");
  const ComponentNames names(runs, apart);
  if (by.empty() || summaries.empty()) {
    found.push_back({"", json::object(), View::of(std::move(summaries), names)});
    return found;
  }
  const Axes divided = Axes::of_pointers(runs, by);
  const auto values = [&](const json& run) {
    json all = json::object();
    for (const std::size_t axis : divided.all()) all[by[axis]] = divided.value(axis, run);
    return all;
  };
  std::vector<std::pair<json, std::vector<Summary>>> parts;
  for (const std::size_t i : divided.order(runs)) {
    const json all = values(runs[i]);
    std::size_t at = 0;
    while (at < parts.size() && parts[at].first != all) ++at;
    if (at == parts.size()) parts.push_back({all, {}});
    parts[at].second.push_back(std::move(summaries[i]));
  }
  for (auto& [all, some] : parts) {
    const std::string title = divided.label(some[0].run());
    found.push_back({title, all, View::of(std::move(some), names)});
  }
  return found;
}

std::string json_text(const std::vector<Section>& sections, const ShowOptions& options) {
  json found = {{"schema", 1}};
  if (options.by.empty()) {
    found.update(programs(sections[0].view, options));
  } else {
    for (const Section& section : sections) {
      found["sections"].push_back({{"title", section.title}, {"by", section.by}});
      found["sections"].back().update(programs(section.view, options));
    }
  }
  return found.dump(1) + "\n";
}

std::vector<Table> section_tables(const Section& section, const ShowOptions& options) {
  const bool csv = options.format == "csv", across = !options.across.empty();
  std::vector<Table> tables;
  if (across) tables.push_back(across_table(section.view, options.across, options.figures));
  if (csv && !across) tables.push_back(csv_table(section.view, options));
  if (!csv && (!across || !options.tables.empty()))
    for (Table& table : shown_tables(section.view, options.tables)) tables.push_back(std::move(table));
  const std::string models = csv ? "" : section.view.models();
  if (csv) tables[0] = naming_models(std::move(tables[0]), section.view);
  for (Table& table : tables) {
    if (!section.title.empty()) table.title += ": " + section.title;
    if (!models.empty()) table.note += (table.note.empty() ? "" : " ") + models + ".";
  }
  return tables;
}

// Sections of CSV follow their titles, after empty lines.
std::string report(const std::vector<Result>& lines, const ShowOptions& options) {
  static const std::vector<std::string> kFormats = {"terminal", "markdown", "latex", "csv", "json"};
  expect_tables(options.tables);
  if (std::ranges::find(kFormats, options.format) == kFormats.end())
    throw Error("unknown format '" + options.format + "': there are " + listed(kFormats));
  std::vector<Section> sections = sections_of(lines, options);
  if (options.format == "csv")
    for (Section& section : sections) section.view.mark_unfinished();
  if (options.format == "json") return json_text(sections, options);
  std::string found;
  std::vector<Table> all;
  for (const Section& section : sections)
    for (Table& table : section_tables(section, options)) all.push_back(std::move(table));
  for (const Table& table : all) {
    if (!found.empty()) found += "\n";
    if (options.format == "csv" && !options.by.empty()) found += table.title_csv();
    found += options.format == "csv"        ? table.csv()
             : options.format == "latex"    ? table.latex()
             : options.format == "markdown" ? table.markdown()
                                            : table.terminal(options.width);
  }
  const bool people = options.format == "terminal" || options.format == "markdown";
  return people ? found + "\n" + legend(all, options.width, options.format == "markdown") : found;
}

}  // namespace

void expect_tables(const std::vector<std::string>& names) {
  for (const std::string& name : names)
    if (std::ranges::find(table_kinds(), name, &TableKind::name) == table_kinds().end())
      throw Error("unknown table '" + name + "': there are " + listed(names_of(table_kinds())));
}

std::vector<Table> shown_tables(const View& view, const std::vector<std::string>& names) {
  expect_tables(names);
  std::vector<Table> tables;
  for (const TableKind& kind : table_kinds())
    if (names.empty() || std::ranges::find(names, kind.name) != names.end())
      for (Table& table : kind.shown(view))
        if (!table.rows.empty()) tables.push_back(std::move(table));
  return tables;
}

std::string show(const std::vector<Result>& lines, const ShowOptions& options) {
  return of_lines([&] { return report(lines, options); });
}

}  // namespace foretoken
