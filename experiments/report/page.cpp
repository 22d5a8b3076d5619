#include "experiments/report/page.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <set>

#include "experiments/report/machine.h"
#include "experiments/report/notes.h"
#include "experiments/report/report.h"
#include "experiments/report/tables.h"
#include "experiments/report/terminal.h"
#include "foretoken_version.h"
#include "framework/text/known_names.h"

namespace foretoken {
namespace {

using nlohmann::json;
using Kind = Column::Kind;

json cell_json(const Cell& cell, const Column& column) {
  const std::string text = cell.shown();
  if (cell.kind == Cell::Kind::interval)
    return {text, finite(cell.interval.value), finite(cell.interval.low), finite(cell.interval.high)};
  if (cell.kind == Cell::Kind::number) return {text, finite(cell.interval.value)};
  if (column.kind == Column::Kind::text) return text;
  const auto number = number_in(text);
  return {text, number ? finite(*number) : json()};
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

// Where the figures come from: a list of each, since several may have measured one file.
json origins_json(const View& view) {
  std::set<std::string> machines, commits, dates;
  for (const Summary& s : view.cells) {
    if (s.result.origin.machine) machines.insert(machine_text(*s.result.origin.machine));
    commits.insert(s.result.origin.commit);
    dates.insert(s.result.date.substr(0, 10));
  }
  for (auto* texts : {&machines, &commits, &dates}) texts->erase("");
  return {{"note", view.origin()},
          {"models", view.models()},
          {"machines", machines},
          {"commits", commits},
          {"dates", dates}};
}

std::set<std::string> pointers_of(const json& axes) {
  std::set<std::string> found;
  for (const auto& [pointer, value] : axes.items()) found.insert(pointer);
  return found;
}

// The run without the values of its axes. Inner axes go with the outer ones.
json without(json run, const std::set<std::string>& pointers) {
  for (const std::string& pointer : pointers) {
    const json::json_pointer at(pointer);
    if (!at.empty() && run.contains(at) && run[at.parent_pointer()].is_object())
      run[at.parent_pointer()].erase(at.back());
  }
  return run;
}

// Commits as `git checkout` takes them: without the mark of local changes.
std::string revision(std::string commit) { return commit.substr(0, commit.find("-dirty")); }

constexpr std::string_view kTitleMark = "@TITLE@", kPayloadMark = "@PAYLOAD@";

// The text before and after the one place of a mark.
struct Halves {
  std::string_view before, after;
};
Halves split(std::string_view text, std::string_view mark) {
  const std::size_t at = text.find(mark);
  if (at == std::string_view::npos)
    throw Error("the page of this build lacks " + std::string(mark) + "; build it again");
  return {text.substr(0, at), text.substr(at + mark.size())};
}

// What the first screen of the page says: what is best, by how much, and where speculation loses.

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

// One scale for all panels of a figure: {title, domain, log (its base; 0: linear), ticks (null: the page finds some)}.
// Wide intervals are cut rather than that they press all values together.
json scale_json(const Panels& panels, const ScaleKind& kind, bool across) {
  std::set<double> values(kind.holds.begin(), kind.holds.end());
  double low = INFINITY, high = -INFINITY;
  for (const Panel& panel : panels.all)
    for (const MarkSeries& series : panel.series)
      for (const PlotMark& mark : series.marks) {
        values.insert(across ? mark.x : mark.y.value);
        if (across || !mark.y.bounded()) continue;
        low = std::min(low, mark.y.low), high = std::max(high, mark.y.high);
      }
  if (values.empty()) return {{"title", kind.title}, {"domain", {0, 1}}, {"log", 0}, {"ticks", nullptr}};
  const double least = *values.begin(), most = *values.rbegin(), span = std::max(most - least, 0.25 * std::abs(most));
  low = std::min(least, std::max(low, least - span)), high = std::max(most, std::min(high, most + span));
  const bool log = kind.octaves && values.size() > 2 && least > 0 && most / least >= 8;
  const double margin = high > low ? 0.05 * (high - low) : high == 0 ? 0.5 : 0.5 * std::abs(high);
  json domain = {kind.from_zero ? 0 : low - margin, kind.from_zero ? 1.05 * high : high + margin};
  if (log) domain = {least / 1.2, most * 1.2};
  const bool few = kind.discrete && values.size() <= (log ? 10u : 8u);
  return {{"title", kind.title},
          {"domain", domain},
          {"log", !log            ? 0
                  : kind.discrete ? 2
                                  : 10},
          {"ticks", few ? json(values) : json()}};
}

}  // namespace

json mark_json(const PlotMark& mark) {
  return {{"x", mark.x},       {"y", mark.y.value},     {"low", finite(mark.y.low)}, {"high", finite(mark.y.high)},
          {"runs", mark.runs}, {"hollow", mark.hollow}, {"text", mark.text}};
}

json figure_json(Panels panels, const std::string& title, const ScaleKind& x, const ScaleKind& y, bool merged) {
  json drawn = json::array();
  for (Panel& panel : panels.all) {
    json list = json::array();
    for (MarkSeries& series : panel.series) {
      std::ranges::stable_sort(series.marks, {},
                               [&](const PlotMark& mark) { return std::pair(mark.x, merged ? -mark.rank : 0.0); });
      json points = json::array();
      for (std::size_t i = 0; i < series.marks.size(); ++i) {
        if (!merged || i == 0 || series.marks[i - 1].x != series.marks[i].x) points.push_back(json::array());
        points.back().push_back(mark_json(series.marks[i]));
      }
      list.push_back({{"name", series.name}, {"points", points}});
    }
    drawn.push_back({{"title", panel.title}, {"series", list}});
  }
  return {{"title", title}, {"x", scale_json(panels, x, true)}, {"y", scale_json(panels, y, false)}, {"panels", drawn}};
}

json table_json(const Table& table) {
  static const char* const kKinds[] = {"text", "number", "interval"};
  json columns = json::array(), rows = json::array();
  for (const Column& c : table.columns)
    columns.push_back(
        {{"title", c.title}, {"name", c.name}, {"meaning", c.explained()}, {"kind", kKinds[int(c.kind)]}});
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
  std::string title = listed(files.results);
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

json sweep_document(const std::vector<Summary>& runs) {
  if (runs.size() == 1 && runs[0].result.axes.empty()) return runs[0].run();
  const std::set<std::string> pointers = pointers_of(runs[0].result.axes);
  const json base = without(runs[0].run(), pointers);
  json axes = json::object();
  std::set<std::string> combinations;
  for (const Summary& run : runs) {
    const json& values = run.result.axes;
    if (pointers_of(values) != pointers || without(run.run(), pointers) != base) return nullptr;
    combinations.insert(values.dump(-1, ' ', true, json::error_handler_t::replace));
    for (const auto& [pointer, value] : values.items())
      if (std::ranges::find(axes[pointer], value) == axes[pointer].end()) axes[pointer].push_back(value);
  }
  std::size_t product = 1;
  for (const json& values : axes) product *= values.size();
  if (axes.empty() || product != runs.size() || combinations.size() != runs.size()) return nullptr;
  return {{"base", base}, {"axes", axes}};
}

json repeating_commands(const View& view, const PageFiles& files) {
  std::string results, chosen;
  for (const std::string& file : files.results) results += (results.empty() ? "" : " ") + shell_word(file);
  for (const std::string& condition : files.where) chosen += " --where " + shell_word(condition);
  std::set<std::string> commits;
  for (const Summary& s : view.cells) commits.insert(revision(s.result.origin.commit));
  json lines = json::array();
  const auto add = [&](const std::string& text, const std::string& meaning) {
    lines.push_back({{"text", text}, {"meaning", meaning}});
  };
  if (commits.size() == 1) add("git checkout " + shell_word(*commits.begin()), "the code that measured these results");
  const json document = sweep_document(view.cells);
  if (!document.is_null())
    add("./foretoken run sweep.json --results again.jsonl",
        "measures all runs again; sweep.json is saved from this page");
  std::string plot;
  for (const auto& [option, value] :
       {std::pair(" --x ", &files.plot.x), std::pair(" --y ", &files.plot.y),
        std::pair(" --colour ", &files.plot.colour), std::pair(" --columns ", &files.plot.columns)})
    if (!value->empty()) plot += option + shell_word(*value);
  if (files.results.size() == 1)
    add("./foretoken compare " + results + " again.jsonl" + chosen, "what differs, prompt by prompt, with intervals");
  add("./foretoken show " + results + chosen, "the tables of this page");
  add("./foretoken report " + results + chosen + plot + " --out " + shell_word(files.out), "this page");
  return {{"document", document}, {"lines", lines}};
}

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
      {"close to the best", "as_good", "others that are not clearly slower, with their speedups", Kind::text}};
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

std::string script_json(const json& value) {
  return replaced(value.dump(-1, ' ', true, json::error_handler_t::replace), {{'<', "\\u003c"}});
}

std::string html_text(const std::string& text) {
  return replaced(text, {{'&', "&amp;"}, {'<', "&lt;"}, {'>', "&gt;"}, {'"', "&quot;"}});
}

std::string page(const std::vector<Result>& lines, const PageFiles& files) {
  return of_lines([&] {
    const json payload = page_payload(View(lines), files);
    // Both marks are found before anything is put in their places, so that results cannot hold one.
    const auto [head, rest] = split(page_template(), kTitleMark);
    const auto [body, end] = split(rest, kPayloadMark);
    std::string found(head);
    found += html_text(payload.at("title").get<std::string>());
    found += body;
    found += script_json(payload);
    return found += end;
  });
}

bool is_page(std::string_view bytes) {
  const std::string_view opening = page_template().substr(0, page_template().find(kTitleMark));
  return bytes.starts_with(opening.substr(0, opening.find("<style>")));
}

}  // namespace foretoken
