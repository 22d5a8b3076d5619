// 2:4 copies: which numbers stay, and products of widths that are no multiple of eight.
#include "tests/kernels/formats/weight_formats.h"
#include "tests/support/sentence.h"

namespace foretoken::test {
namespace {

Tensor row_of(const std::vector<float>& values) {
  return Tensor::host_copy<float>(values, DType::f32).reshaped({1, std::int64_t(values.size())});
}

std::vector<float> copy_of(const std::vector<float>& values, const std::vector<float>& norms = {}) {
  std::vector<float> row(values.size());
  decode_row(pruned(Weight::dense(row_of(values)), norms), 0, row);
  return row;
}

TEST(Sparse24, KeepsTheTwoGreatestOfFour) {
  EXPECT_EQ(copy_of({1, -3, 2, 0.5f, -4, 0, 0, 3}), (std::vector<float>{0, -3, 2, 0, -4, 0, 0, 3}));
  EXPECT_EQ(copy_of({1, -1, 1, 1}), (std::vector<float>{1, -1, 0, 0})) << "of equal ones the first";
  EXPECT_EQ(copy_of({0, 0, 0, 7}), (std::vector<float>{0, 0, 0, 7}));
  EXPECT_EQ(copy_of({1.00390625f, 0, 0, 1}), (std::vector<float>{1, 0, 0, 1})) << "bf16 numbers";
}

// The bits as published checkpoints have them: the first input is the lowest bit of the first byte.
TEST(Sparse24, HasTheBitsOfPublishedCheckpoints) {
  const Weight w = pruned(Weight::dense(row_of({1, -3, 2, 0.5f, -4, 0, 0, 3, 0, 0, 5, 6})), {});
  EXPECT_EQ(*w.kept.row<std::uint8_t>(0), 0x96);
  EXPECT_EQ(w.kept.row<std::uint8_t>(0)[1], 0x0c);
  std::vector<float> values;
  for (const bf16 v : w.values.values<bf16>()) values.push_back(float(v));
  EXPECT_EQ(values, (std::vector<float>{-3, 2, -4, 3, 5, 6}));
}

TEST(Sparse24, RefusesNormsOfAnotherNumber) {
  const Weight dense = Weight::dense(random_tensor({2, 12}, 1));
  EXPECT_TRUE(says(sentence_of([&] { pruned(dense, std::vector<float>(11, 1.0f)); }), "11 norms", "12 inputs"));
}

// Wanda: |w| times the norm of the input.
TEST(Sparse24, WeighsByTheNormsOfTheInputs) {
  EXPECT_EQ(copy_of({1, -3, 2, 0.5f}, {5, 0, 1, 20}), (std::vector<float>{1, 0, 0, 0.5f}));
  EXPECT_EQ(copy_of({1, -3, 2, 0.5f}, {7, 7, 7, 7}), copy_of({1, -3, 2, 0.5f}));
  EXPECT_TRUE(std::isnan(copy_of({1, -3, kNan, 0.5f}, {5, 1, 0, 20})[2]));
}

// In every combination of places and on every row, against the definition; what is pruned once stays as it is.
TEST(Sparse24, IsItsDefinitionOnRandomRows) {
  const Tensor t = random_tensor({24, 516}, 5);
  const Weight w = quantize(Weight::dense(t), formats::sparse24(), 0, {});
  EXPECT_EQ(w.values.shape(), (Shape{24, 258}));
  EXPECT_EQ(w.kept.shape(), (Shape{24, 65}));
  EXPECT_EQ(w.bytes(), 24 * (258 * 2 + 65));
  const Tensor dense = dequantized(w).values;
  for (int o = 0; o < 24; ++o)
    for (int k = 0; k < 516; ++k) {
      int greater = 0;
      for (int i = k / 4 * 4; i < k / 4 * 4 + 4; ++i)
        greater += std::abs(t.row<float>(o)[i]) > std::abs(t.row<float>(o)[k]);
      ASSERT_EQ(float(dense.row<bf16>(o)[k]), greater < 2 ? float(bf16(t.row<float>(o)[k])) : 0.0f) << o << ", " << k;
    }
  const Weight again = quantize(Weight::dense(dense), formats::sparse24());
  EXPECT_TRUE(std::ranges::equal(again.values.values<bf16>(), w.values.values<bf16>(),
                                 [](bf16 a, bf16 b) { return float(a) == float(b); }));
  EXPECT_TRUE(std::ranges::equal(again.kept.values<std::uint8_t>(), w.kept.values<std::uint8_t>()));
}

TEST(Sparse24, RefusesWidthsThatFourDoesNotDivide) {
  for (const int in : {1, 6, 255})
    EXPECT_TRUE(says(sentence_of([&] { quantize(Weight::dense(random_tensor({2, in}, 1)), formats::sparse24()); }),
                     std::to_string(in) + " inputs", "sparse24", "of each 4 inputs", "choose another format"));
}

// Widths that end within a byte of bits, and beyond a chunk of the CPU's products.
TEST(Sparse24, ProductsOfAnyWidthHaveTheBitsOfTheDenseCopy) {
  for (const int in : {4, 12, 36, 132, 516, 1028}) {
    const Weight w = quantize(Weight::dense(random_tensor({75, in}, unsigned(in))), formats::sparse24());
    for (const int rows : {1, 2, 7, 11, 33, 260}) {
      const Tensor x = random_tensor({rows, in}, unsigned(rows)),
                   expected = make_reference_backend()->linear(x, dequantized(w));
      for (const auto& b : all_host_backends()) {
        const Tensor y = b->linear(x, b->prepare(w));
        ASSERT_TRUE(same_bits(y, b->linear(x, b->prepare(dequantized(w)))))
            << b->description() << ", inputs " << in << ", rows " << rows;
        ASSERT_LT(distance(y, expected), 0.02) << b->description() << ", inputs " << in << ", rows " << rows;
      }
    }
  }
}

// 9 of bf16's 16 bits, in memory and for a product.
TEST(Sparse24, TakesNineSixteenthsOfTheBytes) {
  const Weight w = quantize(Weight::dense(random_tensor({64, 512}, 3)), formats::sparse24());
  for (const std::string& instructions : cpu_instructions())
    EXPECT_EQ(make_cpu_backend(1, instructions)->prepare(w).bytes(), 64 * 512 * 9 / 8) << instructions;
}

TEST(Sparse24, TablesOfAnyWidthAreReadFromIt) {
  const Weight table = quantize(Weight::dense(random_tensor({70, 44}, 3)), formats::sparse24());
  const Tensor tokens = Tensor::host({70}, DType::i32), dense = dequantized(table).values;
  for (int r = 0; r < 70; ++r) tokens.data<std::int32_t>()[r] = 69 - r;
  for (const auto& b : all_host_backends()) {
    const Tensor rows = b->embed(b->prepare(table), tokens);
    for (int r = 0; r < 70; ++r)
      for (int i = 0; i < 44; ++i)
        ASSERT_EQ(rows.row<float>(r)[i], float(dense.row<bf16>(69 - r)[i])) << b->description();
  }
}

}  // namespace
}  // namespace foretoken::test
