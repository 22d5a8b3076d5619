// `foretoken quantize`: rounds the matrices of a model's layers to a format and writes them as a checkpoint that
// Transformers loads. One layer is in memory at a time. This module must not know how a format rounds or is stored.
#pragma once
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "experiments/quantize/method.h"
#include "experiments/quantize/safetensors_file.h"
#include "framework/text/regular_file.h"

namespace foretoken {

struct QuantizeOptions {
  std::filesystem::path model;  // a dense checkpoint in Hugging Face form
  std::string format;           // of storable_formats()
  MethodOptions method;
  std::filesystem::path out;  // a directory that does not exist yet
  bool json = false;          // print JSON instead of a table
  int width = 0;              // of the terminal
  bool quiet = false;         // no progress
};

// How far the rounded matrices of a layer are from the original ones: |W - W'| / |W|, Frobenius norms.
struct LayerError {
  int layer = 0;
  double error = 0;    // of all its matrices together
  double outputs = 0;  // the same of the outputs of its products on the calibration text, whose inputs are rounded
                       // where the checkpoint's are; NaN without one
  double worst = 0;    // of one matrix
  std::string matrix;  // that one, as "mlp.down_proj"
};

// A checkpoint that is being written: a folder beside its final place, with a shard for each finished layer and a list
// of them, so that the work goes on where it stopped. One process writes it at a time: it holds a lock on a file
// within.
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

// Writes OUT.partial and renames it to OUT. What has been written of it is kept when the work is interrupted, and used
// when the same command is given again. Calls `done(finished)` after each layer; what it throws interrupts the work. An
// `out` that exists, a model that is quantized already, weights that are not finite, or a disk that is full is an
// Error.
std::vector<LayerError> quantize_checkpoint(const QuantizeOptions& options,
                                            const std::function<void(int finished, int layers)>& done);

// The command: progress on standard error, a table or JSON of the errors on standard output; returns an exit code.
int run_quantize(const QuantizeOptions& options);

}  // namespace foretoken
