// A sweep in parts: its shards, which other machines may measure, and all of it on several GPUs of one host. For these
// there is a process for each, which sees that GPU alone and measures its shard into a file of its own; what they
// measured is then appended to the file of results. This module must not know options of the command line beyond
// --shard and --results.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "experiments/sweep/runner.h"

namespace foretoken {

constexpr int kMostShards = 20'000;

struct Shard {
  int number = 1, count = 1;  // 1 <= number <= count <= kMostShards
};

// "2/8". Anything else is an Error.
Shard read_shard(const std::string& text);

// What a run costs, as far as its document says: rounds of plain decoding of one side, in all alternations, as if
// every prompt had all turns that are asked for, without what is served before a warm measurement. It sees neither the
// models' sizes nor the draft's length.
double rounds_of(const nlohmann::json& run);

// The runs of a shard, in the order of the sweep. The most expensive come first, equal ones in the order of their keys,
// which mixes the values of all axes; each goes to the shard that has the least to do (longest processing time first,
// Graham 1969). Where all cost the same, shard K has number K, K + N, ... of that order. With `share_baselines` runs
// that share a baseline go together, and it counts once.
std::vector<Run> runs_of(const Shard& shard, const std::vector<Run>& runs, bool share_baselines);

// "results/NAME.shard-2-of-8.jsonl" of "results/NAME.jsonl".
std::filesystem::path file_of(const Shard& shard, const std::filesystem::path& results);

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
