// One run: speculation and its baseline (the same engine without it), measured in alternation, as one result line; and
// all runs of a sweep: a failed run is recorded and the others continue.
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

// The requests of a complete run: its prompts, each with its samples, as often as /workload/repeats says (with other
// sample numbers, so other draws). The prompts are /workload/limit of the file's, but at least as many as six requests
// for each place of the batch need; fewer are an Error. With "drawn" lengths every request ends after a number of
// tokens between half of max_new_tokens and all of them, which depends on its prompt and repeat alone: requests of
// equal lengths would end, and read prompts, all at once.
std::vector<Job> jobs_of(const nlohmann::json& run, Workbench& bench, const std::filesystem::path& beside);

// The warm-up requests, served before a run is measured: its first ones, shortened. They end one after another and
// others start, so every batch size (above 16: sizes close together) and mixes of prompts and decoding occur, if the
// run has enough requests. A device may time its implementations of a product when it first gets a number of rows.
std::vector<Job> warm_up_jobs(std::vector<Job> jobs, std::size_t batch);

// A measurement that counts, and those before it that do not: [{"reason", "seconds", "recorded" or "stopped_seconds",
// "differing_texts"}], whose outputs were compared with its.
struct Taken {
  Measured measured;
  nlohmann::json thrown_away = nlohmann::json::array();
};
// Measures again, after again(), where a device recorded forwards meanwhile (milliseconds each; the same requests have
// the same forwards, which are then replayed; once, and only with `settle`), or where the process was stopped for more
// than 2 % of the time. Stopped in each of three measurements is an Error.
Taken measure_kept(const std::function<Measured()>& measure, bool settle, const std::function<void()>& again);

// Whether all alternations of a side did the same: its requests have equal counts of tokens, rounds and drafts, and
// equal outputs, since their draws are equal. {"compared", "differing": [{"side", "repeat", "requests"}]}; what learns
// is not compared.
class SameAgain {
 public:
  explicit SameAgain(bool compared) : compared_(compared) {}
  void add(const Measured& measured, const char* side, int repeat);
  nlohmann::json as_json() const { return {{"compared", compared_}, {"differing", differing_}}; }

 private:
  struct First {
    std::vector<std::vector<long>> counts;  // of each request
    std::vector<std::vector<Token>> texts;
  };
  bool compared_;
  std::map<std::string, First> first_;  // by side
  nlohmann::json differing_ = nlohmann::json::array();
};

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
