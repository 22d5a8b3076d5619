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

json axes_json(const View& view) {
  json found = json::array();
  for (const Column& column : view.axes.table_columns())
    found.push_back({{"name", column.name}, {"title", column.title}});
  return found;
}

json runs_json(const View& view) {
  json found = json::array();
  for (const Summary& s : view.cells) {
    json cells = json::array();
    for (const Cell& cell : view.axes.cells(s.run())) cells.push_back(cell.shown());
    found.push_back(
        {{"key", s.result.key}, {"label", view.axes.label(s.run())}, {"cells", cells}, {"document", s.run()}});
    if (s.failed()) found.back()["error"] = s.error;
  }
  return found;
}

// "NVIDIA H200, 132 multiprocessors; Intel(R) Xeon(R) Processor, 16 cores, 126 GiB, Ubuntu 24.04.3 LTS"
std::string machine_text(const MachineInfo& m) {
  return m.description + (m.description.empty() ? "" : "; ") + m.cpu + ", " + std::to_string(m.cores) + " cores, " +
         std::to_string(m.memory_gib) + " GiB, " + m.os;
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
    if (s.result.origin.machine) machines.insert(machine_text(*s.result.origin.machine));
    commits.insert(s.result.origin.commit);
    dates.insert(s.result.date.substr(0, 10));
  }
  return {{"note", view.origin()},
          {"models", view.models()},
          {"machines", listed(machines)},
          {"commits", listed(commits)},
          {"dates", listed(dates)}};
}

}  // namespace

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

json page_payload(const View& view, const PageFiles& files) {
  json tables = json::array();
  for (const Table& table : shown_tables(view, {})) tables.push_back(table_json(table.brief()));
  json found = origins_json(view);
  std::string title;
  for (const std::string& name : files.results) title += (title.empty() ? "" : ", ") + name;
  for (const std::string& condition : files.where) title += ", " + condition;
  found.update({{"title", title},
                {"made", {{"date", utc_now()}, {"version", kVersion}, {"commit", kCommit}}},
                {"verdict", {{"lines", verdict_lines(view)}, {"table", nullptr}}},
                {"axes", axes_json(view)},
                {"runs", runs_json(view)},
                {"plots", plots_json(view, files.plot)},
                {"tables", tables},
                {"commands", repeating_commands(view, files)}});
  if (const Table table = verdict_table(view); !table.rows.empty()) found["verdict"]["table"] = table_json(table);
  return found;
}

}  // namespace foretoken
