// Products with rounded inputs: integers have the same bits on every device of the host, no row depends on another.
#include <bit>
#include <numeric>
#include <string>

#include "kernels/backend.h"
#include "kernels/formats/activations/activation_format.h"
#include "tests/kernels/formats/weight_formats.h"

namespace foretoken::test {
namespace {

// Rows of very different sizes, one of zeros.
Tensor inputs(std::int64_t rows, std::int64_t in, unsigned seed) {
  const Tensor x = random_tensor({rows, in}, seed);
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t i = 0; i < in; ++i)
      x.row<float>(r)[i] *= r % 5 == 3 ? 0.0f : std::ldexp(1.0f, int(r % 7) * 3 - 9);
  return x;
}

// The definition, written down once more for one output of one row, without what kernels share.
float defined(const Weight& w, const float* row, std::int64_t o, float static_scale, float threshold) {
  std::vector<float> x(std::size_t(w.in)), weights(std::size_t(w.in));
  float greatest = 0, y = 0, apart = 0;
  for (std::int64_t j = 0; j < w.in; ++j) {
    x[std::size_t(j)] = float(bf16(row[w.order ? w.order.data<std::int32_t>()[j] : j]));
    if (threshold == 0 || std::abs(x[std::size_t(j)]) < threshold)
      greatest = std::max(greatest, std::abs(x[std::size_t(j)]));
  }
  decode_row(w, o, weights);
  const float scale = static_scale > 0 ? static_scale : greatest / 127;
  for (std::int64_t g = 0; g < w.in / w.group; ++g) {
    std::int64_t sum = 0;
    for (std::int64_t j = g * w.group; j < (g + 1) * w.group; ++j) {
      const float v = x[std::size_t(j)];
      if (threshold > 0 && std::abs(v) >= threshold) {
        apart += v * weights[std::size_t(j)];
        continue;
      }
      const int weight = int(w.values.row<std::uint8_t>(o)[j]) - (1 << (w.format->bits() - 1)) -
                         int(w.zeros ? w.zeros.row<float>(o)[g] : 0);
      sum += scale == 0 ? 0 : std::lrint(std::clamp(v / scale, -128.0f, 127.0f)) * weight;
    }
    y += float(sum) * (scale * w.scales.row<float>(o)[g]);
  }
  y += apart;
  return w.bias ? y + w.bias.data<float>()[o] : y;
}

void expect_defined(const Weight& w, const Tensor& x, const std::string& what) {
  const float threshold = w.activations->outliers();
  const Tensor wanted = Tensor::host({x.dim(0), w.out}, DType::f32);
  for (std::int64_t r = 0; r < x.dim(0); ++r)
    for (std::int64_t o = 0; o < w.out; ++o)
      wanted.row<float>(r)[o] = defined(w, x.row<float>(r), o, w.input_scale, threshold);
  for (const auto& b : all_host_backends()) {
    const Tensor y = b->linear(x, b->prepare(w)), unprepared = b->linear(x, w);
    for (std::int64_t r = 0; r < x.dim(0); ++r)
      for (std::int64_t o = 0; o < w.out; ++o) {
        const float want = wanted.row<float>(r)[o];
        ASSERT_EQ(std::bit_cast<std::uint32_t>(y.row<float>(r)[o]), std::bit_cast<std::uint32_t>(want))
            << b->description() << ", " << what << ", row " << r << ", output " << o << ": " << y.row<float>(r)[o]
            << " for " << want;
        ASSERT_EQ(unprepared.row<float>(r)[o], y.row<float>(r)[o]) << b->description() << ", " << what;
      }
  }
}

Weight permuted(Weight w) {
  w.order = Tensor::host({w.in}, DType::i32);
  for (int j = 0; j < w.in; ++j) w.order.data<std::int32_t>()[j] = int((37 * j + 5) % w.in);
  return w;
}

TEST(RoundedProducts, AreSumsOfIntegers) {
  const struct {
    const WeightFormat& format;
    int in, group;
  } kCases[] = {{formats::int8(), 256, 0},        {formats::int8(), 203, 0},
                {formats::int8_group(), 384, 96}, {formats::int8_group(), 66, 3},
                {formats::int4(), 256, 128},      {formats::int4(), 384, 96},
                {formats::int4(), 192, 32},       {formats::int4(), 192, 6},
                {formats::int4(), 320, 320},      {formats::int4_asymmetric(), 256, 64},
                {formats::int5(), 192, 64},       {formats::int6(), 210, 70}};
  for (const auto& c : kCases) {
    Weight w = quantize(Weight::dense(random_tensor({71, c.in}, 3)), c.format, c.group);
    w.bias = random_tensor({71}, 6);
    const std::string what = c.format.name() + " of " + std::to_string(c.in) + " in " + std::to_string(w.group);
    for (const int rows : {1, 2, 11})
      expect_defined(with_activations(w, formats::int8_rows()), inputs(rows, c.in, unsigned(rows)), what);
    expect_defined(with_activations(w, formats::int8_rows(), 0.02f), inputs(7, c.in, 9), what + ", one scale");
    if (std::gcd(c.in, 37) == 1)
      expect_defined(permuted(with_activations(w, formats::int8_rows())), inputs(5, c.in, 4), what + ", permuted");
  }
}

// Tiles take 16 rows, two of them 32, a block 64; groups of more than 512 inputs of 4 bits in parts.
TEST(RoundedProducts, OfManyRowsAreTheSame) {
  const struct {
    const WeightFormat& format;
    int in, group;
  } kCases[] = {{formats::int8(), 1054, 0},   {formats::int8_group(), 122, 61}, {formats::int8_group(), 192, 96},
                {formats::int4(), 256, 128},  {formats::int4(), 1440, 1440},    {formats::int4_asymmetric(), 96, 32},
                {formats::int4(), 1760, 1760}};
  for (const auto& c : kCases) {
    const Weight w = quantize(Weight::dense(random_tensor({39, c.in}, 3)), c.format, c.group);
    for (const int rows : {16, 33, 48, 65, 129, 149, 177})
      expect_defined(with_activations(w, formats::int8_rows()), inputs(rows, c.in, unsigned(rows)),
                     c.format.name() + " of " + std::to_string(c.in) + " in " + std::to_string(w.group));
  }
}

// The greatest sums: each term 255 * 128 with a zero point at the end of the range, 2^16 of them.
TEST(RoundedProducts, DoNotOverflow) {
  Weight w = quantize(Weight::dense(random_tensor({2, kMostRoundedInputs}, 3)), formats::int8());
  std::ranges::fill(w.values.values<std::uint8_t>(), std::uint8_t(255));
  w.zeros = Tensor::host(w.scales.shape(), DType::f32);
  std::ranges::fill(w.zeros.values<float>(), -128.0f);
  const Tensor x = Tensor::host({17, kMostRoundedInputs}, DType::f32);
  std::ranges::fill(x.values<float>(), -1e9f);
  expect_defined(with_activations(w, formats::int8_rows(), 1), x, "the greatest sums");
}

TEST(RoundedProducts, KeepOutliersApartRowByRow) {
  const Weight w = with_activations(quantize(Weight::dense(random_tensor({71, 192}, 3)), formats::int8()),
                                    formats::int8_rows_outliers());
  Tensor x = random_tensor({6, 192}, 4);  // rows 0, 2 and 4 have none
  x.row<float>(1)[17] = 6.0f, x.row<float>(1)[190] = -70.5f, x.row<float>(1)[18] = 5.96f;
  for (int i = 0; i < 192; ++i) x.row<float>(3)[i] = i % 2 ? 8.0f : -9.0f;  // all are
  x.row<float>(5)[0] = 100.0f;
  expect_defined(w, x, "with outliers");
  expect_defined(permuted(w), x, "with outliers, permuted");
  const Weight plain = with_activations(w, formats::int8_rows());
  for (const auto& b : all_host_backends()) {
    const Tensor apart = b->linear(x, b->prepare(w)), all = b->linear(x, b->prepare(plain));
    for (const int r : {0, 2, 4}) EXPECT_TRUE(same_row(apart, r, all, r)) << b->description();
    for (const int r : {1, 3, 5}) EXPECT_FALSE(same_row(apart, r, all, r)) << b->description();
  }
}

// Every term is exact, and so is their sum in double. The tolerance is that of activation_format.h, and for each of the
// additions behind the chunks half a step of f32.
TEST(RoundedProducts, OfFp8AreWithinTheirTolerance) {
  for (const auto* format : {&formats::fp8(), &formats::fp8_tensor(), &formats::fp8_block()})
    for (const int in : {128, 384}) {
      const Weight w =
          with_activations(quantize(Weight::dense(random_tensor({71, in}, 3)), *format), formats::e4m3_rows());
      const Tensor x = inputs(9, in, 5);
      for (const auto& b : all_host_backends()) {
        const Tensor y = b->linear(x, b->prepare(w));
        for (int r = 0; r < 9; ++r) {
          std::vector<float> row(x.row<float>(r), x.row<float>(r) + in);
          std::vector<Outlier> none;
          const float scale = round_row(w, row, none);
          for (int o = 0; o < 71; ++o) {
            double exact = 0, magnitudes = 0;
            for (int i = 0; i < in; ++i) {
              const double term = double(row[std::size_t(i)]) * format->numbers()[w.values.row<std::uint8_t>(o)[i]] *
                                  double(scale) * w.scales.row<float>(o)[i / w.group];
              exact += term, magnitudes += std::abs(term);
            }
            ASSERT_NEAR(y.row<float>(r)[o], exact, magnitudes * (0x1p-17 + 5 * 0x1p-24)) << b->description();
          }
        }
      }
    }
}

TEST(RoundedRows, OfFp8AreTheNearestNumbers) {
  const std::span<const float> numbers = formats::fp8().numbers();
  std::vector<float> values{0, -0.0f, 448, 447, 449, 1e30f, 0x1p-10f, 0x1.8p-9f, 0x1p-6f, 0x1.fp-7f, 0x1p-140f};
  for (std::size_t c = 0; c < 126; ++c)
    for (const float t : {0.0f, 0.25f, 0.5f, 0.75f}) values.push_back(numbers[c] + t * (numbers[c + 1] - numbers[c]));
  const std::size_t positive = values.size();
  for (std::size_t i = 0; i < positive; ++i) values.push_back(-values[i]);
  std::vector<float> rounded = values;
  formats::e4m3_rows().round(rounded, 1);
  for (std::size_t i = 0; i < values.size(); ++i)
    EXPECT_EQ(rounded[i], formats::float_of_e4m3(formats::e4m3_of(values[i]))) << values[i];
}

class RoundedPrecisions : public ::testing::TestWithParam<Precision> {
 protected:
  Weight weight(std::int64_t out, std::int64_t in, unsigned seed) const {
    return quantize(Weight::dense(random_tensor({out, in}, seed)), GetParam());
  }
};

// Rows of a batch have the bits that they have alone, whatever the others hold.
TEST_P(RoundedPrecisions, RowsDoNotDependOnEachOther) {
  const Weight w = weight(70, 256, 3);
  const Tensor x = inputs(33, 256, 4);
  x.row<float>(11)[7] = 1000, x.row<float>(12)[9] = kNan;
  for (const auto& b : all_host_backends()) {
    const Weight prepared = b->prepare(w);
    const Tensor all = b->linear(x, prepared), some = b->linear(x.rows(5, 17), prepared);
    for (int r = 0; r < 33; ++r) EXPECT_TRUE(same_row(all, r, b->linear(x.rows(r, 1), prepared), 0)) << r;
    for (int r = 0; r < 17; ++r) EXPECT_TRUE(same_row(all, r + 5, some, r)) << r;
  }
}

TEST_P(RoundedPrecisions, RowsThatAreNotFiniteBecomeNan) {
  const Weight w = weight(70, 256, 3);
  const Tensor x = random_tensor({6, 256}, 4);
  x.row<float>(1)[200] = kNan, x.row<float>(2)[0] = kInfinity, x.row<float>(3)[255] = -kInfinity;
  x.row<float>(4)[7] = std::numeric_limits<float>::max();  // infinite in bf16
  for (const auto& b : all_host_backends()) {
    const Tensor y = b->linear(x, b->prepare(w));
    for (int o = 0; o < 70; ++o)
      for (int r = 0; r < 6; ++r)
        ASSERT_EQ(std::isnan(y.row<float>(r)[o]), r > 0 && r < 5) << b->description() << ", row " << r;
  }
}

// A scale below the least normal float is 0, and so are the row's numbers.
TEST_P(RoundedPrecisions, RowsOfTheLeastNumbersAreZeroOnEveryBackend) {
  const Weight w = weight(70, 256, 3);
  const Tensor x = random_tensor({2, 256}, 4);
  std::fill_n(x.row<float>(1), 256, 1e-37f);
  const auto reference = make_reference_backend();
  const Tensor wanted = reference->linear(x, reference->prepare(w));
  for (const auto& b : all_host_backends()) {
    const Tensor y = b->linear(x, b->prepare(w));
    for (int o = 0; o < 70; ++o) ASSERT_EQ(y.row<float>(1)[o], wanted.row<float>(1)[o]) << b->description();
  }
}

// Inputs are rounded to bf16 first, wherever they come from.
TEST_P(RoundedPrecisions, EveryRouteRoundsAlike) {
  const Weight up = weight(2 * 128, 256, 3), down = weight(256, 128, 4);
  const Tensor x = random_tensor({9, 256}, 5), gain = random_tensor({256}, 6), h = random_tensor({9, 128}, 7);
  const Tensor narrow = Tensor::host(x.shape(), DType::f32);
  std::ranges::transform(x.values<float>(), narrow.data<float>(), [](float v) { return float(bf16(v)); });
  for (const auto& b : all_host_backends()) {
    const Weight first = b->prepare(up), second = b->prepare(down);
    const auto copy = [&](const Tensor& t) {
      Tensor y = b->allocate(t.shape(), DType::f32);
      b->copy(t, y);
      return y;
    };
    const Tensor y = b->linear(x, first), normed = b->rms_norm(x, gain, 1e-5f);
    EXPECT_TRUE(same_bits(y, b->linear(narrow, first))) << b->description();
    Tensor to = b->allocate(y.shape(), DType::f32);
    b->linear_to(to, x, first);
    EXPECT_TRUE(same_bits(y, to)) << b->description();
    EXPECT_TRUE(same_bits(b->norm_linear(x, gain, 1e-5f, first), b->linear(normed, first))) << b->description();
    Tensor added = copy(x), sum = copy(x);
    b->linear_add(added, h, second);
    b->add(sum, b->linear(h, second));
    EXPECT_TRUE(same_bits(added, sum)) << b->description();
    Tensor whole = copy(x), parts = copy(x);
    b->feed_forward(whole, gain, 1e-5f, first, second);
    b->add(parts, b->linear(b->silu_mul(b->linear(normed, first)), second));
    EXPECT_TRUE(same_bits(whole, parts)) << b->description();
  }
}

// A head that is tied to the embedding rounds its inputs; the embedding reads the weights.
TEST_P(RoundedPrecisions, TablesAreReadFromCodes) {
  const Weight table = weight(70, 128, 3);
  const Tensor tokens = Tensor::host({3}, DType::i32), dense = dequantized(table).values;
  for (int i = 0; i < 3; ++i) tokens.data<std::int32_t>()[i] = 31 + i;
  for (const auto& b : all_host_backends()) {
    const Tensor rows = b->embed(b->prepare(table), tokens);
    for (int r = 0; r < 3; ++r)
      for (int i = 0; i < 128; ++i)
        ASSERT_EQ(rows.row<float>(r)[i], float(dense.row<bf16>(31 + r)[i])) << b->description();
  }
}

std::vector<Precision> rounded_precisions() {
  std::vector<Precision> some;
  std::ranges::copy_if(precisions(), std::back_inserter(some), [](const Precision& p) { return p.activations; });
  return some;
}

INSTANTIATE_TEST_SUITE_P(All, RoundedPrecisions, ::testing::ValuesIn(rounded_precisions()),
                         [](const auto& info) { return info.param.name; });

TEST(Precisions, HaveNames) {
  EXPECT_EQ(find_precision("w4a8")->weights, &formats::int4());
  EXPECT_EQ(find_precision("int4")->activations, nullptr);
  EXPECT_EQ(find_precision("w3a8"), nullptr);
  EXPECT_EQ(rounded_precisions().size(), 4u);
}

}  // namespace
}  // namespace foretoken::test
