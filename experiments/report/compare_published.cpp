// Results beside the figures of a paper.
#include <algorithm>
#include <map>
#include <set>

#include "experiments/report/axes.h"
#include "experiments/report/published_cells.h"
#include "experiments/report/report.h"
#include "experiments/report/tables.h"
#include "experiments/report/terminal.h"
#include "framework/text/known_names.h"
#include "kernels/error.h"

namespace foretoken {
namespace {

using nlohmann::json;
using Kind = Column::Kind;

// What every row with a result differs in.
std::vector<std::string> common_differences(const std::vector<TableBeside>& tables) {
  std::vector<std::string> common;
  bool first = true;
  for (const TableBeside& table : tables)
    for (const Beside& beside : table.rows) {
      if (!beside.result) continue;
      if (first) common = beside.differs;
      first = false;
      std::erase_if(common, [&](const std::string& text) {
        return std::ranges::find(beside.differs, text) == beside.differs.end();
      });
    }
  return common;
}

std::string joined_text(const std::vector<std::string>& parts, const std::vector<std::string>& without) {
  std::string found;
  for (const std::string& part : parts)
    if (std::ranges::find(without, part) == without.end()) found += (found.empty() ? "" : "; ") + part;
  return found;
}

Interval over_paper(const Interval& here, double paper) {
  return {divide(here.value, paper), divide(here.low, paper), divide(here.high, paper)};
}

const PublishedMetric& metric_of(const PublishedTable& table) {
  return *std::ranges::find(published_metrics(), table.metric, [](const PublishedMetric& m) { return m.name; });
}

// Why there is no figure; where several results belong to a cell, also what this one's run differs in.
std::string remarks(const Beside& beside, const std::vector<Beside>& rows, const std::vector<std::string>& common) {
  if (!beside.result) return "not measured";
  std::string found = beside.figure.unknown;
  if (std::ranges::count(rows, beside.cell, &Beside::cell) < 2) return found;
  const std::string others = joined_text(beside.differs, common);
  return found.empty() || others.empty() ? found + others : found + "; " + others;
}

// What runs differ in beside what all do: "SpS, PLD: ...", by the rows of the paper's tables.
std::vector<std::string> further_differences(const std::vector<TableBeside>& tables,
                                             const std::vector<std::string>& common) {
  std::vector<std::pair<std::string, std::vector<std::string>>> rows_of;  // by difference
  for (const TableBeside& table : tables)
    for (const Beside& beside : table.rows) {
      const std::string text = joined_text(beside.differs, common);
      if (text.empty()) continue;
      auto known = std::ranges::find(rows_of, text, [](const auto& entry) { return entry.first; });
      if (known == rows_of.end()) known = rows_of.insert(known, {text, {}});
      if (std::ranges::find(known->second, beside.cell->row) == known->second.end())
        known->second.push_back(beside.cell->row);
    }
  std::vector<std::string> found;
  for (const auto& [text, rows] : rows_of) found.push_back(joined_text(rows, {}) + ": " + text);
  return found;
}

std::string models_of(const Beside& beside) {
  if (!beside.result) return "";
  if (beside.stand_ins) return "stand-ins";
  if (beside.others) return "others";
  return beside.other_path ? "other path" : "the paper's";
}

Table table_beside(const TableBeside& own, const std::vector<std::string>& common) {
  const PublishedMetric& metric = metric_of(*own.table);
  const bool has_columns = std::ranges::any_of(own.rows, [](const Beside& b) { return b.cell->column.has_value(); });
  Table table{.title = own.table->table + ": " + own.table->called, .note = "", .columns = {}, .rows = {}};
  table.columns.push_back({"row", "row", "row of the paper's table", Kind::text});
  if (has_columns) table.columns.push_back({"column", "column", "column of the paper's table", Kind::text});
  const std::vector<Column> figures = {
      {"paper", "paper", "the published figure"},
      {.title = "here",
       .name = "here",
       .meaning = "the same of the results, by the paper's definition",
       .kind = Kind::interval,
       .brief = true},
      {.title = "here/paper", .name = "ratio", .meaning = "their ratio", .kind = Kind::interval, .brief = true},
      {.title = std::string("our ") + metric.ours,
       .name = "ours",
       .meaning = "this project's nearest figure, of the same prompts",
       .kind = Kind::interval,
       .brief = true,
       .spare = true},
      {"models", "models",
       "whether the paper's models ran, those of another path, others because the paper's are not to be had, or "
       "stand-ins",
       Kind::text},
      {"remarks", "remarks", "why there is no figure", Kind::text}};
  table.columns.insert(table.columns.end(), figures.begin(), figures.end());
  for (const Beside& beside : own.rows) {
    Row& row = table.rows.emplace_back();
    row.cells.push_back(Cell::of(beside.cell->row));
    if (has_columns) row.cells.push_back(Cell::of(beside.cell->column.value_or("")));
    row.add({Cell::of(beside.cell->value, 2), Cell::of(beside.figure.here, 2),
             Cell::of(over_paper(beside.figure.here, beside.cell->value), 2), Cell::of(beside.figure.ours, 2),
             Cell::of(models_of(beside)), Cell::of(remarks(beside, own.rows, common))});
  }
  return table;
}

struct Evidence {
  std::vector<const Result*> results;
  std::string origin;  // of all of them, in words
};

std::string dtype_text(const std::vector<const Result*>& results) {
  std::set<std::string> texts;
  for (const Result* result : results) {
    const std::string dtype = result->run.value("/target/dtype"_json_pointer, "auto");
    texts.insert(dtype == "auto" ? "as stored (/target/dtype auto)" : dtype);
  }
  return listed({texts.begin(), texts.end()});
}

std::string models_text(const std::vector<const Result*>& results) {
  std::set<std::string> texts;
  for (const Result* result : results)
    for (const char* pointer : {"/target/model", "/drafter/model"})
      if (const json model = told(result->run, pointer); model.is_string()) texts.insert(model);
  return listed({texts.begin(), texts.end()});
}

std::string prompts_text(const std::vector<const Result*>& results) {
  std::set<std::string> texts;
  for (const Result* result : results) {
    std::set<int> prompts;
    for (const Alternation& a : result->repeats)
      for (const RequestRecord& r : a.speculative.requests) prompts.insert(r.prompt);
    const json& run = result->run;
    texts.insert(run.value("/workload/prompts"_json_pointer, "?") + ", " + std::to_string(prompts.size()) +
                 " prompts, at most " + run.value("/workload/max_new_tokens"_json_pointer, json()).dump() + " tokens");
  }
  return joined_text({texts.begin(), texts.end()}, {});
}

struct Setting {
  std::string what, paper, here;
};

// What cannot be compared but by a reader: in words, the paper's beside the results'.
std::vector<Setting> settings_of(const PublishedTable& table, const PublishedDocument& document,
                                 const Evidence& evidence) {
  const std::vector<const Result*>& results = evidence.results;
  const PublishedSettings &all = document.published.settings, own = table.settings.value_or(PublishedSettings{});
  const auto said = [](const std::optional<std::string>& own_text, const std::optional<std::string>& text) {
    return own_text ? *own_text : text.value_or("not said");
  };
  std::vector<Setting> found = {{"models", said(own.models, all.models), models_text(results)},
                                {"machine", said(own.hardware, all.hardware), evidence.origin},
                                {"program", said(own.engine, all.engine), "Foretoken"},
                                {"precision", said(own.precision, all.precision), dtype_text(results)},
                                {"prompts", said(own.prompts, all.prompts), prompts_text(results)},
                                {"baseline", said(own.baseline, all.baseline), "the same engine without speculation"},
                                {"metric", table.definition, metric_of(table).computed}};
  if (!own.models && !all.models) found.erase(found.begin());
  if (own.note || all.note) found.push_back({"note", said(own.note, all.note), ""});
  return found;
}

json setting_json(const std::vector<Setting>& settings) {
  json found = json::object();
  for (const Setting& s : settings) found[s.what] = {{"paper", s.paper}, {"here", s.here}};
  return found;
}

json row_json(const Beside& beside) {
  const PublishedCell& cell = *beside.cell;
  json found = {{"row", cell.row}, {"where", cell.where}, {"paper", cell.value}};
  if (cell.column) found["column"] = *cell.column;
  if (cell.categories) found["categories"] = *cell.categories;
  if (cell.position) found["position"] = *cell.position;
  if (!beside.result) return found;
  const MeasuredFigure& figure = beside.figure;
  found.update({{"key", beside.result->key},
                {"here", to_json(figure.here)},
                {"ratio", finite(beside.ratio())},
                {"difference", finite(figure.here.value - cell.value)},
                {"ours", to_json(figure.ours)},
                {"models", models_of(beside)},
                {"differs", beside.differs}});
  if (!figure.unknown.empty()) found["unknown"] = figure.unknown;
  return found;
}

std::string programs_of(const std::vector<TableBeside>& tables, const PublishedDocument& document,
                        const Evidence& evidence) {
  const Published& p = document.published;
  json found = {{"schema", 1}, {"paper", p.paper}, {"title", p.title}, {"source", p.source}, {"tables", json::array()}};
  found["left_out"] = p.left_out.value_or(std::vector<std::string>{});
  for (const TableBeside& own : tables) {
    json rows = json::array();
    for (const Beside& beside : own.rows) rows.push_back(row_json(beside));
    found["tables"].push_back({{"table", own.table->table},
                               {"called", own.table->called},
                               {"metric", own.table->metric},
                               {"ours", metric_of(*own.table).ours},
                               {"settings", setting_json(settings_of(*own.table, document, evidence))},
                               {"rows", rows}});
  }
  return found.dump(1) + "\n";
}

// One table of all figures.
Table every_figure(const std::vector<TableBeside>& tables, const PublishedDocument& document) {
  Table table{.title = document.published.title, .note = "", .columns = {}, .rows = {}};
  for (const char* name : {"paper", "table", "metric", "row", "column"})
    table.columns.push_back({name, name, "", Kind::text});
  table.columns.push_back({"published", "published", ""});
  table.columns.push_back({"here", "here", "", Kind::interval});
  table.columns.push_back({"ratio", "ratio", ""});
  table.columns.push_back({"difference", "difference", ""});
  table.columns.push_back({"our_figure", "our_figure", "", Kind::text});
  table.columns.push_back({"ours", "ours", "", Kind::interval});
  for (const char* name : {"models", "unknown", "differs", "key"})
    table.columns.push_back({name, name, "", Kind::text});
  for (const TableBeside& own : tables)
    for (const Beside& beside : own.rows) {
      const PublishedCell& cell = *beside.cell;
      const Interval& here = beside.figure.here;
      table.rows.emplace_back().add(
          {Cell::of(document.published.paper), Cell::of(own.table->table), Cell::of(own.table->metric),
           Cell::of(cell.row), Cell::of(cell.column.value_or("")), Cell::of(cell.value, 4), Cell::of(here, 4),
           Cell::of(divide(here.value, cell.value), 4), Cell::of(here.value - cell.value, 4),
           Cell::of(metric_of(*own.table).ours), Cell::of(beside.figure.ours, 4), Cell::of(models_of(beside)),
           Cell::of(beside.figure.unknown), Cell::of(joined_text(beside.differs, {})),
           Cell::of(beside.result ? beside.result->key : "")});
    }
  return table;
}

std::string lines_of(const std::vector<std::string>& items, bool markdown) {
  std::string found;
  for (const std::string& item : items) found += (markdown ? "- " : "  ") + one_line(item) + "\n";
  return found;
}

std::vector<std::string> settings_items(const std::vector<Setting>& settings) {
  std::vector<std::string> items;
  for (const Setting& s : settings)
    items.push_back(s.what + (s.here.empty() ? ": " + s.paper : ": the paper: " + s.paper + " | here: " + s.here));
  return items;
}

std::string people_of(const std::vector<TableBeside>& tables, const PublishedDocument& document,
                      const Evidence& evidence, const PublishedOptions& options) {
  const bool markdown = options.format == "markdown";
  const std::string end = markdown ? "\n\n" : "\n";
  const Published& p = document.published;
  const std::vector<std::string> common = common_differences(tables);
  std::string found = one_line(p.title + " (" + p.paper + ") beside " + options.results) + end;
  found += one_line("Figures read in: " + p.source) + end;
  std::size_t stand_ins = 0, other_path = 0, measured = 0;
  for (const TableBeside& own : tables)
    for (const Beside& b : own.rows) {
      measured += b.result != nullptr;
      stand_ins += b.stand_ins;
      other_path += b.other_path && !b.stand_ins;
    }
  if (stand_ins > 0)
    found += std::to_string(stand_ins) + " of " + std::to_string(measured) +
             " figures here are of stand-in models: their acceptance says nothing about the paper's." + end;
  if (other_path > 0)
    found +=
        std::to_string(other_path) + " of " + std::to_string(measured) +
        " figures here are of models at other paths than the document's; whether they are the paper's is not known "
        "here." +
        end;
  if (!common.empty()) found += "All runs differ from the document's in:" + end + lines_of(common, markdown);
  if (const auto further = further_differences(tables, common); !further.empty())
    found += (markdown ? "\n" : "") + std::string("And these rows':") + end + lines_of(further, markdown);
  std::vector<Table> shown;
  std::vector<std::string> said;  // of the table before
  for (const TableBeside& own : tables) {
    shown.push_back(table_beside(own, common).brief());
    found += "\n" + (markdown ? shown.back().markdown() : shown.back().terminal(options.width)) + "\n";
    if (own.table->source) found += one_line("Read in: " + *own.table->source) + end;
    std::vector<std::string> items = settings_items(settings_of(*own.table, document, evidence));
    const std::vector<std::string> all = items;
    std::erase_if(items, [&](const std::string& item) { return std::ranges::find(said, item) != said.end(); });
    found += lines_of(items, markdown);
    said = all;
  }
  if (p.left_out) found += "\nLeft out:" + end + lines_of(*p.left_out, markdown);
  return found + "\n" + legend(shown, options.width, markdown);
}

std::string beside_paper(const std::vector<Result>& lines, const PublishedDocument& document,
                         const PublishedOptions& options) {
  static const std::vector<std::string> kFormats = {"terminal", "markdown", "latex", "csv", "json"};
  if (std::ranges::find(kFormats, options.format) == kFormats.end())
    throw Error("unknown format '" + options.format + "': there are " + listed(kFormats));
  const std::vector<const Result*> results = latest(lines);
  if (results.empty()) throw Error("there is nothing to compare: " + options.results + " holds no result");
  std::vector<Summary> summaries;
  for (const Result* result : results) summaries.push_back(summarize(*result));
  const std::vector<TableBeside> tables = beside_results(results, summaries, document);
  const Evidence evidence{.results = results, .origin = View::of(std::move(summaries)).origin()};
  if (options.format == "json") return programs_of(tables, document, evidence);
  if (options.format == "csv") return every_figure(tables, document).csv();
  if (options.format != "latex") return people_of(tables, document, evidence, options);
  const std::vector<std::string> common = common_differences(tables);
  std::string found;
  for (const TableBeside& own : tables) {
    Table table = table_beside(own, common);
    table.note = document.published.title + " (" + document.published.paper + "). " + joined_text(common, {});
    found += (found.empty() ? "" : "\n") + table.latex();
  }
  return found;
}

}  // namespace

std::string compare_published(const std::vector<Result>& results, const PublishedDocument& document,
                              const PublishedOptions& options) {
  return of_lines([&] { return beside_paper(results, document, options); });
}

}  // namespace foretoken
