// The parts of scales in packed matrices: what kernels/cuda/products/codes.cuh computes from them, operation by
// operation, is the definition of a weight. On any machine; packed_gpu_test.cpp has the same on a GPU.
#include "kernels/cuda/products/scale_parts.h"

#include <gtest/gtest.h>

#include "kernels/formats/formats.h"

namespace foretoken::test {
namespace {

float of_bits(std::uint32_t half) { return std::bit_cast<float>(half << 16); }
// One rounding to bf16, subnormal numbers too. The sum is exact in 53 bits here.
float rounded(double x) {
  if (std::abs(x) >= 0x1p-126) return float(rounded_to_bf16(x));
  return float(std::ldexp(std::nearbyint(std::ldexp(x, 133)), -133));
}
float fma_bf16(float a, float b, float c) { return rounded(double(a) * double(b) + double(c)); }

float from_pair(float number, std::uint32_t high, std::uint32_t low) {
  return fma_bf16(number, of_bits(high), fma_bf16(number, of_bits(low), -0.0f));
}
// `places`: 0 or 4 above the last.
float of_int4(ScaleForm form, std::uint32_t word, int code, int places) {
  const std::uint32_t first = word & 0xffff, second = word >> 16;
  float offset = form == ScaleForm::bf16_zero ? of_bits(second) : -0x1p-3f;
  if (form == ScaleForm::pair_zero) offset = fma_bf16(of_bits(second & 31), -0x1p127f, -0.0f);
  const float number = fma_bf16(of_bits(std::uint32_t(code << places)), std::ldexp(1.0f, 127 - places), offset);
  if (form == ScaleForm::bf16_zero) return fma_bf16(number, of_bits(first), -0.0f);
  return from_pair(number, first, form == ScaleForm::pair_zero ? second & 0xffe0 : second);
}
float of_e4m3(ScaleForm form, std::uint32_t word, int code) {
  const float number = of_bits(std::uint32_t((code & 0x80) << 8 | (code & 0x7f) << 4));
  return form == ScaleForm::bf16 ? fma_bf16(number, of_bits(word), -0.0f)
                                 : from_pair(number, word & 0xffff, word >> 16);
}
std::uint32_t word_of(Code code, ScaleForm form, float scale, float zero = 0) {
  return scale_parts(code, form, scale, zero, 0).value()[0];
}

void expect_int4(ScaleForm form, float scale, float zero = 0) {
  const std::uint32_t word = word_of(Code::int4, form, scale, zero);
  for (int code = 0; code < 16; ++code)
    for (const int places : {0, 4})
      ASSERT_EQ(std::bit_cast<std::uint32_t>(of_int4(form, word, code, places)),
                std::bit_cast<std::uint32_t>(weight_of(float(code - 8), {scale, zero})))
          << scale << " * (" << code - 8 << " - " << zero << "), " << places << " places";
}
void expect_e4m3(ScaleForm form, float scale) {
  const std::uint32_t word = word_of(Code::e4m3, form, scale);
  for (int code = 0; code < 256; ++code)
    if (const float number = formats::float_of_e4m3(std::uint8_t(code)); !std::isnan(number)) {
      ASSERT_EQ(std::bit_cast<std::uint32_t>(of_e4m3(form, word, code)),
                std::bit_cast<std::uint32_t>(weight_of(number, {scale})))
          << scale << " * " << number;
    }
}
std::vector<float> finite_f16() {
  std::vector<float> all;
  for (int bits = 0; bits < 1 << 16; ++bits)
    if (const float v = float_from_f16(std::uint16_t(bits)); std::isfinite(v)) all.push_back(v);
  return all;
}

// Subnormal ones, both zeros and negative ones too.
TEST(ScaleParts, EveryFp16ScaleGivesTheWeightsOfInt4) {
  for (const float scale : finite_f16()) {
    ASSERT_NO_FATAL_FAILURE(expect_int4(ScaleForm::pair, scale));
    for (int zero = -8; zero <= 8; ++zero)
      ASSERT_NO_FATAL_FAILURE(expect_int4(ScaleForm::pair_zero, scale, float(zero)));
  }
}
TEST(ScaleParts, EveryFp16ScaleGivesTheWeightsOfFp8) {
  for (const float scale : finite_f16())
    if (std::abs(scale) <= 64) {
      ASSERT_NO_FATAL_FAILURE(expect_e4m3(ScaleForm::pair, scale));
    }
}
// The search checks itself, and scales that differ by a power of two have the same pairs: all mantissas are all scales.
TEST(ScaleParts, EveryF32ScaleHasAPair) {
  for (std::uint32_t mantissa = 0; mantissa < 1u << 23; ++mantissa) {
    const float scale = std::bit_cast<float>(0x3a000000u | mantissa);
    ASSERT_TRUE(pair_of(scale)) << scale;
  }
}
TEST(ScaleParts, F32ScalesGiveTheWeights) {
  for (std::uint32_t mantissa = 0; mantissa < 1u << 23; mantissa += 251)
    for (const std::uint32_t sign : {0u, 1u << 31}) {
      const float scale = std::bit_cast<float>(sign | 0x3a000000u | mantissa);
      ASSERT_NO_FATAL_FAILURE(expect_int4(ScaleForm::pair, scale));
      ASSERT_NO_FATAL_FAILURE(expect_e4m3(ScaleForm::pair, scale));
    }
  for (const float scale : {0x1.23456p-80f, 0x1.fffffep5f, 0x1.000002p-40f, -0x1.55aaccp-60f, 0.0f, -0.0f})
    ASSERT_NO_FATAL_FAILURE(expect_e4m3(ScaleForm::pair, scale));
  for (const float scale : {0x1.23456p-80f, 0x1.fffffep99f, 0x1.000002p-40f, -0x1.55aaccp-60f})
    ASSERT_NO_FATAL_FAILURE(expect_int4(ScaleForm::pair, scale));
  EXPECT_TRUE(std::isnan(of_int4(ScaleForm::pair, word_of(Code::int4, ScaleForm::pair, NAN), 8, 0)));
}
TEST(ScaleParts, Bf16ScalesGiveTheWeights) {
  for (std::uint32_t mantissa = 0; mantissa < 128; ++mantissa)
    for (const int exponent : {-100, -20, 0, 90}) {
      const float scale = std::ldexp(1 + float(mantissa) / 128, exponent);
      for (const int zero : {-120, -9, -8, 0, 3, 7, 120})
        ASSERT_NO_FATAL_FAILURE(expect_int4(ScaleForm::bf16_zero, scale, float(zero)));
      if (exponent <= 0) {
        ASSERT_NO_FATAL_FAILURE(expect_e4m3(ScaleForm::bf16, scale));
      }
    }
}
// Scales of GGUF's K formats: a number of fp16 times one of 6 bits.
TEST(ScaleParts, ScalesAndMinimaOfFewBitsGiveTheWeights) {
  for (int i = 0; i < 20000; ++i) {
    const float scale = float_from_f16(std::uint16_t(0x1000 + i % 0x1fff)) * float(i % 63 + 1) / 64,
                zero = float(i % 17 - 8), minimum = float(i % 101 - 50) * 0x1.23p-9f;
    const ScaleParts parts = scale_parts(Code::int4, ScaleForm::affine, scale, zero, minimum).value();
    const float offset = fma_bf16(of_bits(parts[0] & 31), -0x1p127f, -0.0f);
    for (int code = 0; code < 16; ++code) {
      const float number = fma_bf16(of_bits(std::uint32_t(code)), 0x1p127f, offset),
                  sum = std::fma(std::bit_cast<float>(parts[0] & ~31u), number, std::bit_cast<float>(parts[1]));
      ASSERT_EQ(float(bf16(sum)), weight_of(float(code - 8), {scale, zero, minimum}));
    }
  }
}
// A code of FP4 is its number times 2^-126; where the form is possible, so is every power of two.
TEST(ScaleParts, PowersOfTwoGiveTheWeightsOfFp4) {
  for (int exponent = -100; exponent <= 0; ++exponent)
    for (int code = 0; code < 16; ++code) {
      const float number = of_bits(std::uint32_t((code & 8) << 12 | (code & 7) << 6)),
                  scale = std::ldexp(1.0f, exponent);
      ASSERT_EQ(fma_bf16(number, of_bits(word_of(Code::e2m1, ScaleForm::bf16, scale)), -0.0f),
                weight_of(formats::mxfp4().numbers()[std::size_t(code)], {scale}));
    }
}
// The zero point has the last five bits.
TEST(ScaleParts, OnlyScalesOfFewBitsHaveRoomForAZeroPoint) {
  EXPECT_TRUE(scale_parts(Code::int4, ScaleForm::pair_zero, float_from_f16(0x2345), 3, 0));
  EXPECT_FALSE(scale_parts(Code::int4, ScaleForm::pair_zero, 1.0f / 3, 3, 0));
  EXPECT_FALSE(scale_parts(Code::int4, ScaleForm::pair_zero, 0.5f, 9, 0));
}

// Of experts that are read together.
TEST(ScaleParts, AreTheSameScaleInACommonForm) {
  using enum ScaleForm;
  const auto expect_same = [](ScaleForm from, ScaleForm to, float scale, float zero) {
    const auto [parts, fits] = reformed(Code::int4, from, to, word_of(Code::int4, from, scale, zero));
    ASSERT_TRUE(fits) << scale << ' ' << zero;
    for (int code = 0; code < 16; ++code)
      ASSERT_EQ(of_int4(to, parts, code, 0), weight_of(float(code - 8), {scale, zero})) << scale << ' ' << zero;
  };
  for (std::uint32_t mantissa = 0; mantissa < 128; ++mantissa) {
    const float scale = std::ldexp(1 + float(mantissa) / 128, -9);
    for (const ScaleForm to : {bf16_zero, pair, pair_zero}) ASSERT_NO_FATAL_FAILURE(expect_same(bf16, to, scale, 0));
    ASSERT_NO_FATAL_FAILURE(expect_same(pair, pair_zero, float_from_f16(std::uint16_t(0x2000 + mantissa)), 0));
    for (int zero = -8; zero <= 8; ++zero)
      ASSERT_NO_FATAL_FAILURE(expect_same(bf16_zero, pair_zero, scale, float(zero)));
    const auto [parts, fits] = reformed(Code::e4m3, bf16, pair, word_of(Code::e4m3, bf16, scale));
    ASSERT_TRUE(fits);
    for (int code = 0; code < 0x7f; ++code)
      ASSERT_EQ(of_e4m3(pair, parts, code), weight_of(formats::float_of_e4m3(std::uint8_t(code)), {scale}));
  }
  const auto [parts, fits] = reformed(Code::int8, bf16, f32, word_of(Code::int8, bf16, -0.015625f));
  EXPECT_TRUE(fits);
  EXPECT_EQ(std::bit_cast<float>(parts), -0.015625f);
  EXPECT_FALSE(reformed(Code::int4, bf16_zero, pair_zero, word_of(Code::int4, bf16_zero, 1, 9)).fits);
  EXPECT_FALSE(reformed(Code::int4, pair, pair_zero, word_of(Code::int4, pair, 1.0f / 3)).fits);
}
TEST(ScaleParts, HaveACommonForm) {
  using enum ScaleForm;
  EXPECT_EQ(common_form(bf16, pair), pair);
  EXPECT_EQ(common_form(bf16_zero, bf16), bf16_zero);
  EXPECT_EQ(common_form(bf16_zero, pair), pair_zero);
  EXPECT_EQ(common_form(pair_zero, bf16), pair_zero);
  EXPECT_EQ(common_form(f32, bf16), f32);
  EXPECT_EQ(common_form(f32, pair), f32_all);
  EXPECT_EQ(common_form(f32, f32), f32);
}

// Bits of a word: each code's own, and those of all codes are all of them.
TEST(ScaleParts, CodesShareAWordWithoutGaps) {
  for (const Code code : {Code::int4, Code::int8, Code::e4m3, Code::e2m1, Code::table}) {
    const unsigned all = spread(code, (1u << bits_of(code)) - 1);
    unsigned taken = 0;
    for (int i = 0; i < 16 / bits_of(code); ++i)
      for (const int half : {0, 16}) {
        const unsigned bits = placed(code, all << half, i);
        EXPECT_EQ(std::popcount(bits), bits_of(code));
        EXPECT_EQ(taken & bits, 0u);
        taken |= bits;
      }
    EXPECT_EQ(taken, ~0u);
  }
}

}  // namespace
}  // namespace foretoken::test
