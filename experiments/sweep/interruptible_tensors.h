// The tensors of another source. After Ctrl-C the next one throws Interrupted, so loading a large model stops. This
// module must not know the source or the use of its tensors.
#pragma once
#include <string>
#include <vector>

#include "experiments/sweep/interrupt.h"
#include "framework/model/tensor_source.h"

namespace foretoken {

class InterruptibleTensors : public TensorSource {
 public:
  // `source` must outlive it.
  explicit InterruptibleTensors(const TensorSource& source) : source_(source) {}
  Tensor tensor(const std::string& name, const Shape& expected) const override {
    check_interrupt();
    return source_.tensor(name, expected);
  }
  Weight matrix(const std::string& module, const Shape& expected) const override {
    check_interrupt();
    return source_.matrix(module, expected);
  }
  std::vector<std::string> names() const override { return source_.names(); }
  std::string where() const override { return source_.where(); }

 private:
  const TensorSource& source_;
};

}  // namespace foretoken
