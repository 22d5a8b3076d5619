// Summaries in the order of their axes, and where they come from.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <set>
#include <utility>

#include "experiments/report/notes.h"
#include "experiments/report/tables.h"
#include "kernels/error.h"

namespace foretoken {
namespace {

using nlohmann::json;
using Kind = Column::Kind;

std::vector<json> runs_of(const std::vector<Summary>& summaries) {
  std::vector<json> runs;
  for (const Summary& summary : summaries) runs.push_back(summary.run());
  return runs;
}

std::string counted(std::size_t n, const std::string& noun) {
  return std::to_string(n) + " " + noun + (n == 1 ? "" : "s");
}

// "NVIDIA H200, a CPU (64 cores)": the device that ran, and its host.
std::string machine_name(const MachineInfo& machine) {
  const std::string host = machine.cpu + " (" + std::to_string(machine.cores) + " cores)";
  const std::string description = machine.device == "cuda" ? machine.description : "";
  return (description.empty() ? "" : description.substr(0, description.find(',')) + ", ") + host;
}

// "abc", or "several commits".
std::string common(const std::set<std::string>& values, const std::string& noun) {
  return values.empty() ? "" : values.size() == 1 ? *values.begin() : "several " + noun;
}

// Runs of several machines are compared at the reader's own risk.
std::string machines_note(const std::set<std::string>& machines) {
  std::string found;
  if (machines.size() < 2) return found;
  for (const std::string& machine : machines) found += (found.empty() ? "" : "; ") + machine;
  return " Measured on " + std::to_string(machines.size()) + " machines, whose times do not compare: " + found + ".";
}

// How the alternations of several runs followed one another, where their lines say it.
std::string rounds_note(const std::vector<Summary>& cells) {
  std::size_t rounds = 0, others = 0;
  long fewest = 0;
  for (const Summary& s : cells) {
    if (s.failed()) continue;
    const long together = s.result.interleaved.value_or(1);
    const bool interleaved = together > 1;
    if (interleaved) fewest = rounds == 0 ? together : std::min(fewest, together);
    ++(interleaved ? rounds : others);
  }
  if (rounds == 0) return "";
  return " Alternations of " + (others == 0 ? "the runs" : counted(rounds, "run")) + " were interleaved: rounds of " +
         std::to_string(fewest) + " runs" + (std::cmp_less(fewest, rounds) ? " or more" : "") + ".";
}

// From which states runs that learn were measured.
std::string starts_note(const std::vector<Summary>& cells) {
  std::set<std::string> starts;
  for (const Summary& s : cells) starts.insert(s.run().value("/workload/start"_json_pointer, ""));
  std::string found;
  if (starts.contains("cold")) found += " Cold: what learns began with what its files hold.";
  if (starts.contains("warm"))
    found +=
        " Warm: what learns had served the same requests once, with other draws, which is about the most that it can "
        "know of them: at temperature 0 it had seen the very outputs.";
  if (starts.contains("others"))
    found += " Others: what learns had served other prompts, and no prompt was served twice.";
  return found;
}

// "1.12 times"
std::string times(double ratio) {
  char text[40];
  std::snprintf(text, sizeof text, "%.2f times", ratio);
  return text;
}

// Of which runs steps had two speeds, and what to do then.
std::string speeds_note(const std::vector<Summary>& cells) {
  std::size_t runs = 0;
  TwoSpeeds widest;
  for (const Summary& s : cells) {
    if (!s.two_speeds) continue;
    ++runs;
    if (s.two_speeds->ratio > widest.ratio) widest = *s.two_speeds;
  }
  if (runs == 0) return "";
  return " Two speeds in " + counted(runs, "run") + ": " + (runs == 1 ? "" : "where they were furthest apart, ") +
         std::to_string(std::lround(100 * widest.slower)) + " % of the steps took " + times(widest.ratio) +
         " as long as others that did the same; intervals do not cover a machine that changes, so fix its clock, keep "
         "other work off it, and measure again. Where \"step_blocks\" has the same steps slow in every alternation, "
         "kernels take longer for them.";
}

}  // namespace

std::vector<std::string> named_axes(const std::vector<Summary>& summaries) {
  std::set<std::string> named;
  for (const Summary& summary : summaries)
    for (const auto& [pointer, value] : summary.result.axes.items()) named.insert(pointer);
  return {named.begin(), named.end()};
}

View::View(const std::vector<Result>& results) : View(of(summarize(results))) {}

View View::of(std::vector<Summary> summaries) {
  const ComponentNames names(runs_of(summaries));
  return of(std::move(summaries), names);
}

View View::of(std::vector<Summary> summaries, const ComponentNames& names) {
  if (summaries.empty())
    throw Error("there are no results to show: the file holds no line; `foretoken run FILE.json` writes some");
  const std::vector<json> runs = runs_of(summaries);
  Axes axes(runs, named_axes(summaries), names);
  std::vector<Summary> ordered;
  for (const std::size_t i : axes.order(runs)) ordered.push_back(std::move(summaries[i]));
  return View(std::move(ordered), std::move(axes));
}

View::View(std::vector<Summary> summaries, Axes axes_of_them)
    : cells(std::move(summaries)), axes(std::move(axes_of_them)) {
  const Summary* first = nullptr;
  std::vector<std::map<json, std::size_t>> numbers(axes.columns().size());
  for (const Summary& s : cells) {
    values_.emplace_back();
    for (const std::size_t axis : axes.all())
      values_.back().push_back(
          numbers[axis].try_emplace(axes.value(axis, s.run()), numbers[axis].size()).first->second);
    if (s.failed()) continue;
    mixed_ |= first && kind_of(first->promise) != kind_of(s.promise);
    first = &s;
  }
}

bool View::equal(std::size_t i, std::size_t j, const std::vector<std::size_t>& axes) const {
  return std::ranges::all_of(axes, [&](std::size_t axis) { return values_[i][axis] == values_[j][axis]; });
}

std::vector<std::vector<std::size_t>> View::groups(const std::vector<std::size_t>& axes) const {
  std::vector<std::vector<std::size_t>> found;
  for (std::size_t i = 0; i < cells.size(); ++i) {
    const auto known = std::ranges::find_if(found, [&](const auto& group) { return equal(group[0], i, axes); });
    if (known == found.end())
      found.push_back({i});
    else
      known->push_back(i);
  }
  return found;
}

std::vector<Column> View::mark_columns() const {
  std::vector<Column> found;
  if (mixed_)
    found.push_back({"output", "promise", "what the verifier promises; lossy: the output differs from plain decoding's",
                     Kind::text});
  if (unfinished_) found.push_back({"unfinished", "unfinished", "how far a run is that is not finished", Kind::text});
  return found;
}

std::vector<Column> View::columns() const {
  std::vector<Column> found = axes.table_columns();
  for (Column& column : mark_columns()) found.push_back(std::move(column));
  return found;
}

std::vector<Cell> View::marks(const std::vector<std::size_t>& runs) const {
  std::vector<Cell> found;
  const std::string& promise = cells[runs[0]].promise;
  if (mixed_) found.push_back(Cell::of(promise.empty() ? "-" : kind_of(promise)));
  if (!unfinished_) return found;
  std::string begun;  // the last of them is said
  for (const std::size_t i : runs)
    if (const std::string own = unfinished_of(cells[i]); !own.empty()) begun = own;
  found.push_back(Cell::of(begun));
  return found;
}

void View::mark_unfinished() {
  unfinished_ = std::ranges::any_of(cells, [](const Summary& s) { return !unfinished_of(s).empty(); });
}

std::string View::origin() const {
  std::set<std::string> commits, machines, laws;
  std::set<int> repeats, prompts;
  const auto shared =
      std::ranges::count_if(cells, [](const Summary& s) { return !s.failed() && s.result.shared_baseline; });
  for (const Summary& s : cells) {
    commits.insert(s.result.origin.commit);
    if (s.result.origin.machine) machines.insert(machine_name(*s.result.origin.machine));
    if (s.failed()) continue;
    if (kind_of(s.promise) != "exact" && !s.promise.empty()) laws.insert(s.promise);
    repeats.insert(s.repeats);
    prompts.insert(s.prompts);
  }
  std::string found = counted(cells.size(), "run");
  if (!repeats.empty())
    found += " of " + counted(*prompts.begin(), "prompt") + (prompts.size() > 1 ? " or more" : "") + " in " +
             counted(*repeats.begin(), "alternation") + (repeats.size() > 1 ? " or more" : "") +
             (shared > 0 ? "" : " with the baseline");
  for (const std::string& part : {common(machines, "machines"), common(commits, "commits")})
    if (!part.empty()) found += "; " + part;
  found += ".";
  if (shared > 0)
    found += " Baselines of " + counted(std::size_t(shared), "run") +
             " were shared with other runs (--share-baselines), not measured in alternation.";
  found += machines_note(machines) + rounds_note(cells) + starts_note(cells) + speeds_note(cells);
  for (const std::string& law : laws) found += " Not plain decoding's distribution: " + law + ".";
  return found + failures_note(cells);
}

std::string View::models() const {
  std::string found;
  bool made = false;
  for (const char* group : {"target", "drafter"}) {
    std::set<std::string> texts;
    for (const Summary& s : cells) {
      const json& run = s.run();
      const json text = told(run, "/" + std::string(group) + "/model");
      if (!text.is_string()) continue;
      texts.insert(text);
      made |= text != run[group]["model"];
    }
    for (bool first = true; const std::string& text : texts) {
      found += !first ? ", " : std::string(found.empty() ? "" : "; ") + group + ": ";
      found += text, first = false;
    }
  }
  return made ? found : "";
}

Row View::start(std::size_t i) const {
  Row row;
  row.cells = axes.cells(cells[i].run());
  row.add(marks({i}));
  row.sentence = cells[i].error;
  std::vector<std::size_t> block = axes.all();
  block.pop_back();
  row.rule_before = i > 0 && !equal(i - 1, i, block);
  for (const std::size_t axis : axes.conditions()) row.group += std::to_string(values_[i][axis]) + " ";
  return row;
}

}  // namespace foretoken
