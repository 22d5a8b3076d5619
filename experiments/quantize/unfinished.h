// A checkpoint that is being written: a folder beside its final place, with a shard for each finished layer and a list
// of them, so that the work goes on where it stopped. This module must not know what the shards hold.
#pragma once
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "experiments/quantize/safetensors_file.h"

namespace foretoken {

class Unfinished {
 public:
  // Opens or makes `out`.partial. `job`: all that its content depends on. An `out` that exists, or a folder of another
  // job, is an Error. `shards`: their number.
  Unfinished(const std::filesystem::path& out, const nlohmann::json& job, int shards);
  // Removes the folder where no shard is finished.
  ~Unfinished();
  Unfinished(const Unfinished&) = delete;

  const std::filesystem::path& folder() const { return folder_; }
  // A folder within for what only the work itself needs; removed at its end.
  std::filesystem::path scratch() const { return folder_ / "scratch"; }
  bool finished(int shard) const { return shards_done_.contains(name_of(shard)); }
  // What was said of a finished shard.
  const nlohmann::json& facts(int shard) const { return shards_done_.at(name_of(shard)).at("facts"); }
  // Writes the shard, then its place in the list.
  void add(int shard, std::span<const StoredTensor> tensors, const nlohmann::json& facts);
  // Writes the index of all shards and gives the folder its final name.
  void finish();

 private:
  std::string name_of(int shard) const;
  void write_list() const;

  std::filesystem::path out_, folder_;
  nlohmann::json job_, shards_done_ = nlohmann::json::object();  // by the shard's name: "facts", and "bytes" by tensor
  int shards_;
};

}  // namespace foretoken
