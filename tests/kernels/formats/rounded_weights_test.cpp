// Which weights can have rounded inputs, and which of them may share one product.
#include <string>
#include <vector>

#include "kernels/error.h"
#include "kernels/formats/activations/activation_format.h"
#include "tests/kernels/formats/weight_formats.h"

namespace foretoken::test {
namespace {

TEST(RoundedWeights, AreStackedWhereTheyRoundAlike) {
  const Weight w = quantize(Weight::dense(random_tensor({8, 64}, 3)), formats::int8());
  const Weight rows = with_activations(w, formats::int8_rows()), one = with_activations(w, formats::int8_rows(), 0.5f),
               other = with_activations(w, formats::int8_rows(), 0.25f);
  EXPECT_TRUE(stackable(std::vector{rows, rows}));
  EXPECT_TRUE(stackable(std::vector{one, one}));
  EXPECT_FALSE(stackable(std::vector{rows, w}));
  EXPECT_FALSE(stackable(std::vector{one, rows}));
  EXPECT_FALSE(stackable(std::vector{one, other}));
  const Weight both = stacked(std::vector{one, one});
  EXPECT_EQ(both.activations, one.activations);
  EXPECT_EQ(both.input_scale, 0.5f);
  EXPECT_EQ(dequantized(one).activations, nullptr);
}

TEST(RoundedWeights, AreOfOneKindOfNumbers) {
  const Tensor t = random_tensor({8, 64}, 3);
  const auto refused = [&](const Weight& w, const ActivationFormat& format, const char* why) {
    try {
      with_activations(w, format);
      ADD_FAILURE() << why;
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find(why), std::string::npos) << e.what();
    }
  };
  refused(Weight::dense(t), formats::int8_rows(), "its weights are dense");
  refused(quantize(Weight::dense(t), formats::nf4()), formats::int8_rows(), "its weights are nf4");
  refused(quantize(Weight::dense(t), formats::int8()), formats::e4m3_rows(), "its weights are int8");
  Weight w = quantize(Weight::dense(t), formats::int8());
  w.zeros = random_tensor({8, 1}, 4);
  refused(w, formats::int8_rows(), "zero points are no integers");
  w.minima = w.zeros;
  refused(w, formats::int8_rows(), "minima");
}

}  // namespace
}  // namespace foretoken::test
