// `foretoken show`: tables of stored results, all of a file or those of a sweep's document.
#include <algorithm>
#include <memory>
#include <set>

#include <spdlog/spdlog.h>
#include <unistd.h>

#include "experiments/program/commands.h"
#include "experiments/program/sweep_choice.h"
#include "experiments/report/report.h"
#include "experiments/report/results.h"
#include "experiments/report/terminal.h"
#include "experiments/sweep/run_document.h"
#include "experiments/sweep/unfinished.h"
#include "kernels/error.h"

namespace foretoken {

namespace {

struct ShowFlags {
  std::string file;
  SweepChoice sweep;
  std::vector<std::string> tables;
  Look look;
};

// Results of other runs than the sweep's leave the lines and are listed.
void leave_out_others(const ShowFlags& g, std::vector<Result>& lines) {
  if (g.sweep.document.empty()) return;
  Workbench bench(g.sweep.plugins);
  std::set<std::string> keys;
  for (const Run& run : g.sweep.runs(bench)) keys.insert(run.key);
  const auto others =
      std::ranges::stable_partition(lines, [&](const Result& result) { return keys.contains(result.key); });
  for (const Result& other : others) spdlog::warn("not of {}: {}", g.sweep.document, told(other));
  if (!others.empty())
    spdlog::warn("{} of {} results in {} are of no run of {}; foretoken merge {} --sweep {} --out FILE leaves them out",
                 others.size(), lines.size(), g.file, g.sweep.document, g.file, g.sweep.document);
  if (others.size() == lines.size() && !lines.empty())
    throw Error("none of the " + std::to_string(lines.size()) + " results in " + g.file + " is of a run of " +
                g.sweep.document + "; leave out --sweep to see them");
  lines.erase(others.begin(), others.end());
}

int show_results(const ShowFlags& g) {
  std::vector<Result> lines = load_with_unfinished(g.file);
  leave_out_others(g, lines);
  print(show(lines, {g.look.chosen(), chosen_tables(g.tables, {}), terminal_columns(STDOUT_FILENO)}));
  return report_damages(g.file, lines) ? 1 : 0;
}

}  // namespace

void add_show(CLI::App& app, Action& action) {
  const auto g = std::make_shared<ShowFlags>();
  CLI::App* c = app.add_subcommand("show", "tables of stored results");
  c->add_option("results", g->file, "a file of results")->required();
  add_sweep(*c, g->sweep, "the document of a sweep: tables of its runs alone; other results are listed");
  add_tables(*c, g->tables);
  add_look(*c, g->look);
  c->callback([g, &action] { action = [g] { return show_results(*g); }; });
}

}  // namespace foretoken
