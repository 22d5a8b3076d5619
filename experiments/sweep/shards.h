// A sweep divided into shards, which processes on several machines or GPUs measure apart. The division depends on the
// sweep and the number of shards alone, so each process finds its own part without asking another.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "experiments/sweep/sweep.h"

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

}  // namespace foretoken
