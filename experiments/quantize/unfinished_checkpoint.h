// A checkpoint that is being written: a folder beside its final place, with a shard for each finished layer and a list
// of them, so that the work goes on where it stopped. One process writes it at a time: it holds a lock on a file
// within. This module must not know what the shards hold.
#pragma once
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "experiments/quantize/safetensors_file.h"
#include "framework/text/regular_file.h"

namespace foretoken {

class UnfinishedCheckpoint {
 public:
  // Opens or makes `out`.partial. `job`: all that its content depends on. An `out` that exists, a folder of another
  // job, or one that another process writes is an Error, which leaves all as it was. `shards`: their number.
  UnfinishedCheckpoint(const std::filesystem::path& out, const nlohmann::json& job, int shards);
  // Removes the folder where this process made it and no shard is finished.
  ~UnfinishedCheckpoint();
  UnfinishedCheckpoint(const UnfinishedCheckpoint&) = delete;

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
  void open();
  void make();
  void lock();
  std::string name_of(int shard) const;
  void write_list() const;

  std::filesystem::path out_, folder_;
  bool made_ = false;  // the folder, by this process
  std::optional<Descriptor> lock_;
  nlohmann::json job_, shards_done_ = nlohmann::json::object();  // by the shard's name: "facts", and "bytes" by tensor
  int shards_;
};

}  // namespace foretoken
