// Where the tensors of a model come from, by the names of a Hugging Face checkpoint: a file, a seed, or a smaller
// model. This module must not know what is done with them, nor on which device.
#pragma once
#include <string>
#include <vector>

#include "kernels/weight.h"

namespace foretoken {

class TensorSource {
 public:
  virtual ~TensorSource() = default;
  // A dense host tensor of exactly this shape, in whatever type the source has it; it may be a view that its handle
  // keeps alive. A name that the source does not have, or that has another shape, is an Error.
  virtual Tensor tensor(const std::string& name, const Shape& expected) const = 0;
  // The matrix of a module (its tensor is "MODULE.weight") in the format in which the source has it, without bias.
  virtual Weight matrix(const std::string& module, const Shape& expected) const {
    return Weight::dense(tensor(module + ".weight", expected));
  }
  // In which the matrices of layers are quantized, each once; none where all are dense.
  virtual std::vector<const WeightFormat*> formats() const { return {}; }
  // Of which scales are numbers where matrices are rounded when they are loaded: bf16, f16 or f32.
  virtual DType scales() const { return DType::bf16; }
  // All that it holds, so that unused tensors are noticed; empty where tensors of any name are generated.
  virtual std::vector<std::string> names() const = 0;
  virtual std::string where() const = 0;  // for messages: the directory or file, or how it is generated
};

}  // namespace foretoken
