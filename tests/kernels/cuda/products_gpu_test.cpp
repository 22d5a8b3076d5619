// Products of the CUDA backend against the reference backend, and the bits that invariant numerics guarantee.
#include <gtest/gtest.h>

#include "tests/kernels/cuda/cuda_scenario.h"

namespace foretoken::test {
namespace {

class CudaProducts : public Cuda {};

// Fast pseudo-random values for tensors of any size.
Tensor noise(Shape shape, std::uint32_t seed, float scale) {
  Tensor t = Tensor::host(shape, DType::bf16);
  std::uint32_t h = seed * 2654435761u + 12345;
  for (std::int64_t i = 0; i < t.elements(); ++i) {
    h = h * 1664525u + 1013904223u;
    t.data<bf16>()[i] = bf16((float(h >> 8) / 8388608.0f - 1) * scale);
  }
  return t;
}
Tensor widened(const Tensor& t) {
  Tensor f = Tensor::host(t.shape(), DType::f32);
  for (std::int64_t i = 0; i < t.elements(); ++i) f.data<float>()[i] = float(t.data<bf16>()[i]);
  return f;
}

// Int8 groups are expanded to bf16 at load and f16 to f32: these are the bytes that a product reads.
TEST_P(CudaProducts, report_the_bytes_that_they_read) {
  const auto bytes = [&](DType type) { return cuda->prepare(random_weight(96, 64, type, 5)).bytes(); };
  EXPECT_EQ(bytes(DType::f32), 4 * 96 * 64);
  EXPECT_EQ(bytes(DType::bf16), 2 * 96 * 64);
  EXPECT_EQ(bytes(DType::f16), 4 * 96 * 64);
  EXPECT_EQ(bytes(DType::i8), 2 * 96 * 64);
}

// In outputs: matrices with more are heads, whose products of 2 to 16 rows take another route.
constexpr int kHead = 1 << 16;

TEST_P(CudaProducts, products) {
  const std::pair<int, int> shapes[] = {{37, 55},    {100, 384},   {1000, 64},   {20, 2048},   {3072, 2048},
                                        {513, 8192}, {4096, 1024}, {65552, 256}, {128256, 128}};
  for (const auto& [out, in] : shapes)
    for (DType type : {DType::f32, DType::bf16, DType::f16, DType::i8}) {
      if (type != DType::bf16 && out * in > 400000) continue;
      Weight w = random_weight(out, in, type, 5);
      if (out % 2 == 0) w.bias = random_tensor({1, out}, 8).reshaped({out});
      const Weight on_device = cuda->prepare(w), host = reference.prepare(w);
      for (int n : {1, 2, 5, 8, 9, 16, 17, 40, 70, 128, 130}) {
        if (out > kHead ? n > 16 : out * in > 1000000 && n > 20 && n != 70) continue;
        const bool rounds = type == DType::bf16 || type == DType::i8;
        const Tensor x = random_tensor({n, in}, 1), rounded_x = rounds ? through_bf16(x) : x;
        const Tensor plain = reference.linear(rounded_x, host);
        const double most = type == DType::i8 ? kRounding : kSum;
        EXPECT_LT(distance(down(cuda->linear(up(x), on_device)), plain), most) << out << ' ' << in << ' ' << n;
        EXPECT_TRUE(same_bits(down(cuda->linear(up(rounds ? rounded(x) : x), on_device)),
                              down(cuda->linear(strided(rounded_x, 4), on_device))));
        Tensor added = random_tensor({n, out}, 2), sum = up(added);
        cuda->linear_add(sum, up(x), on_device), reference.add(added, plain);
        EXPECT_LT(distance(down(sum), added), most);
        const Tensor before = random_tensor({n + 2, out}, 3), buffer = up(before);
        cuda->linear_to(buffer.rows(1, n), up(x), on_device);
        EXPECT_TRUE(same_bits(down(buffer.rows(1, n)), down(cuda->linear(up(x), on_device))));
        EXPECT_TRUE(same_row(down(buffer), n + 1, before, n + 1));
      }
    }
}

TEST_P(CudaProducts, fused_products) {
  for (DType type : {DType::f32, DType::bf16})
    for (const auto& [out, in, biased] : {std::tuple{130, 96, false},
                                          {3072, 2048, false},
                                          {512, 4096, false},
                                          {96, 8192, false},
                                          {4096, 384, false},
                                          {3072, 2048, true},
                                          {512, 4096, true},
                                          {4096, 384, true}}) {
      Weight host = random_weight(out, in, type, 3);
      if (biased) host.bias = random_tensor({1, out}, 8).reshaped({out});
      const Weight w = cuda->prepare(host), down_host = random_weight(in, out / 2, type, 5),
                   down = cuda->prepare(down_host);
      const Weight expected = reference.prepare(host), down_expected = reference.prepare(down_host);
      for (int n : {1, 3, 8, 13, 33, 100}) {
        const Tensor x = random_tensor({n, in}, 4), gain = random_tensor({1, in}, 6).reshaped({in});
        const bool rounds = type == DType::bf16;
        const Tensor normed = reference.rms_norm(x, gain, 1e-5f);
        const Tensor y = cuda->norm_linear(up(x), up(gain), 1e-5f, w);
        EXPECT_EQ(y.dtype(), type);
        EXPECT_EQ(cuda->activation_type(w), type);
        EXPECT_LT(distance(this->down(y), reference.linear(rounds ? through_bf16(normed) : normed, expected)),
                  rounds ? 2 * kRounding : kSum)
            << out << ' ' << n << ' ' << biased;
        // The second half of a layer, fused and as separate operations.
        Tensor fused = up(x), apart = up(x), plain = copy_of(x);
        cuda->feed_forward(fused, up(gain), 1e-5f, w, down);
        cuda->linear_add(apart, cuda->silu_mul(y), down);
        EXPECT_TRUE(same_bits(this->down(fused), this->down(apart))) << out << ' ' << n << ' ' << biased;
        const Tensor h = reference.silu_mul(this->down(y));
        reference.linear_add(plain, rounds ? through_bf16(h) : h, down_expected);
        EXPECT_LT(distance(this->down(fused), plain), rounds ? kRounding : kSum) << out << ' ' << n << ' ' << biased;
      }
    }
}

// A model's last product, whose logits are not rounded: the bits of separate norm and product.
TEST_P(CudaProducts, heads_behind_a_norm) {
  for (DType type : {DType::f32, DType::bf16})
    for (const auto& [out, in] : {std::pair{130, 96}, {3072, 2048}, {65552, 256}}) {
      const Weight w = cuda->prepare(random_weight(out, in, type, 3));
      const Tensor gain = up(random_tensor({1, in}, 6).reshaped({in}));
      for (int n : {1, 2, 9, 16, 40}) {
        const Tensor x = up(random_tensor({n, in}, 4)), before = random_tensor({n + 2, out}, 3), buffer = up(before);
        cuda->norm_linear_to(buffer.rows(1, n), x, gain, 1e-5f, w);
        EXPECT_TRUE(same_bits(down(buffer.rows(1, n)), down(cuda->linear(cuda->rms_norm(x, gain, 1e-5f), w))))
            << out << ' ' << n;
        EXPECT_TRUE(same_row(down(buffer), 0, before, 0) && same_row(down(buffer), n + 1, before, n + 1))
            << out << ' ' << n;
      }
    }
}

// As wide as in an 8B model: tiles of 224 outputs, of which the last warps' outputs are unused; the second matrix ends
// within a tile.
TEST_P(CudaProducts, gate_and_up_products_on_all_multiprocessors) {
  const int in = 512;
  const Tensor gain = up(random_tensor({1, in}, 6).reshaped({in})), x = random_tensor({64, in}, 4);
  for (int out : {28672, 27648}) {
    const Weight w = cuda->prepare(Weight::dense(noise({out, in}, 1, 0.05f))),
                 back = cuda->prepare(Weight::dense(noise({in, out / 2}, 3, 0.05f)));
    const Tensor few = down(cuda->norm_linear(up(x.rows(0, 16)), gain, 1e-5f, w));
    for (int n : {17, 31, 33, 64}) {
      Tensor fused = up(x.rows(0, n)), apart = up(x.rows(0, n));
      const Tensor y = cuda->norm_linear(apart, gain, 1e-5f, w);
      EXPECT_TRUE(same_bits(down(y).rows(0, 16), few)) << out << ' ' << n;
      cuda->feed_forward(fused, gain, 1e-5f, w, back);
      cuda->linear_add(apart, cuda->silu_mul(y), back);
      EXPECT_TRUE(same_bits(down(fused), down(apart))) << out << ' ' << n;
    }
  }
}

// Outputs that end within a tile, and a bias, of a matrix with split-K slices: all routes from 1 to 2100 rows add them
// in the same order.
TEST_P(CudaProducts, slices_of_ragged_matrices_with_a_bias) {
  if (!GetParam()) GTEST_SKIP() << "fast numerics may choose by the number of rows";
  constexpr int kMost = 4100, kFew = 8;  // rows at which each block of a GPU with 132 multiprocessors has several tiles
  for (const auto& [out, in] : {std::pair{1996, 2048}, {2052, 2048}, {3076, 2048}, {2048, 4096}}) {
    Weight host = Weight::dense(noise({out, in}, 1, 0.05f));
    host.bias = random_tensor({1, out}, 8).reshaped({out});
    const Weight w = cuda->prepare(host);
    const Tensor x = up(noise({kMost, in}, 2, 1)), sums = random_tensor({kMost, out}, 9);
    const auto of = [&](int n) {
      const Tensor added = up(sums.rows(0, n));
      cuda->linear_add(added, x.rows(0, n), w);
      return std::pair{down(cuda->linear(x.rows(0, n), w)), down(added)};
    };
    const auto few = of(kFew), all = of(kMost);
    EXPECT_TRUE(same_bits(all.first.rows(0, kFew), few.first) && same_bits(all.second.rows(0, kFew), few.second))
        << out << ' ' << in;
    for (int n : {1, 17, 33, 64, 65, 97, 193, 300, 449, 513, 700, 1025, 2049, 3000}) {
      const auto some = of(n);
      EXPECT_TRUE(same_bits(some.first, all.first.rows(0, n)) && same_bits(some.second, all.second.rows(0, n)))
          << out << ' ' << in << ", " << n << " rows";
    }
  }
}

// The bytes of the first and last `most` columns of a product: an effect of the row count would appear there too.
struct Edges {
  Tensor first, last;
  Edges(Backend& backend, const Tensor& y, std::int64_t most = 96) {
    const std::int64_t n = std::min(most, y.dim(1));
    first = Tensor::host({y.dim(0), n}, y.dtype()), last = Tensor::host({y.dim(0), n}, y.dtype());
    backend.fetch(y.columns(0, n), first), backend.fetch(y.columns(y.dim(1) - n, n), last);
    backend.synchronize();
  }
  // The rows of this must be the first rows of `all`.
  bool begins(const Edges& all) const {
    return std::memcmp(first.raw(), all.first.raw(), std::size_t(first.bytes())) == 0 &&
           std::memcmp(last.raw(), all.last.raw(), std::size_t(last.bytes())) == 0;
  }
};

// A model's products with a matrix [out, in] for the first `n` rows of x: normed, added, logits, the second half of a
// layer.
struct Uses {
  Backend& cuda;
  Weight w, back;
  Tensor gain, x, h, sums;

  std::vector<Edges> of(std::int64_t n) const {
    std::vector<Edges> all;
    all.emplace_back(cuda, cuda.norm_linear(x.rows(0, n), gain, 1e-5f, w));
    const Tensor y = cuda.allocate({n, w.out}, DType::f32);
    cuda.copy(sums.rows(0, n), y);
    cuda.linear_add(y, h.rows(0, n), w);
    all.emplace_back(cuda, y);
    all.emplace_back(cuda, cuda.linear(x.rows(0, n), w));
    if (!back.prepared) return all;
    const Tensor z = cuda.allocate({n, w.in}, DType::f32);
    cuda.copy(x.rows(0, n), z);
    cuda.feed_forward(z, gain, 1e-5f, w, back);
    all.emplace_back(cuda, z);
    return all;
  }
};

// The guarantee of invariant numerics: a row's product has the same bits among any number of rows. For every row count
// of a step.
TEST_P(CudaProducts, a_row_is_the_same_among_any_number_of_rows) {
  if (!GetParam()) GTEST_SKIP() << "fast numerics may choose by the number of rows";
  const std::pair<int, int> shapes[] = {
      {640, 384},   {384, 384},   {2048, 384},  {384, 1024},  {4096, 384},   {256, 128},    {1024, 128},
      {128, 512},   {4096, 128},  {6144, 4096}, {4096, 4096}, {28672, 4096}, {4096, 14336}, {3072, 2048},
      {2048, 2048}, {2048, 8192}, {100, 384},   {37, 55},     {513, 1024},   {65552, 256},  {128256, 128}};
  for (const auto& [out, in] : shapes)
    for (DType type : {DType::bf16, DType::f32}) {
      const std::int64_t size = std::int64_t(out) * in;
      if (type == DType::f32 && size > 1000000) continue;
      const int most = out > kHead ? 40 : 600;
      const Tensor values = noise({out, in}, 1, 0.05f), x = noise({most, in}, 2, 1),
                   second = noise({in, out / 2}, 3, 0.05f);
      const auto weight = [&](const Tensor& t) {
        return cuda->prepare(Weight::dense(type == DType::bf16 ? t : widened(t)));
      };
      const Uses uses{*cuda,
                      weight(values),
                      out % 2 == 0 && size < 2000000 ? weight(second) : Weight{},
                      up(random_tensor({1, in}, 6).reshaped({in})),
                      up(widened(x)),
                      up(x),
                      up(random_tensor({most, out}, 9))};
      const std::vector<Edges> all = uses.of(most);
      for (int n = 1; n < most; n += size > 30000000 && n > 130 ? 13 : 1) {
        const std::vector<Edges> few = uses.of(n);
        for (std::size_t use = 0; use < few.size(); ++use)
          ASSERT_TRUE(few[use].begins(all[use]))
              << out << ' ' << in << ' ' << name_of(type) << ": use " << use << ", " << n << " rows";
      }
    }
}

INSTANTIATE_TEST_SUITE_P(Numerics, CudaProducts, ::testing::Bool(),
                         [](const auto& i) { return i.param ? "invariant" : "fast"; });

}  // namespace
}  // namespace foretoken::test
