// The tables of a report, each made from the same summaries. Knows what figures mean, not where they come from or go.
#pragma once
#include <string>
#include <vector>

#include "experiments/report/axes.h"
#include "experiments/report/summary.h"
#include "experiments/report/table.h"
#include "framework/text/json_file.h"
#include "kernels/error.h"

namespace foretoken {

// The text that `made` makes of result lines; a value of another kind than this program writes, wherever it is met, is
// an Error.
template <class F> std::string of_lines(const F& made) {
  try {
    return made();
  } catch (const nlohmann::json::exception& e) {
    throw Error("a result line holds what no run of this version writes (" + reason_of(e) +
                "); the file is damaged: measure again into another");
  }
}

// Summaries in the order of their axes.
struct View {
  std::vector<Summary> cells;
  Axes axes;

  // No lines at all are an Error.
  explicit View(const std::vector<nlohmann::json>& lines);
  static View of(std::vector<Summary> summaries);
  // Where the figures come from: commit, machine, repeats, prompts; and a warning where exact and lossy rows stand
  // together.
  std::string origin() const;
  // What ran where a model was inflated or its weights are random: "Target: ...; drafter: ...". Empty where none was.
  std::string models() const;
  // The columns that open a table: the axes, and the promise where rows differ in it.
  std::vector<Column> columns() const;
  // The axes of a row (and its promise), and the sentence of a run that failed; an empty line before where any axis but
  // the last changes.
  Row start(std::size_t i) const;
  // The promise of a row, where rows differ in it; else nothing.
  std::vector<Cell> promise(std::size_t i) const;
  bool mixed() const { return mixed_; }

 private:
  View(std::vector<Summary> summaries, Axes axes);
  bool mixed_ = false;  // exact and lossy rows together
};

// The first word of a promise: "exact" of "exact, path-identical", "lossy" of "lossy: <the law>".
std::string kind_of(const std::string& promise);

// What a speedup's interval says: "loses" below 1, "unclear" around 1, nothing above.
std::string standing(const Interval& speedup);

// Begins with a blank: which requests failed, and of what the figures are there. Empty where none did.
std::string failures_note(const std::vector<Summary>& cells);

Table main_table(const View& view);
Table theory_table(const View& view);
// accepted / tested, and accepted / rounds; of runs that differ in their policy alone the one with the longest drafts.
std::vector<Table> position_tables(const View& view);
Table category_table(const View& view, bool fastest_alone);
Table phase_table(const View& view);

// The fastest policy among runs that are otherwise alike. `as_good`: places of those whose intervals overlap its.
struct Best {
  std::size_t cell;
  std::vector<std::size_t> as_good;
};
std::vector<Best> best_of(const View& view);  // by speedup; runs that failed do not compete
Table best_table(const View& view);

// One row per run with every figure, and one per run and position: for CSV.
Table figures_table(const View& view);
Table every_position_table(const View& view);

}  // namespace foretoken
