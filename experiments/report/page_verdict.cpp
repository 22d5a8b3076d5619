// What the first screen of the page says: what is best, by how much, and where speculation loses.
#include <algorithm>

#include "experiments/report/page.h"

namespace foretoken {
namespace {

using nlohmann::json;
using Kind = Column::Kind;

constexpr std::size_t kListedRuns = 3;  // runs in a cell; tables have all

std::string with_speedup(const View& view, std::size_t i) {
  return view.label(i, view.axes.methods()) + " (" + Cell::of(view.cells[i].speedup.value, 2).shown() + ")";
}

// "3 of 8: ngram, length 8 (0.51), ..."
std::string some_of(const View& view, const std::vector<std::size_t>& runs, const std::string& none) {
  std::string found;
  for (std::size_t k = 0; k < std::min(runs.size(), kListedRuns); ++k)
    found += (k ? "; " : "") + with_speedup(view, runs[k]);
  return runs.empty()
             ? none
             : found + (runs.size() > kListedRuns ? "; " + std::to_string(runs.size() - kListedRuns) + " more" : "");
}

// Runs of a condition that clearly lose, the slowest first.
std::vector<std::size_t> losing(const View& view, const std::vector<std::size_t>& runs) {
  std::vector<std::size_t> found;
  for (const std::size_t i : runs)
    if (!view.cells[i].failed() && standing(view.cells[i].speedup) == "loses") found.push_back(i);
  std::ranges::sort(found, {}, [&](std::size_t i) { return view.cells[i].speedup.value; });
  return found;
}

std::string counted_runs(std::size_t n) { return std::to_string(n) + (n == 1 ? " run" : " runs"); }

std::string headline(const View& view, const Best& best) {
  const std::string condition = view.label(best.cell, view.axes.conditions()),
                    method = view.label(best.cell, view.axes.methods());
  const std::string verdict = standing(best.speedup);
  std::string found =
      (method.empty() ? view.axes.names().name(view.cells[best.cell].run(), "/drafter").dump() : method) +
      (condition.empty() ? "" : ", at " + condition) + ": " + Cell::of(best.speedup, 2).shown() +
      " times as fast as plain decoding";
  if (verdict == "loses") return "No run is faster than plain decoding; the best is " + found + ".";
  if (verdict == "unclear") return "No run is clearly faster than plain decoding; the best is " + found + ".";
  return "Best: " + found + ".";
}

}  // namespace

Table verdict_table(const View& view) {
  Table table;
  table.title = "What is best, and where speculation loses";
  const std::vector<Column> opening = view.columns();
  const std::vector<std::size_t> conditions = view.axes.conditions();
  for (const std::size_t axis : conditions) table.columns.push_back(opening[axis]);
  const std::vector<Column> columns = {
      {"best", "best", "the fastest run of these conditions, picked from these results", Kind::text},
      {"speedup [95 %]", "best_speedup",
       "its speedup, with an interval that accounts for the choice: those of all runs of the conditions hold together",
       Kind::interval},
      {"of", "candidates", "how many it was picked from"},
      {"clearly slower than plain decoding", "losing", "runs whose interval lies below 1, the slowest first",
       Kind::text},
      {"no clear difference", "as_good", "others that are not clearly slower, with their speedups", Kind::text}};
  table.columns.insert(table.columns.end(), columns.begin(), columns.end());
  const auto groups = view.groups(conditions);
  for (const Best& best : best_of(view, conditions)) {
    const auto group =
        std::ranges::find_if(groups, [&](const auto& runs) { return view.equal(runs[0], best.cell, conditions); });
    const std::vector<std::size_t> slow = losing(view, *group);
    Row row;
    for (const std::size_t axis : conditions) row.cells.push_back(view.cell(axis, best.cell));
    row.add({Cell::of(view.label(best.cell, view.axes.methods())), Cell::of(best.speedup, 2),
             Cell::of(double(best.candidates), 0),
             Cell::of(slow.empty() ? "none" : std::to_string(slow.size()) + ": " + some_of(view, slow, "")),
             Cell::of(some_of(view, best.as_good, "none"))});
    table.rows.push_back(std::move(row));
  }
  return table;
}

std::vector<std::string> verdict_lines(const View& view) {
  const std::vector<Best> best = best_of(view, view.axes.conditions());
  if (best.empty()) return {};
  const Best& top = *std::ranges::max_element(best, {}, [](const Best& b) { return b.speedup.value; });
  std::vector<std::size_t> all(view.cells.size());
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = i;
  const std::vector<std::size_t> slow = losing(view, all);
  std::vector<std::string> found = {headline(view, top)};
  std::string none;  // conditions without a gain
  for (const Best& b : best)
    if (standing(b.speedup) != "" && best.size() > 1)
      none += (none.empty() ? "" : "; ") + view.label(b.cell, view.axes.conditions());
  if (slow.empty()) {
    found.push_back("No run is clearly slower than plain decoding.");
  } else {
    found.push_back("Speculation is clearly slower than plain decoding in " + std::to_string(slow.size()) + " of " +
                    counted_runs(view.cells.size()) + "; the slowest: " + view.axes.label(view.cells[slow[0]].run()) +
                    ", " + Cell::of(view.cells[slow[0]].speedup, 2).shown() + ".");
  }
  if (!none.empty()) found.push_back("No method clearly gains at: " + none + ".");
  return found;
}

}  // namespace foretoken
