// The error of outputs, against outputs that the reference device computes with the rounded matrix itself.
#include <cmath>

#include <gtest/gtest.h>

#include "experiments/quantize/rounding_error.h"
#include "kernels/formats/activations/activation_format.h"
#include "kernels/host_backend.h"

namespace foretoken::test {
namespace {

Tensor waves(std::int64_t rows, std::int64_t columns, double step) {
  const Tensor t = Tensor::host({rows, columns}, DType::f32);
  for (std::int64_t i = 0; i < t.elements(); ++i) t.data<float>()[i] = float(9 * std::sin(step * double(i * i % 977)));
  return t;
}

TEST(OutputError, IsThatOfOutputsWithRoundedWeightsAndInputs) {
  const auto reference = make_reference_backend(), cpu = make_cpu_backend(1);
  const Tensor x = waves(40, 128, 0.37);
  x.row<float>(3)[5] = 600;  // its row is rounded coarsely
  const Weight dense = Weight::dense(waves(24, 128, 0.11));
  double before = 0;
  for (const char* name : {"int8", "w8a8", "llm_int8", "w4a8"}) {
    const Weight rounded = quantize(dense, *find_precision(name));
    const Tensor want = reference->linear(x, reference->prepare(dense)),
                 got = reference->linear(x, reference->prepare(rounded));
    SquaredError expected;
    for (std::int64_t i = 0; i < want.elements(); ++i) {
      const double y = want.data<float>()[i], d = y - double(got.data<float>()[i]);
      expected += {d * d, y * y};
    }
    for (Backend* device : {static_cast<Backend*>(reference.get()), static_cast<Backend*>(cpu.get())})
      EXPECT_NEAR(output_error(*device, x, dense, rounded).relative() / expected.relative(), 1, 2e-3) << name;
    if (std::string(name) == "w8a8") {
      EXPECT_GT(expected.relative(), 1.3 * before) << "the case tells the rounding of inputs apart";
    }
    before = expected.relative();
  }
}

}  // namespace
}  // namespace foretoken::test
