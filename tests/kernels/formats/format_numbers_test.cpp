// The numbers of each format.
#include <boost/math/distributions/normal.hpp>

#include "tests/kernels/formats/weight_formats.h"

namespace foretoken::test {
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

// The nearest number; of two, the one with an even code. A greatest magnitude of 6 has the scale 1.
TEST(FormatNumbers, TiesOfMxfp4GoToTheEvenCode) {
  const std::vector<std::pair<float, int>> codes = {
      {0, 0},     {0.25f, 0}, {0.26f, 1}, {0.5f, 1},  {0.74f, 1}, {0.75f, 2}, {1, 2}, {1.25f, 2}, {1.26f, 3},
      {1.74f, 3}, {1.75f, 4}, {2.5f, 4},  {2.51f, 5}, {3.49f, 5}, {3.5f, 6},  {5, 6}, {5.01f, 7}, {6, 7}};
  for (const auto& [x, code] : codes) {
    const Tensor t = Tensor::host({1, 32}, DType::f32);
    for (int i = 0; i < 32; ++i) t.data<float>()[i] = i == 0 ? x : i == 1 ? -x : 6.0f;
    const Weight w = quantize(Weight::dense(t), formats::mxfp4());
    EXPECT_EQ(w.scales.data<float>()[0], 1);
    EXPECT_EQ(int(w.values.data<std::uint8_t>()[0]), code) << x;
    EXPECT_EQ(int(w.values.data<std::uint8_t>()[1]), code + 8) << -x;
  }
}

// The largest of the format's sizes that divides the inputs.
TEST(FormatNumbers, GroupsAreTheLargestThatDivide) {
  const auto size = [](const WeightFormat& format, std::int64_t in) { return format.block(7, in).inputs; };
  for (const WeightFormat* table : {&formats::nf4(), &formats::fp4()}) {
    EXPECT_EQ(size(*table, 192), 64);
    EXPECT_EQ(size(*table, 96), 32);
    EXPECT_EQ(size(*table, 48), 16);
    EXPECT_EQ(size(*table, 40), 0) << "none of them";
  }
  for (const auto& [in, group] : {std::pair(256, 128), {192, 64}, {96, 32}, {48, 16}, {40, 0}})
    EXPECT_EQ(size(formats::int8_group(), in), group);
  EXPECT_EQ(size(formats::int8(), 40), 40);
  EXPECT_EQ(size(formats::mxfp4(), 96), 32);
  EXPECT_EQ(size(formats::mxfp4(), 48), 0);
  EXPECT_EQ(size(formats::fp8_block(), 256), 128);
  EXPECT_EQ(size(formats::fp8_block(), 192), 0);
  EXPECT_EQ(formats::fp8_block().block(7, 256).outputs, 128);
  EXPECT_EQ(formats::fp8().block(7, 40).inputs, 40);
  EXPECT_EQ(formats::fp8_tensor().block(7, 40).outputs, 7);
}

// Min-max rounding: 15 steps from the least to the greatest, and a zero point that is one of -8 ... 7.
TEST(FormatNumbers, OfAsymmetricInt4AreStepsFromTheLeastToTheGreatest) {
  struct Case {
    float low, high, scale, zero;
  };
  for (const Case& c : {Case{-1, 14, 1, -7},
                        {-7.5f, 7.5f, 1, 0},
                        {0, 15, 1, -8},
                        {2, 30, 2, -8},
                        {-30, 0, 2, 7},
                        {-30, -2, 2, 7},
                        {-12, 3, 1, 4}}) {
    const Tensor t = Tensor::host({1, 128}, DType::f32);
    for (int i = 0; i < 128; ++i) t.data<float>()[i] = i % 2 ? c.low : c.high;
    const Weight w = quantize(Weight::dense(t), formats::int4_asymmetric());
    EXPECT_EQ(w.scales.data<float>()[0], c.scale) << c.low << " to " << c.high;
    EXPECT_EQ(w.zeros ? w.zeros.data<float>()[0] : 0, c.zero) << c.low << " to " << c.high;
  }
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

// The nearest numbers of their type.
TEST(FormatNumbers, HaveScalesOfTheTypeThatIsAskedFor) {
  for (const WeightFormat* format : {&formats::int4(), &formats::int4_asymmetric(), &formats::fp8_block()}) {
    const auto scales = [&](DType type) {
      return quantize(Weight::dense(weights(256, 12)), *format, 0, {}, type).scales;
    };
    const Tensor exact = scales(DType::f32), half = scales(DType::f16), bf = scales(DType::bf16);
    for (std::int64_t i = 0; i < exact.elements(); ++i) {
      const float scale = exact.data<float>()[i];
      EXPECT_EQ(bf.data<float>()[i], float(bf16(scale)));
      EXPECT_NEAR(half.data<float>()[i], scale, std::max(scale * 0x1p-11f, 0x1p-25f)) << format->name();
      EXPECT_EQ(
          std::remainder(half.data<float>()[i], scale < 0x1p-14f ? 0x1p-24f : std::ldexp(1.0f, std::ilogb(scale) - 10)),
          0);
    }
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
}  // namespace foretoken::test
