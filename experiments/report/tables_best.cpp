// The fastest policies, and which others may be as fast.
#include <algorithm>

#include "experiments/report/tables.h"

namespace foretoken {

using Kind = Column::Kind;

namespace {

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

}  // namespace

std::vector<Best> best_of(const View& view) { return best_of(view, view.axes.outside_policy()); }

std::vector<Best> best_of(const View& view, const std::vector<std::size_t>& axes) {
  std::vector<Best> found;
  for (std::vector<std::size_t> group : view.groups(axes)) {
    std::erase_if(group, [&](std::size_t i) { return view.cells[i].failed() || !view.cells[i].speedup.known(); });
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
  Table table;
  table.title = "Best draft length";
  const std::vector<Column> opening = view.columns();
  for (const std::size_t axis : view.axes.outside_policy()) table.columns.push_back(opening[axis]);
  if (view.mixed()) table.columns.push_back(opening.back());
  std::string name;
  for (const std::size_t axis : view.axes.of_policy())
    name += (name.empty() ? "" : " ") + view.axes.columns()[axis].title;
  const std::vector<Column> columns = {
      {"best " + name, "best", "the fastest one, picked from these results", Kind::text},
      {"of", "candidates", "how many it was picked from"},
      {.title = "speedup [95 %]",
       .name = "best_speedup",
       .meaning = "its speedup, with an interval that accounts for the choice: those of all candidates hold together "
                  "in 95 of 100 "
                  "cases",
       .kind = Kind::interval,
       .better = 1},
      {.title = "alpha", .name = "alpha", .meaning = "", .kind = Kind::interval, .brief = true, .better = 1},
      {.title = "tau", .name = "tau", .meaning = "", .kind = Kind::interval, .brief = true, .better = 1},
      {"no clear difference", "as_good",
       "others that are not clearly slower, prompt by prompt; their intervals hold together", Kind::text},
      {"notes", "notes", "", Kind::text}};
  table.columns.insert(table.columns.end(), columns.begin(), columns.end());
  for (const Best& best : best_of(view)) {
    const Summary& s = view.cells[best.cell];
    Row row;
    row.group = view.start(best.cell).group;
    for (const std::size_t axis : view.axes.outside_policy()) row.cells.push_back(view.cell(axis, best.cell));
    row.add(view.promise(best.cell));
    std::string others;
    for (const std::size_t i : best.as_good) others += (others.empty() ? "" : ", ") + policy_label(view, i);
    row.add({Cell::of(policy_label(view, best.cell)), Cell::of(double(best.candidates), 0), Cell::of(best.speedup, 2),
             Cell::of(s.alpha, 2), Cell::of(s.tau, 2), Cell::of(others), Cell::of(standing(best.speedup))});
    table.rows.push_back(std::move(row));
  }
  return table;
}

}  // namespace foretoken
