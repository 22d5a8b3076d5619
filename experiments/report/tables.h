// The tables of a report, all made from the same summaries. This module must not know where figures come from or where
// tables are printed.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "experiments/report/axes.h"
#include "experiments/report/summary.h"
#include "experiments/report/table.h"
#include "framework/text/json_file.h"
#include "kernels/error.h"

namespace foretoken {

// The text that `made` makes of result lines; a value of a type that this program does not write is an Error.
template <class F> std::string of_lines(const F& made) {
  try {
    return made();
  } catch (const nlohmann::json::exception& e) {
    throw Error("a result line holds what no run of this version writes (" + reason_of(e) +
                "); the file is damaged: measure again into another");
  }
}

// The pointers that sweeps named as their axes.
std::vector<std::string> named_axes(const std::vector<Summary>& summaries);

// Summaries in the order of their axes.
struct View {
  std::vector<Summary> cells;
  Axes axes;

  // No lines at all are an Error.
  explicit View(const std::vector<Result>& results);
  static View of(std::vector<Summary> summaries);
  // With names that hold for more runs than these.
  static View of(std::vector<Summary> summaries, const ComponentNames& names);
  // The origin of the figures: commit, machine, repeats, prompts; and a warning if exact and lossy rows are mixed.
  std::string origin() const;
  // The models, if one was inflated or has random weights: "Target: ...; drafter: ...". Else empty.
  std::string models() const;
  // The first columns of a table: the axes, then `marks`.
  std::vector<Column> columns() const;
  // The promise if rows differ in it, and, once they are marked, the alternations of runs that are not finished.
  std::vector<Column> mark_columns() const;
  std::vector<Cell> marks(const std::vector<std::size_t>& runs) const;  // of one row
  void mark_unfinished();
  // The axes of a row and its marks, and the sentence of a failed run; after an empty line if any axis but the last
  // changed.
  Row start(std::size_t i) const;
  // Whether two runs agree in these axes.
  bool equal(std::size_t i, std::size_t j, const std::vector<std::size_t>& axes) const;
  // The runs that agree in these axes with one another, in the order of the first of each.
  std::vector<std::vector<std::size_t>> groups(const std::vector<std::size_t>& axes) const;
  Cell cell(std::size_t axis, std::size_t i) const { return axes.cell(axis, cells[i].run()); }
  std::string label(std::size_t i, const std::vector<std::size_t>& of) const { return axes.label(cells[i].run(), of); }

 private:
  View(std::vector<Summary> summaries, Axes axes);
  std::vector<std::vector<std::size_t>> values_;  // [run][axis]: which of the axis' values
  bool mixed_ = false;                            // exact and lossy rows together
  bool unfinished_ = false;                       // runs that are not finished are marked
};

// Begins with a blank: which requests failed, and of what the figures are there. Empty where none did.
std::string failures_note(const std::vector<Summary>& cells);

// Of steps: drafters' forwards, distributions and draws; and scheduling, bookkeeping and the rest.
inline double draft_seconds(const Phases& p) { return p.draft_forward + p.draft_other; }
inline double host_seconds(const Phases& p) { return p.total - draft_seconds(p) - p.target_forward - p.verify; }

// The rows that `cells` gives for each run, as vectors of cells: those of a run after an empty line where the axes say
// so, or all of them; of failed runs where `failed` asks for them.
using CellRows = std::vector<std::vector<Cell>>;
struct RowsOf {
  bool failed = false, all_apart = false;
};
template <class Cells> Table table_of(const View& view, std::string title, const std::vector<Column>& columns,
                                      const Cells& cells, RowsOf rows = {}) {
  Table table{.title = std::move(title), .note = "", .columns = view.columns(), .rows = {}};
  table.columns.insert(table.columns.end(), columns.begin(), columns.end());
  for (std::size_t i = 0; i < view.cells.size(); ++i) {
    if (view.cells[i].failed() && !rows.failed) continue;
    bool first = !table.rows.empty();
    for (std::vector<Cell>& own : cells(view.cells[i])) {
      Row& row = table.rows.emplace_back(view.start(i));
      row.rule_before = std::exchange(first, false) && (row.rule_before || rows.all_apart);
      if (!own.empty() && own[0].kind == Cell::Kind::text) row.group += own[0].text;
      row.add(std::move(own));
    }
  }
  return table;
}

// A table by its name: as `show` prints it, and as CSV has it, with all figures.
struct TableKind {
  std::string name;
  std::vector<Table> (*shown)(const View&);
  Table (*csv)(const View&);
};
const std::vector<TableKind>& table_kinds();

Table category_table(const View& view, bool fastest_alone);
Table figures_table(const View& view);  // one row per run with every figure, for CSV
// Of runs with a rate: throughput and latency of both sides, goodput, and the greatest rate that is served within the
// limits; the second for CSV, with the figures of the first two.
std::vector<Table> load_tables(const View& view);
Table every_load_table(const View& view);

// The fastest of runs that agree in some axes (where none are given, in all but the policy's), picked from the figures
// that are shown: its interval is one of those of all candidates that hold together, so it covers whichever is picked.
// `as_good`: indices of the others that are not clearly slower, by intervals of their ratios to it that hold together.
struct Best {
  std::size_t cell;
  std::size_t candidates;
  Interval speedup;
  std::vector<std::size_t> as_good;
};
// By speedup, without failed runs and those that are not finished.
std::vector<Best> best_of(const View& view, const std::vector<std::size_t>& axes);
std::vector<Best> best_of(const View& view);
Table best_table(const View& view);

// The figures of a run by their names in CSV and JSON. The key comes first, since a failed run has nothing else.
struct RunFigure {
  std::string name;
  Cell cell;
  int better = 0;  // 1: more is better, -1: less is
};
std::vector<RunFigure> run_figures(const Summary& s);

// A number among them; an unknown name is an Error that lists them, for an option.
RunFigure run_figure(const Summary& s, const std::string& name, const std::string& option);

// One row for runs that agree in all but a pointer, and of each figure a column for each value there.
Table across_table(const View& view, const std::string& pointer, const std::vector<std::string>& figures);

// {title, note, columns: [{title, name, meaning, kind}], rows: [{cells, rule, sentence}]}. A cell is a text, or
// [text, sort key], or [text, value, low, high]; what is unknown is null.
nlohmann::json table_json(const Table& table);

}  // namespace foretoken
