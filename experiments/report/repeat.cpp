#include "experiments/report/repeat.h"

#include <algorithm>
#include <set>

#include "experiments/report/shell_word.h"

namespace foretoken {
namespace {

using nlohmann::json;

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

}  // namespace

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

}  // namespace foretoken
