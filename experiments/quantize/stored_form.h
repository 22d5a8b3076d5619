// How checkpoints store matrices of a weight format: which tensors a module has, and what config.json says of them.
// compressed-tensors (https://github.com/vllm-project/compressed-tensors) for integers, 8-bit floats and 2:4,
// bitsandbytes (https://github.com/bitsandbytes-foundation/bitsandbytes) for NF4 and FP4. This module must not know how
// weights were rounded or which model they are of.
#pragma once
#include <map>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "experiments/quantize/safetensors_file.h"
#include "kernels/formats/format.h"

namespace foretoken {

// What a checkpoint says of its matrices besides their format.
struct SchemeFacts {
  // Inputs are rounded to 8-bit integers with a scale for each token, which is found when they are multiplied.
  bool rounds_inputs = false;
  // Columns were rounded in the order of their inputs' squares, within groups that follow the columns.
  bool ordered_columns = false;
};

struct StoredForm {
  std::string name, layout;  // of the weight format; of the tensors
  nlohmann::json weights;    // what compressed-tensors says of the matrices; null: another form
  std::vector<StoredTensor> (*store)(const StoredForm& form, const std::string& module, const Weight& w);

  // The tensors of a module ("model.layers.0.mlp.up_proj"), whose matrix is quantized. One that the form cannot store
  // is an Error.
  std::vector<StoredTensor> tensors(const std::string& module, const Weight& w) const {
    return store(*this, module, w);
  }
  // "quantization_config" of config.json; `groups`: by module, the inputs that share a scale.
  nlohmann::json config(const std::map<std::string, int>& groups, const SchemeFacts& facts = {}) const;
};

// An Error that lists the formats that have a stored form, where this one has none.
const StoredForm& stored_form(const std::string& format);

}  // namespace foretoken
