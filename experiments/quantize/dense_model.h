// A model to be quantized: its checkpoint, and which of its tensors are matrices of layers. This module must not know
// formats.
#pragma once
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "experiments/quantize/safetensors_file.h"
#include "framework/model/checkpoint.h"
#include "framework/model/config.h"

namespace foretoken {

// A layer that is quantized. Methods may change it, as long as it computes the same.
struct DenseLayer {
  std::string prefix;                      // "model.layers.3."
  std::vector<std::string> modules;        // that have a matrix, within the layer: "mlp.up_proj"
  std::map<std::string, Weight> matrices;  // of these, f32 or bf16
  std::vector<StoredTensor> others;        // all other tensors, by their names in the model
};

class DenseModel {
 public:
  // A directory in Hugging Face form. One that is quantized already is an Error.
  explicit DenseModel(const std::filesystem::path& directory);

  const ModelConfig& config() const { return config_; }
  const Checkpoint& checkpoint() const { return *checkpoint_; }
  const nlohmann::ordered_json& config_json() const { return json_; }
  const std::filesystem::path& directory() const { return directory_; }

  // "model.layers.3."
  static std::string prefix_of(int layer) { return "model.layers." + std::to_string(layer) + "."; }
  // Modules of a layer that have a matrix, within the layer: "mlp.up_proj".
  std::vector<std::string> modules(int layer) const;
  // Its matrix, f32 or bf16.
  Weight matrix(int layer, const std::string& module) const;
  DenseLayer layer(int layer) const;
  // Tensors of a layer but its matrices; of layer -1 those outside all layers.
  std::vector<StoredTensor> others(int layer) const;

 private:
  int layer_of(const std::string& name) const;

  std::filesystem::path directory_;
  nlohmann::ordered_json json_;
  ModelConfig config_;
  std::optional<Checkpoint> checkpoint_;
  std::map<std::string, Shape> shapes_;
};

}  // namespace foretoken
