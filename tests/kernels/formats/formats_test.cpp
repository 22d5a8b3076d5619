// Weight formats: how a dense matrix is rounded, and how quantized ones are stacked.
#include "tests/kernels/formats/weight_formats.h"
#include "tests/support/sentence.h"

namespace foretoken::test {
namespace {

class CodedFormats : public Formats {};

TEST_P(Formats, are_found_by_their_names) {
  EXPECT_EQ(find_format(format.name()), &format);
  EXPECT_EQ(find_format(format.name() + "x"), nullptr);
  EXPECT_EQ(format.numbers().size(), format.coding() == Coding::sparse ? 0 : std::size_t(1) << format.bits());
}

// Before its rounding to bf16, no other code of the group is nearer than the chosen one.
TEST_P(CodedFormats, round_to_the_nearest_number) {
  const Weight w = quantize(Weight::dense(weights(256, 7)), format);
  const Tensor t = weights(256, 7);
  for (int o = 0; o < 9; ++o) {
    for (int i = 0; i < 256; ++i) {
      const std::int64_t g = i / w.group;
      const double x = t.row<float>(o)[i], scale = w.scales.row<float>(o)[g];
      const auto distance = [&](float number) {
        return std::abs(scale * (double(number) - (w.zeros ? w.zeros.row<float>(o)[g] : 0)) - x);
      };
      double nearest = kInfinity;
      for (const float number : format.numbers())
        if (!std::isnan(number)) nearest = std::min(nearest, distance(number));
      ASSERT_LE(distance(format.numbers()[w.values.row<std::uint8_t>(o)[i]]), nearest * (1 + 1e-5) + 1e-6 * std::abs(x))
          << format.name() << ", output " << o << ", input " << i << ": " << x;
    }
  }
}

TEST_P(Formats, numbers_are_bf16) {
  const Weight w = quantize(Weight::dense(weights(128, 8)), format);
  const Tensor back = dequantized(w).values;
  std::vector<float> row(128);
  for (int o = 0; o < 9; ++o) {
    decode_row(w, o, row);
    for (int i = 0; i < 128; ++i) ASSERT_EQ(float(back.row<bf16>(o)[i]), row[std::size_t(i)]);
  }
}

TEST_P(Formats, zeros_stay_zeros_and_signs_stay) {
  const Tensor t = weights(128, 9);
  const Tensor back = dequantized(quantize(Weight::dense(t), format)).values;
  for (int i = 0; i < 128; ++i) {
    EXPECT_EQ(float(back.row<bf16>(4)[i]), 0.0f);
    EXPECT_GE(float(back.row<bf16>(5)[i]), 0.0f);
    EXPECT_LE(float(back.row<bf16>(6)[i]), 0.0f);
  }
}

// A group with NaN or infinity must not become ordinary numbers.
TEST_P(Formats, do_not_hide_what_is_no_number) {
  for (const float bad : {kNan, kInfinity, -kInfinity})
    for (const int at : {0, 31, 32, 127}) {
      const Tensor t = weights(128, 10);
      t.row<float>(0)[at] = bad;
      const Tensor back = dequantized(quantize(Weight::dense(t), format)).values;
      EXPECT_FALSE(std::isfinite(float(back.row<bf16>(0)[at]))) << bad << " at " << at;
    }
}

// A scale that several outputs share is no number where one of them has none, whichever it is.
TEST_P(CodedFormats, do_not_hide_what_is_no_number_in_any_row_of_a_block) {
  const Block block = format.block(130, 128);
  for (const int row : {0, 1, 64, 127, 128, 129}) {
    const Tensor t = random_tensor({130, 128}, 10);
    t.row<float>(row)[5] = kNan;
    const Weight w = quantize(Weight::dense(t), format);
    for (int o = 0; o < 130; ++o)
      EXPECT_EQ(std::isnan(w.scales.row<float>(o)[0]), o / block.outputs == row / block.outputs) << row << ", " << o;
  }
}

TEST_P(Formats, of_tiny_numbers_stay_finite_and_small) {
  for (const float size : {1e-44f, 1e-40f, 1e-37f, 1e-35f}) {
    const Tensor t = Tensor::host({1, 128}, DType::f32);
    for (int i = 0; i < 128; ++i) t.data<float>()[i] = i % 3 == 0 ? size : i % 3 == 1 ? -size : 0;
    const Tensor back = dequantized(quantize(Weight::dense(t), format)).values;
    for (int i = 0; i < 128; ++i) EXPECT_LE(std::abs(float(back.row<bf16>(0)[i])), 1.1f * size + 3e-36f);
  }
}

TEST_P(Formats, groups_that_do_not_divide_are_refused) {
  EXPECT_TRUE(test::says(test::sentence_of([&] { quantize(Weight::dense(random_tensor({2, 10}, 1)), format, 3); }),
                         "10 inputs does not divide into groups of 3", format.name()));
  if (format.block(2, 10).inputs == 0) {
    EXPECT_TRUE(test::says(test::sentence_of([&] { quantize(Weight::dense(random_tensor({2, 10}, 1)), format); }),
                           "choose another format"));
  }
}

// A scale of several outputs is that of the greatest among them.
TEST_P(CodedFormats, blocks_share_their_scale) {
  const Weight w = quantize(Weight::dense(random_tensor({200, 256}, 5)), format);
  const Block block = format.block(200, 256);
  for (std::int64_t o = 0; o < 200; ++o)
    for (std::int64_t g = 0; g < 256 / w.group; ++g) {
      const float first = w.scales.row<float>(o / block.outputs * block.outputs)[g];
      ASSERT_EQ(w.scales.row<float>(o)[g], first) << o << ", " << g;
      const bool within = g * w.group % block.inputs != 0;
      ASSERT_TRUE(!within || first == w.scales.row<float>(o)[g - 1]) << o << ", " << g;
    }
}

TEST_P(Formats, stack) {
  const Weight a = quantize(Weight::dense(random_tensor({5, 128}, 1)), format),
               b = quantize(Weight::dense(random_tensor({7, 128}, 2)), format);
  ASSERT_TRUE(stackable(std::vector{a, b}));
  const Weight all = stacked(std::vector{a, b});
  std::vector<float> row(128), part(128);
  for (int o = 0; o < 12; ++o) {
    decode_row(all, o, row);
    decode_row(o < 5 ? a : b, o < 5 ? o : o - 5, part);
    EXPECT_EQ(row, part) << o;
  }
  Weight moved = b;
  moved.order = Tensor::host({128}, DType::i32);
  for (int j = 0; j < 128; ++j) moved.order.data<std::int32_t>()[j] = j;
  EXPECT_FALSE(stackable(std::vector{a, moved}));
  EXPECT_FALSE(stackable(std::vector{a, dequantized(b)}));
}

INSTANTIATE_TEST_SUITE_P(All, Formats, ::testing::ValuesIn(weight_formats()), name_of_format);
INSTANTIATE_TEST_SUITE_P(All, CodedFormats, ::testing::ValuesIn(coded_formats()), name_of_format);

}  // namespace
}  // namespace foretoken::test
