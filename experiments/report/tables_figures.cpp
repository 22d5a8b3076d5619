// All figures of a run by their names; the fastest policies; and figures side by side.
#include <algorithm>

#include "experiments/report/notes.h"
#include "experiments/report/report.h"
#include "experiments/report/tables.h"
#include "framework/text/known_names.h"

namespace foretoken {

using nlohmann::json;
using Kind = Column::Kind;

namespace {

Kind kind_of(const Cell& cell) {
  return cell.kind == Cell::Kind::text ? Kind::text : cell.kind == Cell::Kind::number ? Kind::number : Kind::interval;
}

// "4", of several columns of a policy "4 8".
std::string policy_label(const View& view, std::size_t cell) {
  std::string found;
  for (const std::size_t axis : view.axes.of_policy())
    found += (found.empty() ? "" : " ") + view.cell(axis, cell).shown();
  return found;
}

// Without bounds where the interval of the run has none.
Resampled resampled_speedup(const Summary& s) {
  return s.speedup.bounded() ? resampled(s.samples.speedup) : Resampled{s.speedup.value};
}

// Those of a group that are not clearly slower than its fastest.
std::vector<std::size_t> as_good_as(const View& view, std::size_t fastest, const std::vector<std::size_t>& group) {
  const Summary& base = view.cells[fastest];
  std::vector<std::size_t> others, found;
  std::vector<Resampled> ratios;
  for (const std::size_t i : group) {
    if (i == fastest) continue;
    const Summary& s = view.cells[i];
    const bool comparable = s.samples.prompts == base.samples.prompts && s.speedup.bounded() &&
                            base.speedup.bounded() && !s.prompts_alone && !base.prompts_alone;
    ratios.push_back(comparable ? resampled_ratio(base.samples.speedup, s.samples.speedup)
                                : Resampled{s.speedup.value / base.speedup.value});
    others.push_back(i);
  }
  const std::vector<Interval> intervals = simultaneous_intervals(ratios);
  for (std::size_t k = 0; k < others.size(); ++k)
    if (intervals[k].against(1) == 0) found.push_back(others[k]);
  return found;
}

// An empty table with these axes, marks and columns.
Table with_axes(const View& view, const std::vector<std::size_t>& axes, const std::vector<Column>& more) {
  Table table;
  const std::vector<Column> opening = view.columns(), marks = view.mark_columns();
  for (const std::size_t axis : axes) table.columns.push_back(opening[axis]);
  for (const auto* columns : {&marks, &more})
    table.columns.insert(table.columns.end(), columns->begin(), columns->end());
  return table;
}

Row row_of(const View& view, const std::vector<std::size_t>& axes, const std::vector<std::size_t>& runs) {
  Row row;
  for (const std::size_t axis : axes) row.cells.push_back(view.cell(axis, runs[0]));
  row.add(view.marks(runs));
  return row;
}

}  // namespace

std::vector<RunFigure> run_figures(const Summary& s) {
  const SideFigures &drafts = s.speculative, &plain = s.baseline;
  const MemoryFigures& memory = drafts.memory;
  const Phases& phases = drafts.phases;
  const auto megabytes = [](double bytes) { return Cell::of(bytes / 1e6, 1); };
  const auto step_ms = [&](double seconds) { return Cell::of(1000 * seconds / drafts.steps, 4); };
  return {{"key", Cell::of(s.result.key)},
          {"repeats", Cell::of(s.repeats, 0)},
          {"prompts", Cell::of(s.prompts, 0)},
          {"failed_requests", Cell::of(s.failed_requests, 0)},
          {"alpha", Cell::of(s.alpha, 4), 1},
          {"accept_rate", Cell::of(s.accept_rate, 4), 1},
          {"tau", Cell::of(s.tau, 4), 1},
          {"tau_theory", Cell::of(s.theory.tau, 4)},
          {"mean_drafted", Cell::of(s.theory.mean_drafted, 4)},
          {"full_length", Cell::of(s.theory.full_length, 0)},
          {"cost_ratio", Cell::of(s.theory.cost, 4)},
          {"speedup", Cell::of(s.speedup, 4), 1},
          {"speedup_theory", Cell::of(s.theory.speedup, 4)},
          {"steady_speedup", Cell::of(s.steady_speedup, 4), 1},
          {"steady_share", Cell::of(s.steady_share, 4)},
          {"decode_speedup", Cell::of(s.decode_speedup, 4), 1},
          {"question_speedup", Cell::of(s.question_speedup, 4), 1},
          {"acceptance_length", Cell::of(s.acceptance_length, 4), 1},
          {"from_cache", Cell::of(s.from_cache, 4), 1},
          {"log_probability", Cell::of(drafts.log_probability, 4)},
          {"tokens_per_second", Cell::of(s.tokens_per_second, 2), 1},
          {"baseline_tokens_per_second", Cell::of(plain.tokens_per_second, 2), 1},
          {"ttft_ms", Cell::of(drafts.ttft_ms, 3), -1},
          {"baseline_ttft_ms", Cell::of(plain.ttft_ms, 3), -1},
          {"ms_per_token", Cell::of(drafts.ms_per_token, 3), -1},
          {"baseline_ms_per_token", Cell::of(plain.ms_per_token, 3), -1},
          {"engine_overhead", Cell::of(drafts.overhead, 4), -1},
          {"preempted", Cell::of(drafts.preempted, 0)},
          {"cut", Cell::of(drafts.cut, 0)},
          {"recorded", Cell::of(drafts.recorded, 0)},
          {"unrecorded", Cell::of(drafts.unrecorded, 0)},
          {"target_weights_mb", megabytes(memory.target_weights)},
          {"draft_weights_mb", megabytes(memory.draft_weights), -1},
          {"cache_mb", megabytes(memory.cache)},
          {"cache_used_mb", megabytes(memory.cache_used), -1},
          {"scratch_mb", megabytes(memory.scratch), -1},
          {"baseline_memory_mb", megabytes(plain.memory.total()), -1},
          {"promised", Cell::of(s.promise)},
          {"compared_texts", Cell::of(s.compared_texts, 0)},
          {"differing_texts", Cell::of(s.differing_texts, 0)},
          {"commit", Cell::of(s.result.origin.commit)},
          {"request_tokens_per_second", Cell::of(drafts.decode_tokens_per_second, 2), 1},
          {"baseline_request_tokens_per_second", Cell::of(plain.decode_tokens_per_second, 2), 1},
          {"step_ms", step_ms(phases.total), -1},
          {"draft_ms", step_ms(draft_seconds(phases)), -1},
          {"target_ms", step_ms(phases.target_forward), -1},
          {"verify_ms", step_ms(phases.verify), -1},
          {"host_ms", step_ms(host_seconds(phases)), -1},
          {"baseline_step_ms", Cell::of(1000 * plain.phases.total / plain.steps, 4), -1},
          {"ttft_p90_ms", Cell::of(drafts.latency.ttft.p90, 3), -1},
          {"tpot_p90_ms", Cell::of(drafts.latency.tpot.p90, 3), -1},
          {"whole_p50_ms", Cell::of(drafts.latency.whole.p50, 3), -1}};
}

RunFigure run_figure(const Summary& s, const std::string& name, const std::string& option) {
  std::vector<std::string> names;
  for (const RunFigure& figure : run_figures(s)) {
    if (figure.cell.kind == Cell::Kind::text) continue;
    if (figure.name == name) return figure;
    names.push_back(figure.name);
  }
  throw Error("there is no figure '" + name + "' for " + option + suggestion(name, names) + ": there are " +
              listed(names));
}

Table figures_table(const View& view) {
  std::vector<Column> columns;
  for (const RunFigure& f : run_figures({})) columns.push_back({f.name, f.name, "", kind_of(f.cell)});
  const auto cells = [](const Summary& s) {
    CellRows rows(1);
    for (const RunFigure& figure : run_figures(s))
      if (!s.failed() || rows[0].empty()) rows[0].push_back(figure.cell);
    return rows;
  };
  return table_of(view, "Every figure", columns, cells, {.failed = true});
}

std::vector<Best> best_of(const View& view) { return best_of(view, view.axes.outside_policy()); }

std::vector<Best> best_of(const View& view, const std::vector<std::size_t>& axes) {
  std::vector<Best> found;
  for (std::vector<std::size_t> group : view.groups(axes)) {
    std::erase_if(group, [&](std::size_t i) {
      const Summary& s = view.cells[i];
      return s.failed() || s.result.unfinished || !s.speedup.known();
    });
    if (group.empty()) continue;
    std::vector<Resampled> all;
    for (const std::size_t i : group) all.push_back(resampled_speedup(view.cells[i]));
    const std::size_t k =
        std::size_t(std::ranges::max_element(all, {}, &Resampled::value) - all.begin());  // the first of equal ones
    found.push_back({group[k], group.size(), simultaneous_intervals(all)[k], as_good_as(view, group[k], group)});
  }
  return found;
}

Table best_table(const View& view) {
  std::string name;
  for (const std::size_t axis : view.axes.of_policy())
    name += (name.empty() ? "" : " ") + view.axes.columns()[axis].title;
  Table table = with_axes(
      view, view.axes.outside_policy(),
      {{"best " + name, "best", "the fastest one, picked from these results", Kind::text},
       {"of", "candidates", "how many it was picked from"},
       {.title = "speedup [95 %]",
        .name = "best_speedup",
        .meaning = "its speedup, with an interval that accounts for the choice: those of all candidates hold together "
                   "in 95 of 100 cases",
        .kind = Kind::interval,
        .better = 1},
       {.title = "alpha", .name = "alpha", .meaning = "", .kind = Kind::interval, .brief = true, .better = 1},
       {.title = "tau", .name = "tau", .meaning = "", .kind = Kind::interval, .brief = true, .better = 1},
       {"no clear difference", "as_good",
        "others that are not clearly slower, prompt by prompt; their intervals hold together", Kind::text},
       {"notes", "notes", "", Kind::text}});
  table.title = "Best draft length";
  if (const auto begun = std::ranges::count_if(
          view.cells, [](const Summary& s) { return !s.failed() && s.result.unfinished.has_value(); });
      begun > 0)
    table.note = "Without " + std::to_string(begun) + (begun == 1 ? " run that is" : " runs that are") +
                 " not finished, of which the table main says how far.";
  for (const Best& best : best_of(view)) {
    const Summary& s = view.cells[best.cell];
    Row& row = table.rows.emplace_back(row_of(view, view.axes.outside_policy(), {best.cell}));
    row.group = view.start(best.cell).group;
    std::vector<std::string> others;
    for (const std::size_t i : best.as_good) others.push_back(policy_label(view, i));
    row.add({Cell::of(policy_label(view, best.cell)), Cell::of(double(best.candidates), 0), Cell::of(best.speedup, 2),
             Cell::of(s.alpha, 2), Cell::of(s.tau, 2), Cell::of(listed(others)), Cell::of(standing(best.speedup))});
  }
  return table;
}

Table across_table(const View& view, const std::string& pointer, const std::vector<std::string>& figures) {
  std::vector<json> runs;
  for (const Summary& s : view.cells) runs.push_back(s.run());
  const Axes across = Axes::of_pointers(runs, {pointer});
  std::vector<std::string> values;  // as texts, in order
  for (const std::size_t i : across.order(runs))
    if (const std::string text = across.cell(0, runs[i]).shown(); std::ranges::find(values, text) == values.end())
      values.push_back(text);
  std::vector<std::size_t> axes = view.axes.all();
  std::erase_if(axes, [&](std::size_t axis) { return view.axes.columns()[axis].pointer == pointer; });
  std::vector<Column> columns;
  for (const std::string& name : figures) {
    const RunFigure figure = run_figure({}, name, "--figures");
    for (const std::string& value : values)
      columns.push_back({.title = name + ", " + across.columns()[0].title + " " + value,
                         .name = name + "_at_" + value,
                         .meaning = "",
                         .kind = kind_of(figure.cell),
                         .better = figure.better});
  }
  Table table = with_axes(view, axes, columns);
  table.title = "By " + across.columns()[0].title;
  table.note = view.origin();
  for (const std::vector<std::size_t>& group : view.groups(axes)) {
    Row& row = table.rows.emplace_back(row_of(view, axes, group));
    for (const std::size_t axis : view.axes.conditions())
      if (view.axes.columns()[axis].pointer != pointer) row.group += view.cell(axis, group[0]).shown() + "\n";
    for (const std::string& name : figures)
      for (const std::string& value : values) {
        const auto run = std::ranges::find_if(
            group, [&](std::size_t i) { return !view.cells[i].failed() && across.cell(0, runs[i]).shown() == value; });
        row.cells.push_back(run == group.end() ? Cell::of("-") : run_figure(view.cells[*run], name, "--figures").cell);
        row.cells.back().digits = std::min(row.cells.back().digits, 2);
      }
  }
  return table;
}

}  // namespace foretoken
