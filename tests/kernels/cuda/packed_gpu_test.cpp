// Packed matrices on a GPU: the bits of the dense copy, by every route and number of rows.
#include <cstring>
#include <numeric>

#include "tests/kernels/cuda/cuda_scenario.h"
#include "tests/kernels/formats/weight_formats.h"

namespace foretoken::test {
namespace {

class PackedProducts : public Formats {
 protected:
  std::unique_ptr<Backend> cuda = make_gpu({.device = 0, .invariant = true});

  Tensor down(const Tensor& t) { return on_host(*cuda, t); }
  Tensor up(const Tensor& t) { return cuda->upload(t); }

  // linear, linear_add and, for several rows or one, norm_linear.
  void expect_the_dense_bits(const Weight& w, const std::string& what) {
    const Weight packed = cuda->prepare(w), dense = cuda->prepare(dequantized(w));
    const Tensor gain = up(random_tensor({w.in}, 7));
    EXPECT_EQ(cuda->activation_type(packed), DType::bf16) << what;
    for (const int n : {1, 2, 5, 8, 9, 16, 17, 32, 40, 64, 65, 70, 130, 257}) {
      const std::string where = what + ", rows " + std::to_string(n);
      const Tensor x = up(random_tensor({n, w.in}, unsigned(n))), y = random_tensor({n, w.out}, unsigned(n) + 1);
      ASSERT_TRUE(same_bits(down(cuda->linear(x, packed)), down(cuda->linear(x, dense)))) << where;
      const Tensor of_packed = up(y), of_dense = up(y);
      cuda->linear_add(of_packed, x, packed), cuda->linear_add(of_dense, x, dense);
      ASSERT_TRUE(same_bits(down(of_packed), down(of_dense))) << where;
      ASSERT_TRUE(
          same_bits(down(cuda->norm_linear(x, gain, 1e-5f, packed)), down(cuda->norm_linear(x, gain, 1e-5f, dense))))
          << where;
    }
  }
};

// Shapes with one and several split-K slices; a last tile that is not full.
TEST_P(PackedProducts, have_the_bits_of_the_dense_copy) {
  const std::pair<int, int> shapes[] = {{512, 4096}, {41, 256},    {4104, 1024}, {100, 2048},
                                        {96, 128},   {136, 14336}, {20000, 128}};
  for (const auto& [out, in] : shapes) {
    Weight w = quantize(Weight::dense(random_tensor({out, in}, 3)), format);
    if (out % 2 == 0) w.bias = random_tensor({out}, 6);
    expect_the_dense_bits(w, Shape{out, in}.text());
  }
}

class PackedCodes : public PackedProducts {};

TEST_P(PackedCodes, codes_of_files_have_the_bits_of_the_dense_copy) {
  for (const int group : {512, 128, 64, 32, 16, 8})
    for (const DType scales : {DType::f32, DType::bf16, DType::f16})
      for (const int parts : {0, 1, 2, 3})
        expect_the_dense_bits(stored_weight(format, {72, 512}, group, scales, parts & 1, parts & 2),
                              "groups of " + std::to_string(group) + ", scales " + name_of(scales) +
                                  ", zeros and minima " + std::to_string(parts));
}

TEST_P(PackedProducts, feed_forward_has_the_bits_of_the_dense_copy) {
  for (const auto& [wide, in] : {std::pair(96, 256), {1024, 4096}, {7168, 512}}) {
    const Weight gate_up = quantize(Weight::dense(random_tensor({2 * wide, in}, 3, 0.1f)), format),
                 below = quantize(Weight::dense(random_tensor({in, wide}, 4, 0.1f)), format, 32);
    const Tensor gain = up(random_tensor({in}, 7));
    const auto run = [&](const Tensor& x, const Weight& first, const Weight& second) {
      const Tensor y = up(x);
      cuda->feed_forward(y, gain, 1e-5f, first, second);
      return down(y);
    };
    const Weight packed[] = {cuda->prepare(gate_up), cuda->prepare(below)},
                 dense[] = {cuda->prepare(dequantized(gate_up)), cuda->prepare(dequantized(below))};
    for (const int n : {1, 3, 8, 11, 16, 17, 33, 64, 65, 130, 300}) {
      const Tensor x = random_tensor({n, in}, unsigned(n));
      ASSERT_TRUE(same_bits(run(x, packed[0], packed[1]), run(x, dense[0], dense[1])))
          << Shape{wide, in}.text() << ", rows " << n;
    }
  }
}

// More tiles than blocks, of 128 and of 256 rows; slices that a block adds one after another, and slices that are
// computed apart; row counts at the borders of tiles, and outputs that end within a tile or leave a block without any.
TEST_P(PackedProducts, of_many_rows_have_the_bits_of_the_dense_copy) {
  struct Case {
    int out, in;
    std::vector<int> rows;
  };
  const Case cases[] = {{16512, 256, {127, 128, 129, 250, 256, 511}},  // one slice
                        {4104, 1024, {128, 192, 256, 385}},            // two
                        {4104, 2048, {192, 300}},                      // four
                        {1924, 2048, {65, 255, 512, 1030}},
                        {260, 4096, {96, 300}}};  // eight
  for (const auto& [out, in, counts] : cases) {
    Weight w = quantize(Weight::dense(random_tensor({out, in}, 3)), format);
    w.bias = random_tensor({out}, 6);
    const Weight packed = cuda->prepare(w), dense = cuda->prepare(dequantized(w));
    const Tensor gain = up(random_tensor({in}, 7));
    for (const int n : counts) {
      const std::string where = Shape{out, in}.text() + ", rows " + std::to_string(n);
      const Tensor x = up(random_tensor({n, in}, unsigned(n))), y = random_tensor({n, out}, unsigned(n) + 1);
      // Twice: counters of slices are zero behind a product.
      for (int i = 0; i < 2; ++i)
        ASSERT_TRUE(same_bits(down(cuda->linear(x, packed)), down(cuda->linear(x, dense)))) << where;
      const Tensor of_packed = up(y), of_dense = up(y);
      cuda->linear_add(of_packed, x, packed), cuda->linear_add(of_dense, x, dense);
      ASSERT_TRUE(same_bits(down(of_packed), down(of_dense))) << where;
      // Into rows that are further apart than they are wide; bf16 results.
      const Tensor wide[] = {cuda->allocate({n, out + 4}, DType::f32), cuda->allocate({n, out + 4}, DType::f32)};
      cuda->linear_to(wide[0].columns(0, out), x, packed), cuda->linear_to(wide[1].columns(0, out), x, dense);
      ASSERT_TRUE(same_bits(down(wide[0].columns(0, out)), down(wide[1].columns(0, out)))) << where;
      ASSERT_TRUE(
          same_bits(down(cuda->norm_linear(x, gain, 1e-5f, packed)), down(cuda->norm_linear(x, gain, 1e-5f, dense))))
          << where;
    }
  }
}

TEST_P(PackedProducts, rows_of_a_table_are_those_of_the_dense_copy) {
  const Weight table = quantize(Weight::dense(random_tensor({70, 256}, 3)), format);
  const Tensor tokens = Tensor::host({5}, DType::i32);
  std::ranges::copy(std::initializer_list<int>{69, 0, -1, 31, 32}, tokens.data<std::int32_t>());
  EXPECT_TRUE(same_bits(down(cuda->embed(cuda->prepare(table), up(tokens))),
                        down(cuda->embed(cuda->prepare(dequantized(table)), up(tokens)))));
}

// Codes are what a product reads, and all that is kept.
TEST_P(PackedProducts, have_the_bytes_of_their_codes) {
  const Weight w = quantize(Weight::dense(random_tensor({256, 4096}, 3)), format), packed = cuda->prepare(w);
  const double codes = 256.0 * 4096 * (format.bits() <= 4 ? 4 : 8) / 8;
  EXPECT_GE(double(packed.bytes()), codes);
  EXPECT_LE(double(packed.bytes()), 1.26 * codes);  // an f32 scale for each 32 inputs: a quarter
  EXPECT_FALSE(packed.values);
}

INSTANTIATE_TEST_SUITE_P(All, PackedProducts, ::testing::ValuesIn(weight_formats()), name_of_format);
INSTANTIATE_TEST_SUITE_P(All, PackedCodes, ::testing::ValuesIn(coded_formats()), name_of_format);

// Several tiles of a block, of which each has four slices.
TEST(PackedMatrix, many_rows_of_a_layer_have_the_bits_of_the_dense_copy) {
  const auto cuda = make_gpu({.device = 0, .invariant = true});
  for (const WeightFormat* format : {&formats::int4(), &formats::fp8()}) {
    const Weight w = quantize(Weight::dense(random_tensor({6144, 4096}, 3, 0.1f)), *format), packed = cuda->prepare(w),
                 dense = cuda->prepare(dequantized(w));
    for (const int n : {66, 128, 260, 512, 1024}) {
      const Tensor x = cuda->upload(random_tensor({n, 4096}, unsigned(n)));
      EXPECT_TRUE(same_bits(on_host(*cuda, cuda->linear(x, packed)), on_host(*cuda, cuda->linear(x, dense))))
          << format->name() << ", rows " << n;
    }
  }
}

// As of checkpoints: a row for each finite scale of fp16 of magnitude up to `most`, and all codes but NaN.
Weight weight_of_all_f16_scales(const WeightFormat& format, float most) {
  std::vector<float> scales;
  for (int bits = 0; bits < 1 << 16; ++bits)
    if (const float s = float_from_f16(std::uint16_t(bits)); std::abs(s) <= most) scales.push_back(s);
  Weight w;
  w.out = std::int64_t(scales.size()), w.in = w.group = 256, w.format = &format;
  w.scales = Tensor::host_copy(std::span<const float>(scales), DType::f32).reshaped({w.out, 1});
  w.values = Tensor::host({w.out, w.in}, DType::u8);
  for (std::int64_t i = 0; i < w.out * w.in; ++i) {
    const auto code = std::uint8_t(i % (1 << format.bits()));
    w.values.data<std::uint8_t>()[i] = std::isnan(format.numbers()[code]) ? 0 : code;
  }
  return w;
}

// Every row of the table, bit by bit, zeros with their signs.
TEST(PackedMatrix, weights_of_all_scales_of_fp16_are_those_of_the_definition) {
  const auto cuda = make_gpu({.device = 0, .invariant = true});
  const auto expect_rows = [&](const Weight& w, const std::string& what) {
    const Tensor tokens = Tensor::host({w.out}, DType::i32);
    std::iota(tokens.data<std::int32_t>(), tokens.data<std::int32_t>() + w.out, 0);
    const Tensor rows = on_host(*cuda, cuda->embed(cuda->prepare(w), cuda->upload(tokens)));
    std::vector<float> row(std::size_t(w.in));
    for (std::int64_t o = 0; o < w.out; ++o) {
      decode_row(w, o, row);
      ASSERT_EQ(std::memcmp(row.data(), rows.row<float>(o), row.size() * 4), 0)
          << what << ", scale " << w.scales.row<float>(o)[0];
    }
  };
  expect_rows(weight_of_all_f16_scales(formats::int4(), 65504), "int4");
  expect_rows(weight_of_all_f16_scales(formats::fp8(), 64), "fp8");
  Weight w = weight_of_all_f16_scales(formats::int4_asymmetric(), 65504);
  w.zeros = Tensor::host({w.out, 1}, DType::f32);
  for (int zero = -8; zero <= 8; ++zero) {
    std::ranges::fill(w.zeros.values<float>(), float(zero));
    expect_rows(w, "int4 and the zero point " + std::to_string(zero));
  }
}

// All mantissas of f32 in steps, of the exponents of real scales.
TEST(PackedMatrix, weights_of_scales_of_f32_are_those_of_the_definition) {
  const auto cuda = make_gpu({.device = 0, .invariant = true});
  for (const WeightFormat* format : {&formats::int4(), &formats::fp8(), &formats::nf4()}) {
    Weight w = weight_of_all_f16_scales(*format, 64);
    for (std::int64_t o = 0; o < w.out; ++o)
      w.scales.row<float>(o)[0] =
          std::bit_cast<float>((0x39000000u + (std::uint32_t(o) % 12 << 23)) | std::uint32_t(o) * 139u % (1u << 23));
    const Tensor tokens = Tensor::host({w.out}, DType::i32);
    std::iota(tokens.data<std::int32_t>(), tokens.data<std::int32_t>() + w.out, 0);
    EXPECT_TRUE(same_bits(on_host(*cuda, cuda->embed(cuda->prepare(w), cuda->upload(tokens))),
                          on_host(*cuda, cuda->embed(cuda->prepare(dequantized(w)), cuda->upload(tokens)))))
        << format->name();
  }
}

// NaN is a code of e4m3 alone. Such a matrix is kept as bf16, where a NaN stays one.
TEST(PackedMatrix, a_code_that_means_nan_gives_nan) {
  const auto cuda = make_gpu({.device = 0, .invariant = true});
  Weight w = quantize(Weight::dense(random_tensor({32, 128}, 3)), formats::fp8());
  w.values.row<std::uint8_t>(5)[77] = 0x7f;
  const Tensor host = on_host(*cuda, cuda->linear(cuda->upload(random_tensor({1, 128}, 4)), cuda->prepare(w)));
  for (int o = 0; o < 32; ++o) EXPECT_EQ(std::isnan(host.data<float>()[o]), o == 5) << o;
}

}  // namespace
}  // namespace foretoken::test
