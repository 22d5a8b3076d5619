// `foretoken show`: tables of stored results, all of a file or those of a sweep's document.
#include <algorithm>
#include <memory>
#include <set>

#include <spdlog/spdlog.h>
#include <unistd.h>

#include "experiments/program/commands.h"
#include "experiments/program/sweep_choice.h"
#include "experiments/report/report.h"
#include "experiments/report/terminal.h"
#include "experiments/session/run_document.h"
#include "kernels/error.h"

namespace foretoken {

namespace {

struct ShowFlags {
  std::vector<std::string> files, where, by;
  SweepChoice sweep;
  std::vector<std::string> tables, figures = ShowOptions().figures;
  std::string across;
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
  std::string files;
  for (const std::string& file : g.files) files += (files.empty() ? "" : " ") + file;
  if (!others.empty())
    spdlog::warn("{} of {} results in {} are of no run of {}; foretoken merge {} --sweep {} --out FILE leaves them out",
                 others.size(), lines.size(), files, g.sweep.document, files, g.sweep.document);
  if (others.size() == lines.size() && !lines.empty())
    throw Error("none of the " + std::to_string(lines.size()) + " results in " + files + " is of a run of " +
                g.sweep.document + "; leave out --sweep to see them");
  lines.erase(others.begin(), others.end());
}

int show_results(const ShowFlags& g) {
  std::vector<Result> lines = selected_results(g.files, g.where);
  leave_out_others(g, lines);
  print(show(lines, {.format = g.look.chosen(),
                     .tables = chosen_tables(g.tables, {}),
                     .width = terminal_columns(STDOUT_FILENO),
                     .by = g.by,
                     .across = g.across,
                     .figures = g.figures}));
  return report_damages(g.files, lines) ? 1 : 0;
}

}  // namespace

void add_show(CLI::App& app, Action& action) {
  const auto g = std::make_shared<ShowFlags>();
  CLI::App* c = app.add_subcommand("show", "tables of stored results");
  c->add_option("results", g->files, "files of results; of several lines of a run the newest counts")->required();
  add_where(*c, g->where);
  add_repeatable(*c, "--by", g->by, "/POINTER: tables for each of its values, as /engine/batch; may be given again");
  add_sweep(*c, g->sweep, "the document of a sweep: tables of its runs alone; other results are listed");
  add_tables(*c, g->tables);
  CLI::Option* const across = c->add_option(
      "--across", g->across, "/POINTER: one table with a column for each of its values, as /engine/batch");
  add_list_option(*c, "--figures", g->figures, "its figures, by their names in --format csv")
      ->needs(across)
      ->default_str("tau,speedup");
  add_look(*c, g->look, true);
  c->callback([g, &action] { action = [g] { return show_results(*g); }; });
}

}  // namespace foretoken
