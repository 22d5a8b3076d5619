// One run: speculation and its baseline (the same engine without it), measured in alternation, as one result line; and
// all runs of a sweep: a failed run is recorded and the others continue.
#pragma once
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "experiments/sweep/jobs.h"
#include "experiments/sweep/kept.h"
#include "experiments/sweep/sweep.h"
#include "experiments/sweep/workbench.h"

namespace foretoken {

// The fields that determine a baseline, as text: all except drafter and policy.
std::string baseline_of(nlohmann::json run);

// Baselines shared by all runs of a sweep that differ only in drafter and policy. Valid where absolute times are stable
// (an exclusive GPU), not on a shared CPU, where only alternating measurements can be compared.
class Baselines {
 public:
  bool known(const nlohmann::json& run) const;
  // The baseline of alternation number `repeat`; `measure` is called if this sweep has not measured it yet.
  Taken of(const nlohmann::json& run, std::size_t repeat, const std::function<Taken()>& measure);

 private:
  std::map<std::string, std::vector<Taken>> measured_;
};

// The result line. `progress` gets the share that is done. An error of the run becomes a line with "error"; Interrupted
// is rethrown. With `shared` the baseline may be that of another run, and the line says "shared_baseline".
nlohmann::json measure_run(const Run& run, Workbench& bench, const std::filesystem::path& beside,
                           const std::function<void(double)>& progress, Baselines* shared = nullptr);

// True if outputs differ although they must not: the device's numerics are invariant and the verifier is not lossy.
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
  int failed = 0;                     // runs with an error, failed requests, or outputs that must not differ but do
  bool interrupted = false;
  int exit_code() const;  // 0; 1 if a run failed; 130 after Ctrl-C
};
// Measures the runs that the results file lacks. Only a failure that affects all runs (a file that cannot be written)
// is an Error.
SweepOutcome run_sweep(const std::vector<Run>& runs, Workbench& bench, const SweepOptions& options);

}  // namespace foretoken
