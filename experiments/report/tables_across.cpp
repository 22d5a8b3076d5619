// Figures side by side: the values of one field as columns.
#include <algorithm>

#include "experiments/report/selection.h"
#include "experiments/report/tables.h"
#include "framework/text/known_names.h"

namespace foretoken {

using nlohmann::json;

const RunFigure& run_figure(const std::string& name, const std::string& option) {
  std::vector<std::string> names;
  for (const RunFigure& figure : run_figures())
    if (figure.kind != Column::Kind::text) names.push_back(figure.name);
  std::string all;
  for (const std::string& known : names) all += (all.empty() ? "" : ", ") + known;
  if (std::ranges::find(names, name) == names.end())
    throw Error("there is no figure '" + name + "' for " + option + suggestion(name, names) + ": there are " + all);
  return *std::ranges::find(run_figures(), name, &RunFigure::name);
}

Table across_table(const View& view, const std::string& pointer, const std::vector<std::string>& figures) {
  std::vector<json> runs;
  for (const Summary& s : view.cells) runs.push_back(s.run());
  const Axes across = Axes::of_pointers(runs, {pointer});
  std::vector<std::string> values;  // as texts, in order
  for (const std::size_t i : across.order(runs))
    if (const std::string text = across.cell(0, runs[i]).shown(); std::ranges::find(values, text) == values.end())
      values.push_back(text);
  Table table;
  table.title = "By " + across.columns()[0].title;
  table.note = view.origin();
  const std::vector<Column> opening = view.columns();
  std::vector<std::size_t> axes = view.axes.all();
  std::erase_if(axes, [&](std::size_t axis) { return view.axes.columns()[axis].pointer == pointer; });
  for (const std::size_t axis : axes) table.columns.push_back(opening[axis]);
  if (view.mixed()) table.columns.push_back(opening.back());
  for (const std::string& name : figures) {
    const RunFigure& figure = run_figure(name, "--figures");
    for (const std::string& value : values)
      table.columns.push_back({.title = name + ", " + across.columns()[0].title + " " + value,
                               .name = name + "_at_" + value,
                               .meaning = "",
                               .kind = figure.kind,
                               .better = figure.better});
  }
  for (const std::vector<std::size_t>& group : view.groups(axes)) {
    Row row;
    for (const std::size_t axis : axes) row.cells.push_back(view.cell(axis, group[0]));
    row.add(view.promise(group[0]));
    for (const std::size_t axis : view.axes.conditions())
      if (view.axes.columns()[axis].pointer != pointer) row.group += view.cell(axis, group[0]).shown() + "\n";
    for (const std::string& name : figures)
      for (const std::string& value : values) {
        const auto run = std::ranges::find_if(
            group, [&](std::size_t i) { return !view.cells[i].failed() && across.cell(0, runs[i]).shown() == value; });
        Cell cell = run == group.end() ? Cell::of("-") : run_figure(name, "--figures").cell(view.cells[*run]);
        cell.digits = std::min(cell.digits, 2);
        row.cells.push_back(std::move(cell));
      }
    table.rows.push_back(std::move(row));
  }
  return table;
}

}  // namespace foretoken
