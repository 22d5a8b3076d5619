// A sweep on several GPUs of one host: a process for each, which sees that GPU alone and measures its shard into a file
// of its own; what they measured is then appended to the file of results. This module must not know options of the
// command line beyond --shard and --results.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "experiments/report/results.h"
#include "experiments/sweep/runner.h"

namespace foretoken {

// What CUDA_VISIBLE_DEVICES is for each process. Where it is set already (`visible`, else null) numbers count within
// it, as CUDA does. No GPU, one that is named twice and a number that is not visible are Errors.
std::vector<std::string> visible_gpus(const std::vector<std::string>& named, const char* visible);

struct GpuSweep {
  std::vector<std::string> gpus;     // of visible_gpus()
  std::vector<std::string> command;  // arguments of each process, to which --shard and --results are added
  std::filesystem::path results;
  std::string title = "run";
  bool quiet = false;  // no progress
  bool share_baselines = false;
  bool keep_going = false;  // without a rehearsal by the first of them: each rehearses its own runs
};

// A process rehearses all runs, and where it refuses any, nothing is measured: `refused` is then all. Starts the
// processes and waits for all of them, also where one is killed: its finished runs are kept, and the same
// sweep measures the others. Ctrl-C and SIGTERM are passed on. Files of processes that an earlier call left behind, as
// its own process was killed, are taken in first. `failed` of the outcome: processes that did not end with 0.
SweepOutcome run_on_gpus(const std::vector<Run>& runs, const GpuSweep& sweep);

}  // namespace foretoken
