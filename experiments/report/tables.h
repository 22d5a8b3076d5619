// The tables of a report, all made from the same summaries. This module must not know where figures come from or where
// tables are printed.
#pragma once
#include <string>
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
  // The first columns of a table: the axes, and the promise if rows differ in it.
  std::vector<Column> columns() const;
  // The axes of a row (and its promise), and the sentence of a failed run; after an empty line if any axis but the last
  // changed.
  Row start(std::size_t i) const;
  // Whether two runs agree in these axes.
  bool equal(std::size_t i, std::size_t j, const std::vector<std::size_t>& axes) const;
  // The runs that agree in these axes with one another, in the order of the first of each.
  std::vector<std::vector<std::size_t>> groups(const std::vector<std::size_t>& axes) const;
  Cell cell(std::size_t axis, std::size_t i) const { return axes.cell(axis, cells[i].run()); }
  std::string label(std::size_t i, const std::vector<std::size_t>& of) const { return axes.label(cells[i].run(), of); }
  // The promise of a row if rows differ in it, else empty.
  std::vector<Cell> promise(std::size_t i) const;
  bool mixed() const { return mixed_; }

 private:
  View(std::vector<Summary> summaries, Axes axes);
  std::vector<std::vector<std::size_t>> values_;  // [run][axis]: which of the axis' values
  bool mixed_ = false;                            // exact and lossy rows together
};

// The first word of a promise: "exact" of "exact, path-identical", "lossy" of "lossy: <the law>".
std::string kind_of(const std::string& promise);

// The verdict of a speedup's interval: "loses" below 1, "unclear" if it contains 1, empty above.
std::string standing(const Interval& speedup);

// Begins with a blank: which requests failed, and of what the figures are there. Empty where none did.
std::string failures_note(const std::vector<Summary>& cells);

Table main_table(const View& view);
Table theory_table(const View& view);
// accepted / tested, and accepted / rounds; of runs that differ only in their policy, the one with the longest drafts.
std::vector<Table> position_tables(const View& view);
Table category_table(const View& view, bool fastest_alone);
Table phase_table(const View& view);
Table latency_table(const View& view);
// Of runs with a rate: throughput and latency of both sides, goodput, and the greatest rate that is served within the
// limits; the second for CSV, with the figures of the first two.
std::vector<Table> load_tables(const View& view);
Table every_load_table(const View& view);
// Runs whose lines say what memory they took.
Table memory_table(const View& view);

// The fastest of runs that agree in some axes (where none are given, in all but the policy's), picked from the figures
// that are shown: its interval is one of those of all candidates that hold together, so it covers whichever is picked.
// `as_good`: indices of the others that are not clearly slower, by intervals of their ratios to it that hold together.
struct Best {
  std::size_t cell;
  std::size_t candidates;
  Interval speedup;
  std::vector<std::size_t> as_good;
};
std::vector<Best> best_of(const View& view, const std::vector<std::size_t>& axes);  // by speedup, without failed runs
std::vector<Best> best_of(const View& view);
Table best_table(const View& view);

// A figure of every run, by its name in CSV and JSON.
struct RunFigure {
  std::string name;
  Column::Kind kind;
  Cell (*cell)(const Summary&);
  int better = 0;  // 1: more is better, -1: less is
};
const std::vector<RunFigure>& run_figures();

// A number among them; an unknown name is an Error that lists them, for an option.
const RunFigure& run_figure(const std::string& name, const std::string& option);

// One row for runs that agree in all but a pointer, and of each figure a column for each value there.
Table across_table(const View& view, const std::string& pointer, const std::vector<std::string>& figures);

// {title, note, columns: [{title, name, meaning, kind}], rows: [{cells, rule, sentence}]}. A cell is a text, or
// [text, sort key], or [text, value, low, high]; what is unknown is null.
nlohmann::json table_json(const Table& table);

// One row per run with every figure, and one per run and position: for CSV.
Table figures_table(const View& view);
Table every_position_table(const View& view);

}  // namespace foretoken
