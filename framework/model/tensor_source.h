// Where the tensors of a model come from, by the names of a Hugging Face checkpoint: a file, a seed, or a smaller
// model. This room must not know what is done with them, nor on which device.
#pragma once
#include <string>

#include "kernels/tensor.h"

namespace foretoken {

class TensorSource {
 public:
  virtual ~TensorSource() = default;
  // A dense host tensor of exactly this shape, in whatever type the source has it; it may be a view that its handle
  // keeps alive. A name that the source does not have, or with another shape: an Error that says so.
  virtual Tensor tensor(const std::string& name, const Shape& expected) const = 0;
};

}  // namespace foretoken
