// The numbers of each format.
#include <boost/math/distributions/normal.hpp>

#include "tests/kernels/formats/weight_formats.h"

namespace foretoken::testing {
namespace {

// QLoRA (arXiv 2305.14314), appendix E: quantiles of a normal distribution, half of them on each side of 0, the outer
// ones where a sixteenth and a fifteenth of the mass is left, halved and averaged; divided by the greatest.
TEST(FormatNumbers, OfNf4AreQuantilesOfANormalDistribution) {
  const boost::math::normal normal;
  constexpr double kOffset = 0.5 * (31.0 / 32 + 29.0 / 30);
  std::vector<double> expected{0};
  for (int i = 0; i < 8; ++i) expected.push_back(quantile(normal, kOffset + (0.5 - kOffset) * i / 8));
  for (int i = 0; i < 7; ++i) expected.push_back(-quantile(normal, kOffset + (0.5 - kOffset) * i / 7));
  std::ranges::sort(expected);
  const std::span<const float> numbers = formats::nf4().numbers();
  ASSERT_EQ(expected.size(), numbers.size());
  for (std::size_t c = 0; c < numbers.size(); ++c) EXPECT_NEAR(numbers[c], expected[c] / expected.back(), 1e-6) << c;
}

TEST(FormatNumbers, OfFp4AreTwelfths) {
  const std::vector<float> numbers = weights_of(formats::fp4(), {12});
  const float magnitudes[] = {0, 0.0625f, 8, 12, 4, 6, 2, 3};
  for (std::size_t c = 0; c < 16; ++c) EXPECT_EQ(std::abs(numbers[c]), magnitudes[c % 8]) << c;
  for (std::size_t c = 1; c < 8; ++c) EXPECT_TRUE(numbers[c] > 0 && numbers[c + 8] < 0) << c;
}

TEST(FormatNumbers, OfMxfp4AreE2m1) {
  const float magnitudes[] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
  const std::vector<float> numbers = weights_of(formats::mxfp4(), {1});
  for (std::size_t c = 0; c < 16; ++c) EXPECT_EQ(numbers[c], c < 8 ? magnitudes[c] : -magnitudes[c - 8]) << c;
}

TEST(FormatNumbers, ScalesOfMxfp4PutTheGreatestBetween4And8) {
  for (const float greatest : {0.001f, 0.7f, 1.0f, 3.99f, 4.0f, 7.5f, 1000.0f}) {
    const Tensor t = Tensor::host({1, 32}, DType::f32);
    for (int i = 0; i < 32; ++i) t.data<float>()[i] = i == 5 ? -greatest : greatest / 9;
    const float scale = quantize(Weight::dense(t), formats::mxfp4()).scales.data<float>()[0];
    EXPECT_EQ(std::ldexp(1.0f, std::ilogb(scale)), scale) << "a power of two";
    EXPECT_TRUE(greatest / scale >= 4 && greatest / scale < 8) << greatest << ", " << scale;
  }
}

// All 256 codes; all f32 numbers that are in the middle of two neighbours, or beside it.
TEST(FormatNumbers, OfFp8AreE4m3AndTiesGoToTheEvenCode) {
  EXPECT_EQ(formats::float_of_e4m3(0x7e), 448);
  EXPECT_EQ(formats::float_of_e4m3(0x01), 0x1p-9f);
  EXPECT_EQ(formats::float_of_e4m3(0x08), 0x1p-6f);
  EXPECT_EQ(formats::float_of_e4m3(0x38), 1);
  EXPECT_TRUE(std::isnan(formats::float_of_e4m3(0x7f)) && std::isnan(formats::float_of_e4m3(0xff)));
  for (int c = 0; c < 0x7f; ++c) {
    const float low = formats::float_of_e4m3(std::uint8_t(c));
    EXPECT_EQ(formats::e4m3_of(low), c);
    EXPECT_EQ(formats::e4m3_of(-low), c | 0x80);
    if (c == 0x7e) break;
    const float high = formats::float_of_e4m3(std::uint8_t(c + 1)), middle = (low + high) / 2;
    ASSERT_LT(low, high);
    EXPECT_EQ(formats::e4m3_of(middle), c % 2 == 0 ? c : c + 1) << middle;
    EXPECT_EQ(formats::e4m3_of(std::nextafter(middle, 0.0f)), c);
    EXPECT_EQ(formats::e4m3_of(std::nextafter(middle, 1000.0f)), c + 1);
  }
  EXPECT_EQ(formats::e4m3_of(1e9f), 0x7e);
  EXPECT_EQ(formats::e4m3_of(-1e9f), 0xfe);
  EXPECT_EQ(formats::e4m3_of(kNan) & 0x7f, 0x7f);
}

// The zero point is one of the integers, so that 0 is exactly 0.
TEST(FormatNumbers, OfInt4HaveAWholeZeroPoint) {
  const Weight w = quantize(Weight::dense(weights(256, 11)), formats::int4_asymmetric());
  EXPECT_EQ(w.group, 128);
  for (const float zero : w.zeros.values<float>()) EXPECT_TRUE(zero == std::round(zero) && zero >= -8 && zero <= 7);
  EXPECT_EQ(quantize(Weight::dense(weights(192, 11)), formats::int4()).group, 64);
  EXPECT_EQ(quantize(Weight::dense(weights(96, 11)), formats::int4()).group, 32);
}

TEST(FormatNumbers, OfIntegersHaveScalesOfBf16) {
  for (const WeightFormat* format : weight_formats()) {
    if (format->coding() != Coding::integers) continue;
    const Weight w = quantize(Weight::dense(weights(256, 12)), *format);
    for (const float scale : w.scales.values<float>()) EXPECT_EQ(float(bf16(scale)), scale) << format->name();
    for (int c = 0; c < 1 << format->bits(); ++c)
      EXPECT_EQ(format->numbers()[std::size_t(c)], float(c - (1 << (format->bits() - 1))));
  }
}

// scale * (number - zero) - minimum, each operation rounded to f32, then to bf16.
TEST(FormatNumbers, AreRoundedOperationByOperation) {
  const float scale = 1.0f / 3, minimum = 0.7f;
  for (const float number : formats::int6().numbers()) {
    const volatile float difference = number - -3.0f, product = scale * difference, value = product - minimum;
    EXPECT_EQ(weight_of(number, {scale, -3, minimum}), float(bf16(value)));
  }
}

}  // namespace
}  // namespace foretoken::testing
