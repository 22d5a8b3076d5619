// What the page of a report shows, as JSON.
#include <charconv>
#include <set>

#include "experiments/report/machine.h"
#include "experiments/report/page.h"
#include "experiments/report/repeat.h"
#include "experiments/report/report.h"
#include "foretoken_version.h"

namespace foretoken {
namespace {

using nlohmann::json;

// The number that a whole text is; null where it is none.
json number_of(const std::string& text) {
  double x = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), x);
  return error == std::errc() && end == text.data() + text.size() ? finite(x) : json();
}

json cell_json(const Cell& cell, const Column& column) {
  const std::string text = cell.shown();
  if (cell.kind == Cell::Kind::interval)
    return {text, finite(cell.interval.value), finite(cell.interval.low), finite(cell.interval.high)};
  if (cell.kind == Cell::Kind::number) return {text, finite(cell.interval.value)};
  return column.kind == Column::Kind::text ? json(text) : json{text, number_of(text)};
}

json table_json(const Table& table) {
  static const char* const kKinds[] = {"text", "number", "interval"};
  json columns = json::array(), rows = json::array();
  for (const Column& c : table.columns)
    columns.push_back({{"title", c.title}, {"name", c.name}, {"meaning", c.meaning}, {"kind", kKinds[int(c.kind)]}});
  for (const Row& row : table.rows) {
    json cells = json::array();
    for (std::size_t i = 0; i < row.cells.size(); ++i) cells.push_back(cell_json(row.cells[i], table.columns[i]));
    rows.push_back({{"cells", cells}, {"rule", row.rule_before}});
    if (!row.sentence.empty()) rows.back()["sentence"] = row.sentence;
  }
  return {{"title", table.title}, {"note", table.note}, {"columns", columns}, {"rows", rows}};
}

json axes_json(const View& view) {
  json found = json::array();
  const std::vector<Column> columns = view.axes.table_columns();
  for (std::size_t i = 0; i < columns.size(); ++i) {
    const Axis& axis = view.axes.columns()[i];
    const std::string part = axis.pointer.substr(1, axis.pointer.find('/', 1) - 1);
    const bool method = part == "drafter" || part == "policy" || part == "verifier" || part == "plugins";
    found.push_back({{"name", columns[i].name},
                     {"title", axis.title},
                     {"pointer", axis.pointer},
                     {"numeric", axis.numeric},
                     {"policy", part == "policy"},
                     {"role", method ? "method" : "condition"}});
  }
  return found;
}

// The figures that plots are drawn from; tables have the others.
json figures_json(const Summary& summary) {
  json figures = to_json(summary).at("figures");
  for (const char* list : {"by_prompt", "categories", "histogram"}) figures.erase(list);
  return figures;
}

json run_json(const View& view, std::size_t i, std::size_t group) {
  const Summary& s = view.cells[i];
  json cells = json::array(), values = json::array();
  for (std::size_t axis = 0; axis < view.axes.columns().size(); ++axis) {
    cells.push_back(view.axes.cell(axis, s.run()).shown());
    values.push_back(view.axes.value(axis, s.run()));
  }
  json found = {{"key", s.line.value("key", "")},
                {"label", view.axes.label(s.run())},
                {"cells", cells},
                {"values", values},
                {"group", group},
                {"kind", kind_of(s.promise)},
                {"document", s.run()}};
  if (s.failed())
    found["error"] = s.error;
  else
    found["figures"] = figures_json(s);
  return found;
}

json runs_json(const View& view) {
  json found = json::array();
  std::vector<std::size_t> group_of_run(view.cells.size());
  const auto groups = view.groups(view.axes.outside_policy());
  for (std::size_t g = 0; g < groups.size(); ++g)
    for (const std::size_t i : groups[g]) group_of_run[i] = g;
  for (std::size_t i = 0; i < view.cells.size(); ++i) found.push_back(run_json(view, i, group_of_run[i]));
  return found;
}

std::string text_at(const json& object, const char* key) {
  return object.contains(key) && object[key].is_string() ? object[key].get<std::string>() : "";
}

// "NVIDIA H200, 132 multiprocessors; Intel(R) Xeon(R) Processor, 16 cores, 126 GiB, Ubuntu 24.04.3 LTS"
std::string machine_text(const json& machine) {
  std::string found = text_at(machine, "description"), host = text_at(machine, "cpu");
  for (const auto& [key, unit] : {std::pair("cores", " cores"), std::pair("memory_gib", " GiB")})
    if (machine.contains(key) && machine[key].is_number())
      host += (host.empty() ? "" : ", ") + machine[key].dump() + unit;
  for (const std::string& part : {text_at(machine, "os")})
    if (!part.empty()) host += (host.empty() ? "" : ", ") + part;
  return found + (found.empty() || host.empty() ? "" : "; ") + host;
}

json listed(const std::set<std::string>& texts) {
  json found = json::array();
  for (const std::string& text : texts)
    if (!text.empty()) found.push_back(text);
  return found;
}

// Where the figures come from: a list of each, since several may have measured one file.
json origins_json(const View& view) {
  std::set<std::string> machines, commits, dates;
  for (const Summary& s : view.cells) {
    if (s.line.contains("machine") && s.line["machine"].is_object()) machines.insert(machine_text(s.line["machine"]));
    commits.insert(text_at(s.line, "commit"));
    dates.insert(text_at(s.line, "date").substr(0, 10));
  }
  return {{"note", view.origin()},
          {"models", view.models()},
          {"machines", listed(machines)},
          {"commits", listed(commits)},
          {"dates", listed(dates)}};
}

}  // namespace

json page_payload(const View& view, const PageFiles& files) {
  json tables = json::array();
  for (const Table& table : shown_tables(view, {})) tables.push_back(table_json(table.brief()));
  json found = origins_json(view);
  std::string title;
  for (const std::string& name : files.results) title += (title.empty() ? "" : ", ") + name;
  for (const std::string& condition : files.where) title += ", " + condition;
  found.update({{"title", title},
                {"made", {{"date", utc_now()}, {"version", kVersion}, {"commit", kCommit}}},
                {"axes", axes_json(view)},
                {"runs", runs_json(view)},
                {"tables", tables},
                {"commands", repeating_commands(view, files)}});
  return found;
}

}  // namespace foretoken
