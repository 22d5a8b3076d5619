// The tables of `foretoken predict`.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <set>

#include "experiments/costs/predict.h"
#include "experiments/report/axes.h"
#include "experiments/report/notes.h"
#include "experiments/report/table.h"

namespace foretoken {
namespace {

using nlohmann::json;
using Kind = Column::Kind;

std::string percent_pair(const std::string& what, const CostError& error) {
  if (std::isnan(error.median)) return "";
  char text[120];
  std::snprintf(text, sizeof text, " %s: median %.1f %%, worst %.1f %%.", what.c_str(), 100 * error.median,
                100 * error.worst);
  return text;
}

std::vector<Column> columns_of(bool compare, bool known) {
  std::vector<Column> found;
  if (known)
    found = {{"tau [95 %]", "tau", "predicted tokens of a round", Kind::interval},
             {"speedup [95 %]", "speedup",
              "predicted, over plain decoding; the interval holds the known acceptance, chance, and the error of costs",
              Kind::interval}};
  if (compare)
    found.insert(found.end(), {{"measured tau", "measured_tau", "", Kind::interval, false, true},
                               {"measured speedup", "measured_speedup", "", Kind::interval, false, true},
                               {"off", "off", "the predicted speedup over the measured one, less 1, in percent"}});
  found.insert(found.end(),
               {{"break-even", "break_even",
                 "the acceptance of each level with which speculation is as fast as plain decoding; -: no draft, or "
                 "none is enough"},
                {"step ms", "step_ms", "predicted mean of a step"},
                {"draft ms", "draft_ms", "of it, drafting"},
                {"plain ms", "plain_step_ms", "predicted mean of a step of plain decoding"}});
  found.push_back({"notes", "notes", "", Kind::text, true});
  return found;
}

std::string note_of(const PredictedCell& c) {
  std::string found = standing(c.prediction.speedup);
  if (c.prediction.beyond) found += found.empty() ? "beyond" : ", beyond";
  return found;
}

std::vector<Cell> cells_of(const PredictedCell& c, bool compare, bool known) {
  const Prediction& p = c.prediction;
  std::vector<Cell> found;
  if (known) found = {Cell::of(p.tau, 2), Cell::of(p.speedup, 2)};
  if (compare) {
    const Summary& m = *c.measured;
    found.insert(found.end(), {Cell::of(m.tau, 2), Cell::of(m.speedup, 2),
                               Cell::of(100 * (p.speedup.value / m.speedup.value - 1), 1)});
  }
  found.insert(found.end(), {Cell::of(p.break_even, 2), Cell::of(1e3 * p.step_seconds, 3),
                             Cell::of(1e3 * p.draft_seconds, 3), Cell::of(1e3 * p.plain_seconds, 3)});
  found.push_back(Cell::of(note_of(c)));
  return found;
}

json error_json(const CostError& error) { return {{"median", finite(error.median)}, {"worst", finite(error.worst)}}; }

json programs_json(const std::vector<PredictedCell>& cells, const Axes& axes, const CostsFile& costs, bool compare) {
  json all = json::array();
  for (const PredictedCell& c : cells) {
    const Prediction& p = c.prediction;
    json& one = all.emplace_back(json{{"run", c.run}, {"label", axes.label(c.run)}});
    if (!c.refusal.empty()) {
      one["error"] = c.refusal;
      continue;
    }
    one.update({{"tau", to_json(p.tau)},
                {"speedup", to_json(p.speedup)},
                {"tokens_per_second", to_json(p.tokens_per_second)},
                {"plain_tokens_per_second", finite(p.plain_tokens_per_second)},
                {"break_even", finite(p.break_even)},
                {"step_seconds", finite(p.step_seconds)},
                {"draft_seconds", finite(p.draft_seconds)},
                {"plain_step_seconds", finite(p.plain_seconds)},
                {"beyond", p.beyond}});
    if (const json differ = costs.differences(c.run); !differ.empty()) one["costs_differ"] = differ;
    if (compare && c.measured && !c.measured->failed())
      one["measured"] = {{"tau", to_json(c.measured->tau)},
                         {"speedup", to_json(c.measured->speedup)},
                         {"tokens_per_second", to_json(c.measured->tokens_per_second)},
                         {"plain_tokens_per_second", finite(c.measured->baseline.tokens_per_second)}};
  }
  json found{{"cells", all}, {"machine", costs.machine()}, {"costs_error", error_json(costs.costs.cross_validation())}};
  if (compare) {
    const PredictionErrors e = errors_of(cells);
    found["errors"] = {{"cells", e.cells},
                       {"speedup", error_json(e.speedup)},
                       {"tau", error_json(e.tau)},
                       {"tokens_per_second", error_json(e.tokens_per_second)},
                       {"plain_tokens_per_second", error_json(e.plain_tokens_per_second)}};
  }
  return found;
}

std::string note_of_table(const std::vector<PredictedCell>& cells, const CostsFile& costs, bool compare) {
  std::string note = "Predicted for " + costs.machine() + " from " + costs.file + ".";
  const CostError error = costs.costs.cross_validation();
  note += std::isnan(error.median) ? " Error of its step times: not known, from so few steps."
                                   : percent_pair("Error of its step times by cross-validation", error);
  std::vector<json> runs;
  for (const PredictedCell& c : cells)
    if (c.refusal.empty()) runs.push_back(c.run);
  note += costs.differences_text(runs);
  if (std::ranges::any_of(cells, [](const PredictedCell& c) { return c.prediction.beyond; }))
    note += " beyond: the run has steps outside of those that were measured.";
  if (!compare) return note;
  const PredictionErrors e = errors_of(cells);
  note += " Of " + std::to_string(e.cells) + " measured runs the prediction is off, of the" +
          percent_pair("speedup", e.speedup) + percent_pair("Tau", e.tau) +
          percent_pair("Tokens per second", e.tokens_per_second) +
          percent_pair("Those of plain decoding", e.plain_tokens_per_second);
  return note;
}

}  // namespace

std::string prediction_report(const std::vector<PredictedCell>& cells, const CostsFile& costs,
                              const PredictOptions& options) {
  std::vector<json> runs;
  std::set<std::string> named;
  for (const PredictedCell& c : cells) {
    runs.push_back(c.run);
    for (const auto& [pointer, value] : c.axes.items()) named.insert(pointer);
  }
  const Axes axes(runs, {named.begin(), named.end()});
  const bool known = std::ranges::any_of(cells, [](const PredictedCell& c) { return c.prediction.speedup.known(); });
  if (options.format == "json") return programs_json(cells, axes, costs, options.compare).dump(1) + "\n";
  Table table;
  table.title = options.compare ? "Predicted and measured" : "Predicted";
  table.note = note_of_table(cells, costs, options.compare);
  table.columns = axes.table_columns();
  for (Column& column : columns_of(options.compare, known)) table.columns.push_back(std::move(column));
  for (const std::size_t i : axes.order(runs)) {
    const PredictedCell& c = cells[i];
    Row& row = table.rows.emplace_back();
    row.cells = axes.cells(c.run);
    const bool failed = options.compare && c.measured && c.measured->failed();
    if (!c.refusal.empty() || failed)
      row.sentence = c.refusal.empty() ? c.measured->error : c.refusal;
    else
      row.add(cells_of(c, options.compare, known));
  }
  if (options.format == "csv") return table.csv();
  const bool markdown = options.format == "markdown";
  return (markdown ? table.markdown() : table.terminal(options.width)) + "\n" +
         legend({table}, options.width, markdown);
}

}  // namespace foretoken
