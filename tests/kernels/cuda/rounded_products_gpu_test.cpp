// Products with rounded inputs: the bits of the reference where sums are integers, FP8 within its tolerance; no row
// depends on another; every route rounds alike.
#include <algorithm>
#include <array>
#include <cmath>

#include <gtest/gtest.h>

#include "kernels/formats/activations/activation_format.h"
#include "kernels/formats/formats.h"
#include "tests/kernels/cuda/cuda_scenario.h"

namespace foretoken::test {
namespace {

// Of the sum of the terms' magnitudes: see kernels/cuda/products/rounded_boxes.cuh.
constexpr float kE4m3Tolerance = 0x1p-10f;

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
  some.push_back({"fp8_block, rounded inputs", &formats::fp8_block(), &formats::e4m3_rows()});
  return some;
}

Tensor inputs(std::int64_t rows, std::int64_t in) {
  const Tensor x = random_tensor({rows, in}, unsigned(rows));
  for (std::int64_t i = 0; i < in; ++i) x.row<float>(0)[i] *= i % 7 == 3 ? 20.0f : 1.0f;  // outliers
  if (rows > 2) std::fill_n(x.row<float>(1), in, 0.0f), x.row<float>(2)[5] = std::numeric_limits<float>::quiet_NaN();
  return x;
}

// Shapes by warps (inputs not a multiple of 128, or outputs not of 8), and by boxes: one tile and several, with slices
// of inputs and without, ragged.
struct Product {
  std::int64_t out, in;
  bool ordered = false;
  int rows = 200;
};
constexpr Product kProducts[] = {
    {71, 256},   {71, 208, true},         {72, 256, true},         {200, 1024}, {640, 2048}, {16, 4096},
    {2304, 512}, {10000, 128, false, 64}, {29000, 128, false, 66}, {8, 8192},   {8, 14336}};

// Sums of magnitudes, by which FP8 may differ from the reference.
Tensor magnitudes(Backend& reference, const Tensor& x, const Weight& w) {
  const auto positive = [](const Tensor& t) {
    const Tensor to = Tensor::host(t.shape(), DType::f32);
    for (std::int64_t i = 0; i < t.elements(); ++i)
      to.data<float>()[i] = std::isfinite(t.data<float>()[i]) ? std::abs(t.data<float>()[i]) : 0;
    return to;
  };
  return reference.linear(positive(x), Weight::dense(positive(dequantize(w))));
}

void expect_equal(const Precision& p, const Tensor& y, const Tensor& wanted, const Tensor& terms, int nan_row) {
  for (std::int64_t r = 0; r < y.dim(0); ++r)
    for (std::int64_t o = 0; o < y.dim(1); ++o) {
      const float got = y.row<float>(r)[o], want = wanted.row<float>(r)[o];
      if (r == nan_row)
        ASSERT_TRUE(std::isnan(got) && std::isnan(want)) << p.name;
      else if (p.activations->coding() == Coding::integers)
        ASSERT_EQ(got, want) << p.name << ", row " << r << ", output " << o;
      else
        ASSERT_NEAR(got, want, terms.row<float>(r)[o] * kE4m3Tolerance) << p.name << ", row " << r << ", output " << o;
    }
}

TEST_P(CudaRoundedProducts, have_the_bits_of_the_reference) {
  for (const Precision& p : rounded_precisions())
    for (const Product& shape : kProducts) {
      if (p.weights == &formats::fp8_block() && shape.in % 128 != 0) continue;
      SCOPED_TRACE(p.name + " [" + std::to_string(shape.out) + ", " + std::to_string(shape.in) + "]");
      Weight w = weight(p, shape.out, shape.in, 3);
      w.bias = random_tensor({shape.out}, 6);
      if (shape.ordered) {
        w.order = Tensor::host({shape.in}, DType::i32);
        for (std::int64_t j = 0; j < shape.in; ++j)
          w.order.data<std::int32_t>()[j] = std::int32_t((37 * j + 5) % shape.in);
      }
      const Weight on_device = cuda->prepare(w);
      const Tensor x = inputs(shape.rows, shape.in), wanted = reference.linear(x, w);
      const Tensor terms = p.activations->coding() == Coding::e4m3 ? magnitudes(reference, x, w) : Tensor();
      for (const int rows : {1, 3, 16, 40, 64, 65, 129, 200})
        if (rows <= shape.rows) expect_equal(p, down(cuda->linear(up(x.rows(0, rows)), on_device)), wanted, terms, 2);
    }
}

TEST_P(CudaRoundedProducts, rows_do_not_depend_on_each_other) {
  for (const Precision& p : rounded_precisions())
    for (const auto& [out, in] : {std::pair{70, 256}, {640, 2048}, {2304, 512}, {208, 4096}}) {
      const Weight w = cuda->prepare(weight(p, out, in, 3));
      const Tensor x = inputs(200, in), all = down(cuda->linear(up(x), w));
      for (const int rows : {1, 5, 16, 17, 64, 65, 130})
        for (const int first : {3, 69}) {
          const Tensor some = down(cuda->linear(up(x.rows(first, rows)), w));
          for (const int r : {0, rows / 2, rows - 1})
            EXPECT_TRUE(same_row(all, first + r, some, r)) << p.name << ", " << rows << " rows, row " << first + r;
        }
    }
}

// Every mantissa of bf16 over every mantissa of a row's greatest number, at several exponents: among them all that lie
// between two codes, or within the error of a reciprocal of that. The matrix is the identity, so each code is seen.
TEST_P(CudaRoundedProducts, codes_are_those_of_exact_quotients) {
  constexpr int kMantissas = 128, kExponents = 9, kIn = kMantissas * kExponents;
  const Tensor identity = Tensor::host({kIn, kIn}, DType::f32), x = Tensor::host({2 * kMantissas, kIn}, DType::f32);
  for (int i = 0; i < kIn; ++i) {
    std::fill_n(identity.row<float>(i), kIn, 0.0f);
    identity.row<float>(i)[i] = 1;
  }
  for (int r = 0; r < 2 * kMantissas; ++r) {
    const float sign = r < kMantissas ? 1.0f : -1.0f, greatest = 1 + float(r % kMantissas) / kMantissas;
    for (int i = 0; i < kIn; ++i)
      x.row<float>(r)[i] =
          sign * std::min(greatest, std::ldexp(1 + float(i % kMantissas) / kMantissas, -(i / kMantissas)));
    x.row<float>(r)[0] = greatest;
  }
  for (const char* const name : {"w8a8", "fp8_w8a8"}) {
    const Weight w = quantize(Weight::dense(identity), *find_precision(name));
    EXPECT_TRUE(same_bits(down(cuda->linear(up(x), cuda->prepare(w))), reference.linear(x, w))) << name;
  }
}

// Rows that round to infinity in bf16, or hold one, and rows so small that their scale is subnormal; scales that a
// checkpoint gives, by which most numbers saturate or none is above zero.
TEST_P(CudaRoundedProducts, extreme_rows_and_given_scales_round_as_on_the_reference) {
  constexpr int kIn = 640;
  for (const Precision& p : rounded_precisions())
    for (const float scale : {0.0f, 0.02f, 1e-38f}) {
      Weight w = weight(p, 72, kIn, 3);
      w.input_scale = scale;
      const Tensor x = random_tensor({6, kIn}, 4);
      x.row<float>(1)[200] = std::numeric_limits<float>::infinity(),
      x.row<float>(2)[3] = std::numeric_limits<float>::max();
      for (int i = 0; i < kIn; ++i) x.row<float>(3)[i] = i % 2 ? 1e-37f : -1e-38f, x.row<float>(4)[i] *= 0x1p120f;
      const Tensor y = down(cuda->linear(up(x), cuda->prepare(w))), wanted = reference.linear(x, w),
                   terms = magnitudes(reference, x, w);
      const bool integers = p.activations->coding() == Coding::integers;
      for (int r = 0; r < 6; ++r)
        for (int o = 0; o < 72; ++o) {
          const float got = y.row<float>(r)[o], want = wanted.row<float>(r)[o];
          const float most = integers ? 0 : terms.row<float>(r)[o] * kE4m3Tolerance;
          EXPECT_TRUE(got == want || (std::isnan(got) && std::isnan(want)) || std::abs(got - want) <= most)
              << p.name << ", scale " << scale << ", row " << r << ", output " << o << ": " << got << " and " << want;
        }
    }
}

// The kernel of many rows, in each of its tiles on a GPU with 132 multiprocessors, against that of few: rows that end
// within a tile and one row after it, several tiles for each block and less than one, bands of rows, slices, outputs
// that end within a tile. Integers in tiles of 256 rows, several for each block: 6272 and 8448 outputs; of 192 outputs:
// 6144.
TEST_P(CudaRoundedProducts, many_rows_have_the_bits_of_few) {
  constexpr Product kMany[] = {{6272, 640, false, 1280}, {8448, 640, false, 1000}, {6144, 4096, false, 1024},
                               {4096, 640, false, 1000}, {4352, 640, false, 1025}, {4352, 2048, false, 1025},
                               {25000, 256, false, 100}, {16808, 128, false, 127}, {520, 1024, false, 2500},
                               {72, 256, false, 66},     {4352, 1024, false, 193}};
  for (const Precision& p : rounded_precisions())
    for (const Product& shape : kMany) {
      SCOPED_TRACE(p.name + " [" + std::to_string(shape.out) + ", " + std::to_string(shape.in) + "]");
      Weight host = weight(p, shape.out, shape.in, 3);
      host.bias = random_tensor({shape.out}, 6);
      const Weight w = cuda->prepare(host);
      const Tensor x = up(random_tensor({shape.rows, shape.in}, 5)), sums = random_tensor({shape.rows, shape.out}, 9);
      const auto added = [&](std::int64_t first, std::int64_t n) {
        const Tensor y = up(sums.rows(first, n));
        cuda->linear_add(y, x.rows(first, n), w);
        return down(y);
      };
      const auto narrow = [&](std::int64_t first, std::int64_t n) {
        const Tensor y = cuda->allocate({n, shape.out}, DType::bf16);
        cuda->linear_to(y, x.rows(first, n), w);
        return down(y);
      };
      const Tensor all = down(cuda->linear(x, w)), whole = added(0, shape.rows), all_bf16 = narrow(0, shape.rows);
      for (std::int64_t r = 0; r < shape.rows; r += 64) {
        const std::int64_t n = std::min<std::int64_t>(64, shape.rows - r);
        EXPECT_TRUE(same_bits(all.rows(r, n), down(cuda->linear(x.rows(r, n), w)))) << "row " << r;
        EXPECT_TRUE(same_bits(whole.rows(r, n), added(r, n))) << "added, row " << r;
        EXPECT_TRUE(same_bits(all_bf16.rows(r, n), narrow(r, n))) << "in bf16, row " << r;
      }
    }
}

TEST_P(CudaRoundedProducts, many_gated_rows_have_the_bits_of_few) {
  for (const Precision& p : rounded_precisions())
    for (const auto& [half, in, rows] : {std::tuple{2176, 640, 1025}, {12544, 128, 100}, {272, 256, 1000}}) {
      if (p.weights == &formats::fp8_block() && half % 128 != 0) continue;
      SCOPED_TRACE(p.name + ", " + std::to_string(rows) + " rows of " + std::to_string(in));
      Weight gate_up = weight(p, 2 * half, in, 3);
      gate_up.bias = random_tensor({2 * half}, 8);
      const Weight first = cuda->prepare(gate_up), second = cuda->prepare(weight(p, in, half, 4));
      const Tensor x = random_tensor({rows, in}, 5), gain = up(random_tensor({in}, 6));
      const auto layer = [&](std::int64_t from, std::int64_t n) {
        const Tensor y = up(x.rows(from, n));
        cuda->feed_forward(y, gain, 1e-5f, first, second);
        return down(y);
      };
      const Tensor all = layer(0, rows);
      for (std::int64_t r = 0; r < rows; r += 64) {
        const std::int64_t n = std::min<std::int64_t>(64, rows - r);
        EXPECT_TRUE(same_bits(all.rows(r, n), layer(r, n))) << "row " << r;
      }
    }
}

// Results of norm_linear and of gates are bf16, as of bf16 matrices.
TEST_P(CudaRoundedProducts, every_route_rounds_alike) {
  for (const Precision& p : rounded_precisions())
    for (const auto& [half, in] : {std::pair{128, 256}, {64, 2048}, {1200, 512}, {128, 4096}, {64, 8192}, {64, 12288}})
      for (const int rows : {1, 9, 64, 150}) {
        if (p.weights == &formats::fp8_block() && (in % 128 != 0 || half % 128 != 0)) continue;
        SCOPED_TRACE(p.name + ", " + std::to_string(rows) + " rows of " + std::to_string(in));
        const Weight first = cuda->prepare(weight(p, 2 * half, in, 3)), second = cuda->prepare(weight(p, in, half, 4));
        const Tensor x = up(random_tensor({rows, in}, 5)), gain = up(random_tensor({in}, 6)),
                     h = up(random_tensor({rows, half}, 7)), normed = cuda->norm_linear(x, gain, 1e-5f, first);
        const auto copy = [&] {
          Tensor y = cuda->allocate(x.shape(), DType::f32);
          cuda->copy(x, y);
          return y;
        };
        EXPECT_EQ(cuda->activation_type(first), normed.dtype());
        Tensor rounded = cuda->allocate(normed.shape(), DType::bf16);
        cuda->linear_to(rounded, cuda->rms_norm(x, gain, 1e-5f), first);
        EXPECT_TRUE(same_bits(down(normed), down(rounded)));
        Tensor added = copy(), sum = copy(), whole = copy(), parts = copy();
        cuda->linear_add(added, h, second), cuda->add(sum, cuda->linear(h, second));
        EXPECT_TRUE(same_bits(down(added), down(sum)));
        cuda->feed_forward(whole, gain, 1e-5f, first, second);
        cuda->add(parts, cuda->linear(cuda->silu_mul(normed), second));
        EXPECT_TRUE(same_bits(down(whole), down(parts)));
      }
}

// The table of a model with tied embeddings.
TEST_P(CudaRoundedProducts, rows_of_the_matrix_are_those_of_its_dense_copy) {
  for (const Precision& p : rounded_precisions()) {
    Weight w = weight(p, 72, 256, 3);
    w.order = Tensor::host({256}, DType::i32);
    for (int j = 0; j < 256; ++j) w.order.data<std::int32_t>()[j] = (37 * j + 5) % 256;
    Tensor tokens = Tensor::host({4}, DType::i32);
    std::ranges::copy(std::array{5, -1, 71, 0}, tokens.data<std::int32_t>());
    EXPECT_TRUE(
        same_bits(down(cuda->embed(cuda->prepare(w), up(tokens))), reference.embed(reference.prepare(w), tokens)))
        << p.name;
  }
}

TEST_P(CudaRoundedProducts, take_a_byte_for_each_number) {
  const Weight w = weight(*find_precision("w8a8"), 256, 1024, 3);
  EXPECT_EQ(cuda->prepare(w).bytes(), 256 * 1024 + 256 * 4);
}

INSTANTIATE_TEST_SUITE_P(Numerics, CudaRoundedProducts, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "invariant" : "fast"; });

}  // namespace
}  // namespace foretoken::test
