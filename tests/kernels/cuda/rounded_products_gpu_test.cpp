// Products with rounded inputs: the bits of the reference where sums are integers, FP8 within its tolerance; no row
// depends on another; every route rounds alike.
#include <gtest/gtest.h>

#include "kernels/formats/activations/activation_format.h"
#include "tests/kernels/cuda/cuda_scenario.h"

namespace foretoken::testing {
namespace {

class CudaRoundedProducts : public Cuda {
 protected:
  Weight weight(const Precision& p, std::int64_t out, std::int64_t in, unsigned seed) const {
    return quantize(Weight::dense(random_tensor({out, in}, seed)), p);
  }
};

std::vector<Precision> rounded_precisions() {
  std::vector<Precision> some;
  for (const Precision& p : precisions())
    if (p.activations) some.push_back(p);
  return some;
}

Tensor inputs(std::int64_t rows, std::int64_t in) {
  const Tensor x = random_tensor({rows, in}, unsigned(rows));
  for (std::int64_t i = 0; i < in; ++i) x.row<float>(0)[i] *= i % 7 == 3 ? 20.0f : 1.0f;  // outliers
  if (rows > 2) std::fill_n(x.row<float>(1), in, 0.0f), x.row<float>(2)[5] = std::numeric_limits<float>::quiet_NaN();
  return x;
}

TEST_P(CudaRoundedProducts, have_the_bits_of_the_reference) {
  for (const Precision& p : rounded_precisions())
    for (const int in : {256, 208}) {
      Weight w = weight(p, 71, in, 3);
      w.bias = random_tensor({71}, 6);
      if (in == 208) {
        w.order = Tensor::host({in}, DType::i32);
        for (int j = 0; j < in; ++j) w.order.data<std::int32_t>()[j] = (37 * j + 5) % in;
      }
      const Weight on_device = cuda->prepare(w);
      for (const int rows : {1, 3, 40}) {
        const Tensor x = inputs(rows, in), y = down(cuda->linear(up(x), on_device)), wanted = reference.linear(x, w);
        for (int r = 0; r < rows; ++r) {
          const bool nan = rows > 2 && r == 2;
          for (int o = 0; o < 71; ++o) {
            const float got = y.row<float>(r)[o], want = wanted.row<float>(r)[o];
            if (nan)
              ASSERT_TRUE(std::isnan(got) && std::isnan(want)) << p.name;
            else if (p.activations->coding() == Coding::integers)
              ASSERT_EQ(got, want) << p.name << ", in " << in << ", row " << r << ", output " << o;
            else
              ASSERT_NEAR(got, want, std::abs(want) * 0x1p-20 + 0x1p-16 * 40 * in) << p.name;  // terms are below 40
          }
        }
      }
    }
}

TEST_P(CudaRoundedProducts, rows_do_not_depend_on_each_other) {
  for (const Precision& p : rounded_precisions()) {
    const Weight w = cuda->prepare(weight(p, 70, 256, 3));
    const Tensor x = inputs(33, 256), all = down(cuda->linear(up(x), w));
    for (int r = 3; r < 33; ++r)
      EXPECT_TRUE(same_row(all, r, down(cuda->linear(up(x.rows(r, 1)), w)), 0)) << p.name << ", row " << r;
  }
}

TEST_P(CudaRoundedProducts, every_route_rounds_alike) {
  for (const Precision& p : rounded_precisions()) {
    const Weight first = cuda->prepare(weight(p, 2 * 128, 256, 3)), second = cuda->prepare(weight(p, 256, 128, 4));
    const Tensor x = up(random_tensor({9, 256}, 5)), gain = up(random_tensor({256}, 6)),
                 h = up(random_tensor({9, 128}, 7));
    const auto copy = [&] {
      Tensor y = cuda->allocate(x.shape(), DType::f32);
      cuda->copy(x, y);
      return y;
    };
    const Tensor normed = cuda->linear(cuda->rms_norm(x, gain, 1e-5f), first);
    EXPECT_TRUE(same_bits(down(cuda->norm_linear(x, gain, 1e-5f, first)), down(normed))) << p.name;
    Tensor added = copy(), sum = copy(), whole = copy(), parts = copy();
    cuda->linear_add(added, h, second), cuda->add(sum, cuda->linear(h, second));
    EXPECT_TRUE(same_bits(down(added), down(sum))) << p.name;
    cuda->feed_forward(whole, gain, 1e-5f, first, second);
    cuda->add(parts, cuda->linear(cuda->silu_mul(normed), second));
    EXPECT_TRUE(same_bits(down(whole), down(parts))) << p.name;
  }
}

INSTANTIATE_TEST_SUITE_P(Numerics, CudaRoundedProducts, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "invariant" : "fast"; });

}  // namespace
}  // namespace foretoken::testing
