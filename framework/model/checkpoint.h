// A safetensors checkpoint, memory-mapped: model.safetensors, or shards named by model.safetensors.index.json.
// This module must not know what the tensors are for.
#pragma once
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "framework/model/tensor_source.h"

namespace foretoken {

class Checkpoint : public TensorSource {
 public:
  // Maps every file and checks every header: sizes, offsets, dtypes, overlaps, and that index and shards name the same
  // tensors. A missing, truncated or contradictory file is an Error that names the file, the tensor and the remedy.
  static Checkpoint open(const std::filesystem::path& directory);
  static Checkpoint open_file(const std::filesystem::path& file);
  // The files of weights that open() maps, as far as they are there. Others may lie beside them: the same weights in
  // another format, or a shard that the index does not name.
  static std::vector<std::filesystem::path> files(const std::filesystem::path& directory);

  bool has(const std::string& name) const { return entries_.contains(name); }
  // A host view into the mapping (no copy), which keeps the mapping alive. Missing name, or another shape than
  // `expected`: an Error that prints both.
  Tensor tensor(const std::string& name, const Shape& expected) const override;
  Tensor tensor(const std::string& name) const;
  std::vector<std::string> names() const override;
  std::string where() const override { return where_; }

 private:
  std::map<std::string, Tensor> entries_;
  std::string where_;
};

}  // namespace foretoken
