// Conversions by all cores give the same bits as a conversion of each number.
#include "framework/model/convert.h"

#include <cstring>
#include <random>

#include <gtest/gtest.h>

#include "framework/model/in_parallel.h"
#include "kernels/formats/formats.h"
#include "tests/support/sentence.h"

namespace foretoken::test {
namespace {

constexpr std::int64_t kMany = (3 << 20) + 7;  // elements: several threads take part

// Every pattern of bits, NaN and infinities among them.
Tensor noise(Shape shape, DType type) {
  const Tensor t = Tensor::host(shape, type);
  std::mt19937_64 random(5);
  auto* bytes = t.data<std::uint8_t>();
  for (std::int64_t i = 0; i < t.bytes(); ++i) bytes[i] = std::uint8_t(random());
  return t;
}

float number(const Tensor& t, std::int64_t i) {
  if (t.dtype() == DType::f32) return t.data<float>()[i];
  return t.dtype() == DType::bf16 ? float(t.data<bf16>()[i]) : float_from_f16(t.data<std::uint16_t>()[i]);
}

bool same_bits(const Tensor& a, const Tensor& b) {
  return a.shape() == b.shape() && a.dtype() == b.dtype() && std::memcmp(a.raw(), b.raw(), std::size_t(a.bytes())) == 0;
}

TEST(Convert, GivesTheSameBitsAsOfEachNumber) {
  for (const DType from : {DType::f32, DType::bf16, DType::f16})
    for (const DType to : {DType::f32, DType::bf16}) {
      const Tensor t = noise({kMany}, from), have = converted(t, to);
      if (from == to) {
        EXPECT_EQ(have.raw(), t.raw());
        continue;
      }
      const Tensor want = Tensor::host({kMany}, to);
      for (std::int64_t i = 0; i < kMany; ++i) {
        if (to == DType::f32)
          want.data<float>()[i] = number(t, i);
        else
          want.data<bf16>()[i] = bf16(number(t, i));
      }
      EXPECT_TRUE(same_bits(have, want)) << name_of(from) << " to " << name_of(to);
    }
}

TEST(Convert, CopiesIntoRowsOfALargerTensor) {
  const Tensor part = noise({1000, 1100}, DType::bf16), all = Tensor::host({2000, 1100}, DType::bf16);
  convert(part, all.rows(1000, 1000));
  EXPECT_TRUE(same_bits(all.rows(1000, 1000), part));
}

TEST(Convert, RefusesTypesThatAreNoWeights) {
  EXPECT_TRUE(says(sentence_of([] { converted(Tensor::host({4}, DType::i8), DType::f32); }),
                   "weights of type I8 are not supported; convert the checkpoint to F32, F16 or BF16"));
}

// So does quantization, which is divided by outputs.
TEST(Convert, QuantizationByAllCoresGivesTheSameBitsAsOfEachOutput) {
  int calls = 0;
  for (const DType type : {DType::f32, DType::bf16, DType::f16}) {
    const Weight dense = Weight::dense(noise({2000, 1024}, type));
    const Weight serial = quantize(dense, formats::int4_asymmetric(), 64);
    const Weight parallel =
        quantize(dense, formats::int4_asymmetric(), 64, [&](std::int64_t n, std::int64_t work, const auto& f) {
          EXPECT_EQ(n, 2000);
          EXPECT_EQ(work, 1024);
          ++calls;
          in_parallel(n, work, f);
        });
    EXPECT_TRUE(same_bits(parallel.values, serial.values));
    EXPECT_TRUE(same_bits(parallel.scales, serial.scales));
    EXPECT_TRUE(same_bits(parallel.zeros, serial.zeros));
  }
  EXPECT_EQ(calls, 2 * 3) << "the scales, then the codes";
}

}  // namespace
}  // namespace foretoken::test
