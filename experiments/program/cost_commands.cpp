// The options of `foretoken calibrate` and `foretoken predict`.
#include <filesystem>

#include "experiments/costs/calibrate.h"
#include "experiments/costs/predict.h"
#include "experiments/program/commands.h"
#include "framework/decode/draft_tree.h"
#include "kernels/error.h"

namespace foretoken {
namespace {

int run_calibrate_here(Shown<CalibrateOptions>& g) { return run_calibrate(g.whole()); }
int run_predict_here(Shown<PredictOptions>& g) {
  if (!g.options.compare && !g.options.where.empty())
    throw Error("--where chooses among results, and needs --compare; choose runs of a document with --set");
  return run_predict(g.whole());
}

}  // namespace

void add_calibrate(Commands& all) {
  const auto [c, given] = all.add_subcommand(
      "calibrate", "measure what steps of a target and its drafter take on this machine, in about a minute",
      run_calibrate_here);
  CalibrateOptions& g = given.options;
  c.add_option("file", g.file, "JSON document of a run or a sweep of one target and drafter")->required();
  c.add_option("--out", g.out, "the file of costs to write; an older one is replaced, any other file is not");
  add_repeatable(c, "--set", g.set, "/POINTER=VALUE, a change of the run; may be given again");
  add_numbers(c, "--batches", g.choice.batches, 1, 4096, "sizes of the batch (default: up to the document's)");
  add_numbers(c, "--lengths", g.choice.lengths, 0, kMaxPath, "levels of drafts (default: up to the document's)");
  add_numbers(c, "--contexts", g.choice.contexts, 1, 1 << 20, "tokens of prompts (default: 64,512)");
  add_shown(c, "--seconds", g.choice.seconds, "to measure for at most, in all")->check(number_within(1, 120));
  c.add_flag("--quiet", g.quiet, "no progress");
  add_plugins(c, g.plugins);
  add_look(c, given.look);
}

void add_predict(Commands& all) {
  const auto [c, given] = all.add_subcommand(
      "predict", "the speedup of runs before anything is run, from a file of costs and what is known of acceptance",
      run_predict_here);
  PredictOptions& g = given.options;
  c.add_option("file", g.file, "JSON document of a run or a sweep; with --compare a file of results")->required();
  c.add_option("--costs", g.costs, "a file that foretoken calibrate wrote, or a published table in its form")
      ->required();
  c.add_option("--acceptance", g.acceptance,
               "a number from 0 to 1, or one for each level, as 0.8,0.7; or results of the same target and drafter "
               "(default: not known, and the acceptance that would break even is shown)");
  c.add_flag("--compare", g.compare, "beside what was measured: of the results in FILE");
  add_repeatable(c, "--set", g.set, "/POINTER=VALUE, a change of the run; may be given again");
  add_repeatable(c, "--where", g.where, "/POINTER=VALUE: only results with this value; may be given again");
  add_plugins(c, g.plugins);
  add_look(c, given.look);
}

}  // namespace foretoken
