// GPTQ against the formula of its paper written out with explicit inverses, and against rounding to nearest; the sums
// of products and the factor that it needs.
#include "experiments/quantize/gptq.h"

#include <cmath>
#include <random>

#include <Eigen/Cholesky>
#include <Eigen/Core>
#include <Eigen/LU>
#include <gtest/gtest.h>

#include "experiments/quantize/rounding_error.h"
#include "framework/model/convert.h"
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

using Rows = Eigen::Map<const Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>>;

Eigen::MatrixXd exact_sums(const Tensor& x) {
  const Eigen::MatrixXd rows = Rows(x.data<float>(), x.dim(0), x.dim(1)).cast<double>();
  return rows.transpose() * rows;
}

Tensor sums_of(const Tensor& x) {
  const Eigen::MatrixXd exact = exact_sums(x);
  const Tensor sums = Tensor::host({x.dim(1), x.dim(1)}, DType::f32);
  for (std::int64_t i = 0; i < x.dim(1); ++i)
    for (std::int64_t j = 0; j < x.dim(1); ++j) sums.row<float>(i)[j] = i < j ? std::nanf("") : float(exact(i, j));
  return sums;
}

// Optimal brain quantization, one weight after another in an order: the change of a weight is taken up by those behind
// it by the inverse of the products among it and them.
class ByInverses {
 public:
  ByInverses(const Eigen::MatrixXd& products, const std::vector<std::int32_t>& order) : order_(order) {
    const std::int64_t n = products.rows();
    Eigen::MatrixXd ordered(n, n);
    for (std::int64_t i = 0; i < n; ++i)
      for (std::int64_t j = 0; j < n; ++j) ordered(i, j) = products(order[std::size_t(i)], order[std::size_t(j)]);
    for (std::int64_t i = 0; i < n; ++i) {
      const Eigen::MatrixXd inverse = ordered.bottomRightCorner(n - i, n - i).inverse();
      asked_.push_back(inverse.row(0) / inverse(0, 0));
    }
  }

  std::vector<std::uint8_t> codes(const Weight& dense, const Weight& nearest, std::int64_t o) const {
    std::vector<double> w;
    for (const std::int32_t i : order_) w.push_back(double(dense.values.row<float>(o)[i]));
    std::vector<std::uint8_t> codes(w.size());
    for (std::size_t i = 0; i < w.size(); ++i) {
      const std::int64_t g = order_[i] / nearest.group;
      const GroupScale s{nearest.scales.row<float>(o)[g], nearest.zeros ? nearest.zeros.row<float>(o)[g] : 0, 0};
      const float wanted = float(w[i]);
      std::uint8_t& code = codes[std::size_t(order_[i])];
      nearest.format->encode({&wanted, 1}, s, &code);
      const double change = w[i] - double(weight_of(nearest.format->numbers()[code], s));
      for (std::size_t j = i + 1; j < w.size(); ++j) w[j] -= change * asked_[i](std::int64_t(j - i));
    }
    return codes;
  }

 private:
  std::vector<std::int32_t> order_;
  std::vector<Eigen::RowVectorXd> asked_;  // of the columns behind each, by its change
};

class Gptq : public testing::Test {
 protected:
  static constexpr double kDamping = 0.01;
  GptqFactor factor_of(const Tensor& x, bool by_size = false) const { return {*host_, sums_of(x), kDamping, by_size}; }
  Weight rounded(const Weight& dense, const char* format, const GptqFactor& factor) const {
    return gptq(*host_, dense, *find_format(format), factor, at_once);
  }
  double error(const Tensor& x, const Weight& dense, const Weight& w) const {
    return output_error(*host_, x, dense, w).relative();
  }
  std::unique_ptr<Backend> host_ = make_cpu_backend(2);
};

// More columns than are rounded together; in the order of the columns and in that of their sizes.
TEST_F(Gptq, IsTheFormulaOfItsPaper) {
  constexpr std::int64_t kIn = 288, kOut = 7;
  const Weight dense = Weight::dense(random_matrix(kOut, kIn, 1));
  const Tensor x = inputs_of(600, kIn);
  Eigen::MatrixXd damped = exact_sums(x);
  damped.diagonal().array() += kDamping * damped.diagonal().mean();
  for (const bool by_size : {false, true}) {
    const GptqFactor factor = factor_of(x, by_size);
    const ByInverses formula(damped, factor.order());
    for (const char* name : {"int4", "int4_asymmetric", "fp8", "mxfp4", "int8"}) {
      const Weight nearest = quantize(dense, *find_format(name)), found = rounded(dense, name, factor);
      int equal = 0;
      for (std::int64_t o = 0; o < kOut; ++o) {
        const std::vector<std::uint8_t> want = formula.codes(dense, nearest, o);
        for (std::int64_t i = 0; i < kIn; ++i) equal += found.values.row<std::uint8_t>(o)[i] == want[std::size_t(i)];
      }
      EXPECT_EQ(equal, kOut * kIn) << name << (by_size ? " by size" : "");
    }
  }
}

TEST_F(Gptq, TakesLargeInputsFirst) {
  const Tensor x = inputs_of(100, 64);
  for (std::int64_t r = 0; r < 100; ++r) x.row<float>(r)[40] *= 9, x.row<float>(r)[3] *= 5;
  const GptqFactor plain = factor_of(x), ordered = factor_of(x, true);
  EXPECT_EQ(plain.order()[0], 0);
  EXPECT_EQ(ordered.order()[0], 40);
  EXPECT_EQ(ordered.order()[1], 3);
  std::vector<std::int32_t> all = ordered.order();
  std::ranges::sort(all);
  EXPECT_EQ(all, plain.order());
}

TEST_F(Gptq, ChangesOutputsLessThanRoundingToNearest) {
  const Weight dense = Weight::dense(random_matrix(48, 256, 2));
  const Tensor x = inputs_of(600, 256);
  for (std::int64_t r = 0; r < 600; ++r)
    for (std::int64_t i = 0; i < 256; i += 9) x.row<float>(r)[i] *= 4;  // some inputs are large
  const GptqFactor factor = factor_of(x), by_size = factor_of(x, true);
  for (const char* name : {"int4", "int4_asymmetric", "nf4", "mxfp4", "fp8_tensor"}) {
    const Weight nearest = quantize(dense, *find_format(name)), found = rounded(dense, name, factor);
    EXPECT_LT(error(x, dense, found), 0.7 * error(x, dense, nearest)) << name;
    EXPECT_LT(error(x, dense, rounded(dense, name, by_size)), 1.02 * error(x, dense, found)) << name;
    const Weight again = gptq(*host_, dense, *find_format(name), factor, one_by_one);
    EXPECT_TRUE(std::ranges::equal(found.values.values<std::uint8_t>(), again.values.values<std::uint8_t>()));
  }
}

// Inputs that do not depend on each other leave nothing to take up, and no inputs say nothing: rounding to nearest.
TEST_F(Gptq, OfIndependentInputsIsRoundingToNearest) {
  const Weight dense = Weight::dense(random_matrix(9, 64, 3));
  const Tensor none = Tensor::host({64, 64}, DType::f32), independent = Tensor::host({64, 64}, DType::f32);
  for (const Tensor& t : {none, independent}) std::ranges::fill(t.values<float>(), 0.0f);
  for (std::int64_t i = 0; i < 64; ++i) independent.row<float>(i)[i] = 1 + float(i);
  const Weight nearest = quantize(dense, *find_format("int4"));
  for (const Tensor& x : {independent, none})
    EXPECT_TRUE(std::ranges::equal(rounded(dense, "int4", factor_of(x)).values.values<std::uint8_t>(),
                                   nearest.values.values<std::uint8_t>()));
}

TEST_F(Gptq, MeasuresTheErrorOfOutputs) {
  const Weight dense = Weight::dense(random_matrix(5, 32, 4)), w = quantize(dense, *find_format("int4"));
  const Tensor x = inputs_of(40, 32);
  double lost = 0, whole = 0;
  std::vector<float> row(32);
  for (std::int64_t o = 0; o < 5; ++o) {
    decode_row(w, o, row);
    for (std::int64_t r = 0; r < 40; ++r) {
      double y = 0, y2 = 0;
      for (std::size_t i = 0; i < 32; ++i)
        y += double(x.row<float>(r)[i]) * double(dense.values.row<float>(o)[i]),
            y2 += double(x.row<float>(r)[i]) * double(row[i]);
      lost += (y - y2) * (y - y2), whole += y * y;
    }
  }
  EXPECT_NEAR(error(x, dense, w), std::sqrt(lost / whole), 1e-5);
}

TEST_F(Gptq, RefusesInputsThatAreNotFinite) {
  const Tensor x = inputs_of(40, 32);
  x.data<float>()[7] = std::nanf("");
  EXPECT_TRUE(says(sentence_of([&] { (void)factor_of(x); }), "not finite", "another text"));
}

// Several panels, more rows than are multiplied together, in pieces; f32 to the rounding of f32 sums, and bf16 of the
// rounded inputs.
TEST(InputProducts, AreTheSumsOfProducts) {
  const auto device = make_cpu_backend(2);
  const Tensor x = inputs_of(1500, 1100);
  for (const DType type : {DType::f32, DType::bf16}) {
    const Eigen::MatrixXd want = exact_sums(converted(converted(x, type), DType::f32));
    InputProducts inputs(*device, 1100, type);
    inputs.add(x.rows(0, 60)), inputs.add(x.rows(60, 1440));
    const Tensor sums = inputs.sums();
    double worst = 0;
    for (std::int64_t i = 0; i < 1100; ++i)
      for (std::int64_t j = 0; j <= i; ++j)
        worst = std::max(worst, std::abs(double(sums.row<float>(i)[j]) - want(i, j)));
    EXPECT_LT(worst, 1e-5 * want.diagonal().maxCoeff()) << (type == DType::f32 ? "f32" : "bf16");
  }
}

// Several blocks, the last one partial.
TEST(Cholesky, IsTheFactor) {
  const auto host = make_cpu_backend(2);
  const Tensor a = sums_of(inputs_of(900, 600));
  for (int i = 0; i < 600; ++i) a.row<float>(i)[i] += 5;
  Eigen::MatrixXd whole = exact_sums(inputs_of(900, 600));
  whole.diagonal().array() += 5;
  ASSERT_TRUE(factorize(*host, a));
  const Eigen::MatrixXd want = whole.llt().matrixL();
  double worst = 0;
  for (std::int64_t i = 0; i < 600; ++i)
    for (std::int64_t j = 0; j <= i; ++j) worst = std::max(worst, std::abs(double(a.row<float>(i)[j]) - want(i, j)));
  EXPECT_LT(worst, 1e-4 * want.diagonal().maxCoeff());
  const Tensor indefinite = sums_of(inputs_of(900, 600));
  indefinite.row<float>(400)[400] = -1;
  EXPECT_FALSE(factorize(*host, indefinite));
}

// Evenly spread, from pieces of any length.
TEST(RowSample, IsSpreadOverTheText) {
  RowSample some(2, 100, 10), all(2, 5, 10);
  const Tensor x = Tensor::host({100, 2}, DType::f32);
  for (int r = 0; r < 100; ++r) x.row<float>(r)[0] = x.row<float>(r)[1] = float(r);
  some.add(x.rows(0, 33)), some.add(x.rows(33, 67)), all.add(x.rows(0, 5));
  ASSERT_EQ(some.rows().dim(0), 10);
  for (int r = 0; r < 10; ++r) EXPECT_EQ(some.rows().row<float>(r)[1], float(10 * r + 9));
  EXPECT_EQ(all.rows().dim(0), 5);
}

}  // namespace
}  // namespace foretoken::test
