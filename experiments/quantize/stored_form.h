// How checkpoints store matrices of a weight format: which tensors a module has, and what config.json says of them.
// compressed-tensors for integers and 8-bit floats, bitsandbytes for NF4 and FP4. This module must not know how weights
// were rounded or which model they are of.
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

class StoredForm {
 public:
  virtual ~StoredForm() = default;
  // The tensors of a module ("model.layers.0.mlp.up_proj"), whose matrix is quantized. One that the form cannot store
  // is an Error.
  virtual std::vector<StoredTensor> tensors(const std::string& module, const Weight& w) const = 0;
  // "quantization_config" of config.json; `groups`: by module, the inputs that share a scale.
  virtual nlohmann::json config(const std::map<std::string, int>& groups, const SchemeFacts& facts = {}) const = 0;
};

// An Error that lists the formats that have a stored form, where this one has none.
const StoredForm& stored_form(const std::string& format);
std::vector<std::string> storable_formats();

namespace stored {

// compressed.cpp: https://github.com/vllm-project/compressed-tensors
const std::map<std::string, const StoredForm*>& compressed_tensors();  // by the name of the format
// bitsandbytes.cpp: https://github.com/bitsandbytes-foundation/bitsandbytes
const std::map<std::string, const StoredForm*>& bitsandbytes();

}  // namespace stored
}  // namespace foretoken
