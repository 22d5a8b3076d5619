// One run: speculation and its baseline (the same engine without it), measured in alternation, as one result line; and
// all runs of a sweep, of which what fails is recorded and the rest goes on.
#pragma once
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "experiments/sweep/measure.h"
#include "experiments/sweep/sweep.h"
#include "experiments/sweep/workbench.h"

namespace foretoken {

// The requests of a complete run: all of its prompts, each with its samples, as many times over (with other sample
// numbers, so other draws) as it takes to have at least four times as many as run at once.
std::vector<Job> jobs_of(const nlohmann::json& run, Workbench& bench, const std::filesystem::path& beside);

// The requests that are served before a run is measured: short ones of its first. They end one after another and others
// take their places, so that, a token a step, every size of the batch (of more than 16: sizes close together) and
// prompts among decoding are met, where the run has so many requests: a device may time its ways of a product when it
// first sees so many rows.
std::vector<Job> warm_up_jobs(std::vector<Job> jobs, std::size_t batch);

// What `measure` gives; where a device recorded forwards meanwhile, milliseconds each, what it gives when asked once
// more, behind again(): the same requests have the same forwards, which are replayed then.
Measured measure_settled(const std::function<Measured()>& measure, const std::function<void()>& again);

// Baselines that serve every run of a sweep which differs in its drafter and its policy alone: right where absolute
// times hold (a GPU to itself), wrong on a shared CPU, where only what alternates can be compared.
class Baselines {
 public:
  bool known(const nlohmann::json& run) const;
  // The baseline of alternation number `repeat`; `measure` is called where this sweep has not measured it yet.
  Measured of(const nlohmann::json& run, std::size_t repeat, const std::function<Measured()>& measure);

 private:
  std::map<std::string, std::vector<Measured>> measured_;
};

// The result line. `progress` gets the share that is done. An error of the run becomes a line with "error"; Interrupted
// is thrown on. With `shared` the baseline may be that of another run, and the line says "shared_baseline".
nlohmann::json measure_run(const Run& run, Workbench& bench, const std::filesystem::path& beside,
                           const std::function<void(double)>& progress, Baselines* shared = nullptr);

// True where texts differ although the device's numerics are invariant and the verifier is not lossy, so that they must
// not.
bool texts_differ(const nlohmann::json& line);

// "drafter ngram, length 4": the axes of a run, for messages.
std::string label_of(const Run& run);

struct SweepOptions {
  std::filesystem::path results;
  std::filesystem::path beside;  // the document's folder, for its paths
  std::string title = "run";
  bool quiet = false;  // no progress
  bool share_baselines = false;
};
struct SweepOutcome {
  std::vector<nlohmann::json> lines;  // of all runs that have one, in the order of the sweep, earlier results included
  int failed = 0;  // runs with an error, with requests that failed, or with texts that differ though they must not
  bool interrupted = false;
  int exit_code() const;  // 0, 1 where a run failed, 130 after Ctrl-C
};
// Measures what the results file does not hold yet. Only what concerns all runs (a file that cannot be written) is an
// Error.
SweepOutcome run_sweep(const std::vector<Run>& runs, Workbench& bench, const SweepOptions& options);

}  // namespace foretoken
