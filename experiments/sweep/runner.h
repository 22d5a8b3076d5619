// All runs of a sweep, in rounds: speculation and its baseline (the same engine without it), measured in alternation,
// as one result line for each run. Where a rehearsal finds runs that cannot be measured, none is, unless they are to be
// recorded as failed and the others measured. A run that fails later is recorded and the others continue.
#pragma once
#include <filesystem>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "experiments/report/result.h"
#include "experiments/session/workbench.h"
#include "experiments/sweep/jobs.h"
#include "experiments/sweep/sweep.h"

namespace foretoken {

// All alternations of a run, one after another, as its result line. `progress` gets the share that is done. An error of
// the run becomes a line with "error"; Interrupted is rethrown.
Result measure_run(const Run& run, Workbench& bench, const std::filesystem::path& beside,
                   const std::function<void(double)>& progress);

// True if outputs differ although they must not: the device's numerics are invariant and the verifier is not lossy.
bool texts_differ(const Result& result);

// "drafter ngram, length 4": the axes of a run, for messages.
std::string label_of(const Run& run);

struct SweepOptions {
  std::filesystem::path results;
  std::filesystem::path beside;  // the document's folder, for its paths
  std::string title = "run";
  bool quiet = false;  // no progress
  bool share_baselines = false;
  bool keep_going = false;  // measures the other runs where a rehearsal refuses some
  std::string sweep = "";   // sweep_name(), by which what is left unfinished is known as its own; empty: nobody's
};
struct SweepOutcome {
  std::vector<Result> lines;  // of all runs that have one, in the order of the sweep, earlier results included
  int failed = 0;             // runs with an error, failed requests, or outputs that must not differ but do
  bool interrupted = false;
  int refused = 0;  // runs that a rehearsal found to fail; where others are not measured for that, they have no line
  int exit_code() const;  // 0; 1 if a run failed or was refused; 130 after Ctrl-C
};
// The keys of the runs that a sweep would not measure again: those that `results`, of the file of results, have figures
// of, which were measured with what the files that they read hold now. What it would tell of others is told. Errors as
// of origins_of().
std::set<std::string> measured_keys(const std::vector<Run>& runs, const std::vector<Result>& results, Workbench& bench,
                                    const SweepOptions& options);

// Rehearses the runs and measures none: what speaks against them is told. Runs that the file of results has are left
// out; it is not opened for writing.
SweepOutcome rehearse_sweep(const std::vector<Run>& runs, Workbench& bench, const SweepOptions& options);

// Measures the runs that the results file lacks, after a rehearsal of all of them (rehearse()). Runs of one target on
// one device go in rounds: alternation k of each before alternation k + 1 of any. "interleaved" of a line: how many
// runs went in its rounds, the fewest of any. What a sweep measured of runs that it did not finish is kept beside the
// results (Unfinished), and the next one goes on from there where nothing changed: program, machine, models, prompts.
// Only a failure that affects all runs (a file that cannot be written) is an Error.
SweepOutcome run_sweep(const std::vector<Run>& runs, Workbench& bench, const SweepOptions& options);

}  // namespace foretoken
