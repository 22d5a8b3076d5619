// The tensors of a GGUF file under their Hugging Face names, q and k in the row order of Hugging Face. This module must
// not know tokenizers.
#pragma once
#include <map>
#include <memory>
#include <string>

#include "framework/model/gguf/gguf_config.h"
#include "framework/model/tensor_source.h"

namespace foretoken {

class GgufTensors : public TensorSource {
 public:
  // A tensor whose name is not that of a part of the architecture is an Error.
  GgufTensors(std::shared_ptr<const GgufFile> file, const ModelConfig& config);

  // A view of the mapping where the type is dense and the rows are in order. Quantized tensors become bf16.
  Tensor tensor(const std::string& name, const Shape& expected) const override;
  // Integer codes where the type is quantized.
  Weight matrix(const std::string& module, const Shape& expected) const override;
  std::vector<const WeightFormat*> formats() const override;
  std::vector<std::string> names() const override;
  std::string where() const override { return file_->where(); }

 private:
  struct Entry {
    std::string own;  // name in the file
    GgufTensor tensor;
    int heads = 0;  // of q and k, whose rows are reordered; 0: rows are in order
  };
  // Adds the matrices of all experts, which are one tensor in the file; false: it is none of those.
  bool add_experts(const std::string& own, const GgufTensor& tensor, const MixtureConfig& mixture);
  const Entry& at(const std::string& name, const Shape& expected) const;
  Tensor dense(const Entry& entry) const;
  Weight quantized(const Entry& entry) const;

  std::shared_ptr<const GgufFile> file_;
  std::map<std::string, Entry> entries_;  // by Hugging Face name
};

}  // namespace foretoken
