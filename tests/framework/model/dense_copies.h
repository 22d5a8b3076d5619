// A source of a model's tensors whose matrices are those of another one, rounded to a format and dequantized.
#pragma once
#include <string>
#include <vector>

#include "framework/model/tensor_source.h"
#include "kernels/formats/format.h"

namespace foretoken::test {

class DenseCopies : public TensorSource {
 public:
  DenseCopies(const TensorSource& inner, const WeightFormat& format) : inner_(inner), format_(format) {}
  Tensor tensor(const std::string& name, const Shape& expected) const override {
    const Tensor stored = inner_.tensor(name, expected);
    return expected.rank() == 2 ? dequantized(quantize(Weight::dense(stored), format_)).values : stored;
  }
  std::vector<std::string> names() const override { return inner_.names(); }
  std::string where() const override { return inner_.where(); }

 private:
  const TensorSource& inner_;
  const WeightFormat& format_;
};

}  // namespace foretoken::test
