#include "experiments/quantize/dense_model.h"

#include <set>

#include "framework/model/convert.h"
#include "framework/model/model_files.h"
#include "framework/model/model_tensors.h"
#include "framework/text/json_file.h"
#include "kernels/error.h"

namespace foretoken {
namespace {

const std::string kWeight = ".weight";

}  // namespace

DenseModel::DenseModel(const std::filesystem::path& directory) : directory_(directory) {
  if (is_one_file(directory))
    throw Error(directory.string() +
                " is a file, but only directories in Hugging Face form are quantized; name the directory from which it "
                "was made, or run the file as it is");
  expect_model_directory(directory);
  json_ = nlohmann::ordered_json::parse(read_file(directory / "config.json"), nullptr, false);
  if (json_.is_object() && json_.contains("quantization_config") && !json_["quantization_config"].is_null())
    throw Error(directory.string() +
                " is quantized already (its config.json has quantization_config); name a model with "
                "dense weights");
  config_ = ModelConfig::load(directory);
  checkpoint_.emplace(Checkpoint::open(directory));
  expect_no_other_tensors(config_, *checkpoint_);
  shapes_ = tensors_of(config_);
}

std::vector<std::string> DenseModel::modules(int layer) const {
  const std::string prefix = prefix_of(layer);
  std::vector<std::string> found;
  for (const auto& [name, shape] : shapes_)
    if (name.starts_with(prefix) && name.ends_with(kWeight) && shape.rank() == 2)
      found.push_back(name.substr(prefix.size(), name.size() - prefix.size() - kWeight.size()));
  return found;
}

Weight DenseModel::matrix(int layer, const std::string& module) const {
  const std::string name = prefix_of(layer) + module + kWeight;
  const Tensor values = checkpoint_->tensor(name, shapes_.at(name));
  return Weight::dense(values.dtype() == DType::bf16 ? values : converted(values, DType::f32));
}

DenseLayer DenseModel::layer(int layer) const {
  DenseLayer found{prefix_of(layer), modules(layer), {}, others(layer)};
  for (const std::string& module : found.modules) found.matrices[module] = matrix(layer, module);
  return found;
}

std::vector<StoredTensor> DenseModel::others(int layer) const {
  std::set<std::string> matrices;
  if (layer >= 0)
    for (const std::string& module : modules(layer)) matrices.insert(prefix_of(layer) + module + kWeight);
  std::vector<StoredTensor> found;
  for (const std::string& name : checkpoint_->names())
    if (layer_of(name) == layer && !matrices.contains(name))
      found.push_back(stored_tensor(name, checkpoint_->tensor(name)));
  return found;
}

int DenseModel::layer_of(const std::string& name) const {
  for (int l = 0; l < config_.layers; ++l)
    if (name.starts_with(prefix_of(l))) return l;
  return -1;
}

}  // namespace foretoken
