// `foretoken run`: a sweep in this process, a shard of it, or all of it in a process for each GPU.
#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include <spdlog/spdlog.h>
#include <unistd.h>

#include "experiments/program/commands.h"
#include "experiments/report/machine.h"
#include "experiments/report/report.h"
#include "experiments/report/terminal.h"
#include "experiments/session/run_document.h"
#include "experiments/sweep/estimate.h"
#include "experiments/sweep/runner.h"
#include "experiments/sweep/shards.h"
#include "kernels/error.h"

namespace foretoken {

namespace {

struct RunFlags {
  std::string file, results, shard;
  std::vector<std::string> set, plugins, tables, gpus;
  bool quiet = false, share = false, on_gpu = false, keep_going = false, rehearse = false, dry = false,
       stand_ins = false;
  Look look;
};

std::string device_of(const Run& run) { return run.document.at("engine").at("device"); }

// Of each process of --gpus. Runs are rehearsed before there are any, so what is refused there fails alone.
std::vector<std::string> command_of(const RunFlags& g) {
  std::vector<std::string> words{"run", g.file, "--quiet", "--on-gpu", "--keep-going"};
  const auto add = [&](const char* option, const std::vector<std::string>& values) {
    for (const std::string& value : values) words.push_back(std::string(option) + "=" + value);
  };
  add("--set", g.set);
  add("--plugin", g.plugins);
  if (g.share) words.push_back("--share-baselines");
  return words;
}

SweepOutcome measure_on_gpus(const RunFlags& g, const std::vector<Run>& runs, const std::filesystem::path& results) {
  if (std::ranges::any_of(runs, [](const Run& r) { return device_of(r) != "auto" && device_of(r) != "cuda"; }))
    spdlog::warn(
        "runs of this sweep name a device that is no GPU: the processes of --gpus share the cores, so their "
        "times are not those of one alone");
  return run_on_gpus(runs, {visible_gpus(g.gpus, std::getenv("CUDA_VISIBLE_DEVICES")), command_of(g), results,
                            "foretoken run", g.quiet, g.share, g.keep_going});
}

// A process of --gpus must not take the CPU where its GPU cannot be used.
void expect_gpu(const std::vector<Run>& runs, Workbench& bench) {
  const auto open = std::ranges::find(runs, "auto", device_of);
  if (open == runs.end() || machine_of(bench.backend(open->document.at("engine"))).device == "cuda") return;
  const char* const gpu = std::getenv("CUDA_VISIBLE_DEVICES");
  throw Error("--gpus names GPU " + std::string(gpu ? gpu : "") +
              ", which this program cannot use; name one that nvidia-smi -L lists, or leave --gpus out");
}

std::filesystem::path results_of(const RunFlags& g) {
  if (!g.results.empty()) return g.results;
  const auto whole = std::filesystem::path("results") / (std::filesystem::path(g.file).stem().string() + ".jsonl");
  return g.shard.empty() ? whole : file_of(read_shard(g.shard), whole);
}

int dry_run(const RunFlags& g, const std::vector<Run>& runs, Workbench& bench, const SweepOptions& options) {
  const std::vector<Expected> expected = estimate(runs, bench, options);
  print(g.look.chosen() == "json" ? as_json(expected).dump(1) + "\n" : as_text(expected, g.gpus.size()));
  return 0;
}

int run(RunFlags& g) {
  const bool reads = g.look.chosen() == "terminal" || g.look.chosen() == "markdown";
  const std::vector<std::string> tables =
      chosen_tables(g.tables, reads ? std::vector<std::string>{"main", "best"} : std::vector<std::string>{});
  expect_tables(tables);  // before anything is measured
  const std::filesystem::path file = g.file, results = results_of(g);
  const auto document = read_document(file);
  if (g.stand_ins) put_stand_ins(document, g.file, g.set);
  Workbench bench(g.plugins);
  bench.load_plugins(document, file.parent_path());
  std::vector<Run> runs = expand(document, g.set, bench.registries(), file.string());
  if (!g.shard.empty()) {
    const std::size_t all = runs.size();
    runs = runs_of(read_shard(g.shard), runs, g.share);
    if (!g.quiet) spdlog::info("shard {}: {} of {} runs, into {}", g.shard, runs.size(), all, results.string());
  }
  if (g.on_gpu) expect_gpu(runs, bench);
  const SweepOptions options{results, file.parent_path(), "foretoken run",          g.quiet,
                             g.share, g.keep_going,       sweep_name(g.file, g.set)};
  if (g.dry) return dry_run(g, runs, bench, options);
  if (g.rehearse) return rehearse_sweep(runs, bench, options).exit_code();
  const SweepOutcome outcome = g.gpus.empty() ? run_sweep(runs, bench, options) : measure_on_gpus(g, runs, results);
  if (!outcome.lines.empty()) print(show(outcome.lines, {g.look.chosen(), tables, terminal_columns(STDOUT_FILENO)}));
  return outcome.exit_code();
}

}  // namespace

void add_run(Commands& all) {
  const auto [c, g] = all.add_subcommand("run", "measure a run or a sweep and print its tables", run);
  c.add_option("file", g.file, "JSON document of a run, or {\"base\": run, \"axes\": {...}}")->required();
  c.add_option("--results", g.results,
               "file of results; runs that it has are not measured again (default: results/NAME.jsonl)");
  add_repeatable(c, "--set", g.set, "/POINTER=VALUE, a change of the run; may be given again");
  c.add_flag("--stand-ins", g.stand_ins,
             "apply the document's \"stand_ins\" before --set: it runs without the models that it names");
  add_plugins(c, g.plugins);
  c.add_flag("--quiet", g.quiet, "no progress");
  c.add_flag("--share-baselines", g.share,
             "measure the baseline once for all runs that differ in drafter and policy alone, where absolute times "
             "hold (a GPU)");
  CLI::Option* const rehearse =
      c.add_flag("--rehearse", g.rehearse,
                 "only check the runs that are not measured yet, as is done before any is measured: without weights");
  c.add_flag(
       "--dry-run", g.dry,
       "only list the runs in their order, with what is measured already and an estimate of the time that is left; "
       "where the file of results has no like run, the target is loaded and a few steps are timed")
      ->excludes(rehearse);
  c.add_flag("--keep-going", g.keep_going,
             "where that finds runs that cannot be measured, record them as failed and measure the others");
  CLI::Option* const shard =
      c.add_option("--shard", g.shard,
                   "K/N: the K-th of N parts of the sweep, about equally long, N at most " +
                       std::to_string(kMostShards) + " (default of --results: results/NAME.shard-K-of-N.jsonl)");
  add_list_option(c, "--gpus", g.gpus, "GPUs of this host, as 0,1,2,3: a process for each measures a part of the sweep")
      ->excludes(shard);
  c.add_flag("--on-gpu", g.on_gpu)->group("");  // of the processes of --gpus
  add_tables(c, g.tables, "main,best");
  add_look(c, g.look);
}

}  // namespace foretoken
