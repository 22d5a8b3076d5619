// GPTQ against the formula of its paper written out with explicit inverses, and against rounding to nearest.
#include "experiments/quantize/gptq.h"

#include <cmath>
#include <random>

#include <Eigen/Core>
#include <Eigen/LU>
#include <gtest/gtest.h>

#include "tests/support/sentence.h"

namespace foretoken::test {
namespace {

void at_once(std::int64_t n, std::int64_t, const std::function<void(std::int64_t, std::int64_t)>& f) { f(0, n); }
void one_by_one(std::int64_t n, std::int64_t, const std::function<void(std::int64_t, std::int64_t)>& f) {
  for (std::int64_t i = n; i-- > 0;) f(i, i + 1);
}

Tensor random_matrix(std::int64_t rows, std::int64_t columns, int seed) {
  std::mt19937 random(static_cast<unsigned>(seed));
  const Tensor t = Tensor::host({rows, columns}, DType::f32);
  for (float& x : t.values<float>()) x = std::normal_distribution<float>()(random);
  return t;
}

// Inputs that depend on each other: each is mostly the one before.
Tensor inputs_of(std::int64_t rows, std::int64_t in) {
  const Tensor x = random_matrix(rows, in, 5);
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t i = 1; i < in; ++i)
      x.row<float>(r)[i] = 0.9f * x.row<float>(r)[i - 1] + 0.4f * x.row<float>(r)[i];
  return x;
}

// Optimal brain quantization, one weight after another: the change of weight i is taken up by those behind it by the
// inverse of the products among i and them.
std::vector<std::uint8_t> by_inverses(const Weight& dense, const Weight& nearest, const Eigen::MatrixXd& products,
                                      std::int64_t o) {
  const std::int64_t n = dense.in;
  std::vector<double> w(dense.values.row<float>(o), dense.values.row<float>(o) + n);
  std::vector<std::uint8_t> codes(static_cast<std::size_t>(n));
  for (std::int64_t i = 0; i < n; ++i) {
    const GroupScale s{nearest.scales.row<float>(o)[i / nearest.group],
                       nearest.zeros ? nearest.zeros.row<float>(o)[i / nearest.group] : 0, 0};
    const float wanted = float(w[std::size_t(i)]);
    nearest.format->encode({&wanted, 1}, s, &codes[std::size_t(i)]);
    const double change = w[std::size_t(i)] - double(weight_of(nearest.format->numbers()[codes[std::size_t(i)]], s));
    const Eigen::MatrixXd inverse = products.bottomRightCorner(n - i, n - i).inverse();
    for (std::int64_t j = i + 1; j < n; ++j) w[std::size_t(j)] -= change / inverse(0, 0) * inverse(0, j - i);
  }
  return codes;
}

TEST(Gptq, IsTheFormulaOfItsPaper) {
  constexpr std::int64_t kIn = 32, kOut = 7;
  constexpr double kDamping = 0.01;
  const Weight dense = Weight::dense(random_matrix(kOut, kIn, 1));
  const Tensor x = inputs_of(100, kIn);
  InputProducts inputs(kIn);
  inputs.add(x.rows(0, 60)), inputs.add(x.rows(60, 40));
  const Eigen::Map<const Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>> rows(x.data<float>(),
                                                                                                     100, kIn);
  const Eigen::MatrixXd exact = rows.cast<double>().transpose() * rows.cast<double>();
  for (std::int64_t i = 0; i < kIn; ++i)
    for (std::int64_t j = 0; j < kIn; ++j) EXPECT_NEAR(inputs.sums()[std::size_t(i * kIn + j)], exact(i, j), 1e-3);
  Eigen::MatrixXd damped = Eigen::Map<const Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>>(
      inputs.sums().data(), kIn, kIn);
  damped.diagonal().array() += kDamping * damped.diagonal().mean();
  for (const char* name : {"int4", "int4_asymmetric", "nf4", "fp8", "mxfp4", "int8"}) {
    const WeightFormat& format = *find_format(name);
    const Weight nearest = quantize(dense, format), found = gptq(dense, format, inputs, kDamping, at_once);
    for (std::int64_t o = 0; o < kOut; ++o) {
      const std::vector<std::uint8_t> want = by_inverses(dense, nearest, damped, o);
      for (std::int64_t i = 0; i < kIn; ++i)
        ASSERT_EQ(found.values.row<std::uint8_t>(o)[i], want[std::size_t(i)]) << name << " [" << o << ", " << i << "]";
    }
  }
}

TEST(Gptq, ChangesOutputsLessThanRoundingToNearest) {
  const Weight dense = Weight::dense(random_matrix(48, 256, 2));
  InputProducts inputs(256);
  inputs.add(inputs_of(600, 256));
  for (const char* name : {"int4", "int4_asymmetric", "nf4", "mxfp4", "fp8_tensor"}) {
    const WeightFormat& format = *find_format(name);
    const Weight nearest = quantize(dense, format), found = gptq(dense, format, inputs, 0.01, at_once);
    EXPECT_LT(output_error(dense, found, inputs).relative(), 0.7 * output_error(dense, nearest, inputs).relative())
        << name;
    const Weight again = gptq(dense, format, inputs, 0.01, one_by_one);
    EXPECT_TRUE(std::ranges::equal(found.values.values<std::uint8_t>(), again.values.values<std::uint8_t>()));
  }
}

// Inputs that do not depend on each other leave nothing to take up, and no inputs say nothing: rounding to nearest.
TEST(Gptq, OfIndependentInputsIsRoundingToNearest) {
  const Weight dense = Weight::dense(random_matrix(9, 64, 3));
  const WeightFormat& format = *find_format("int4");
  const Tensor identity = Tensor::host({64, 64}, DType::f32);
  std::ranges::fill(identity.values<float>(), 0.0f);
  for (std::int64_t i = 0; i < 64; ++i) identity.row<float>(i)[i] = 1 + float(i);
  InputProducts independent(64), none(64);
  independent.add(identity);
  const Weight nearest = quantize(dense, format);
  for (const InputProducts* inputs : {&independent, &none})
    EXPECT_TRUE(std::ranges::equal(gptq(dense, format, *inputs, 0.01, at_once).values.values<std::uint8_t>(),
                                   nearest.values.values<std::uint8_t>()));
}

TEST(Gptq, MeasuresTheErrorOfOutputs) {
  const Weight dense = Weight::dense(random_matrix(5, 32, 4)), rounded = quantize(dense, *find_format("int4"));
  const Tensor x = inputs_of(40, 32);
  InputProducts inputs(32);
  inputs.add(x);
  double lost = 0, whole = 0;
  std::vector<float> row(32);
  for (std::int64_t o = 0; o < 5; ++o) {
    decode_row(rounded, o, row);
    for (std::int64_t r = 0; r < 40; ++r) {
      double y = 0, y2 = 0;
      for (std::size_t i = 0; i < 32; ++i)
        y += double(x.row<float>(r)[i]) * double(dense.values.row<float>(o)[i]),
            y2 += double(x.row<float>(r)[i]) * double(row[i]);
      lost += (y - y2) * (y - y2), whole += y * y;
    }
  }
  EXPECT_NEAR(output_error(dense, rounded, inputs).relative(), std::sqrt(lost / whole), 1e-5);
}

TEST(Gptq, RefusesInputsThatAreNotFinite) {
  const Weight dense = Weight::dense(random_matrix(5, 32, 4));
  const Tensor x = inputs_of(40, 32);
  x.data<float>()[7] = std::nanf("");
  InputProducts inputs(32);
  inputs.add(x);
  EXPECT_TRUE(says(sentence_of([&] { (void)gptq(dense, *find_format("int4"), inputs, 0.01, at_once); }), "not finite",
                   "another text"));
}

}  // namespace
}  // namespace foretoken::test
