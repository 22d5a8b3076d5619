// What descriptions mean where nothing is said: most code fills in some of their fields.
#include <gtest/gtest.h>

#include "kernels/adjustment.h"
#include "kernels/backend.h"
#include "tests/kernels/scenario.h"

namespace foretoken::test {
namespace {

TEST(Beginnings, AnAdjustmentChangesNothing) {
  const Adjustment a;
  EXPECT_TRUE(a.token_counts == nullptr && a.path == nullptr);
  EXPECT_EQ(a.count, 0);
  EXPECT_EQ(a.length, 0);
  EXPECT_FALSE(a.penalties.counts());
  EXPECT_TRUE(Penalties{.repetition = 2}.counts());
  EXPECT_TRUE(Penalties{.frequency = -1}.counts());
  EXPECT_TRUE(Penalties{.presence = 0.5f}.counts());
  const TokenCount none;
  EXPECT_TRUE(none.token == -1 && none.times == 0 && none.anywhere == 0 && none.bias == 0);
  EXPECT_EQ(adjusted(2.5f, none, {}), 2.5f);
}

TEST(Beginnings, ALayerOfACacheBeginsAtTheBeginningOfAPage) {
  const KvLayer kv;
  for (const std::int64_t n : {kv.keys, kv.values, kv.key_scales, kv.value_scales}) EXPECT_EQ(n, 0);
  for (const int n : {kv.page_rows, kv.kv_heads, kv.head_size}) EXPECT_EQ(n, 0);
  EXPECT_EQ(kv.dtype, DType::f32);
  const KvPlane plane;
  EXPECT_TRUE(plane.begin == 0 && plane.bytes == 0);
  const PageRow row;
  EXPECT_TRUE(row.page == 0 && row.row == 0);
}

TEST(Beginnings, PlanesAreThoseOfTheTypeOfACache) {
  KvLayer kv;
  kv.keys = 64, kv.values = 128, kv.key_scales = 192, kv.value_scales = 224, kv.head_size = 6;
  const auto planes = [&](DType dtype) {
    kv.dtype = dtype;
    std::vector<std::pair<std::int64_t, std::int64_t>> all;
    for (const KvPlane& p : KvPlanes(kv)) all.emplace_back(p.begin, p.bytes);
    return all;
  };
  using Planes = std::vector<std::pair<std::int64_t, std::int64_t>>;
  EXPECT_EQ(planes(DType::f32), (Planes{{64, 24}, {128, 24}}));
  EXPECT_EQ(planes(DType::bf16), (Planes{{64, 12}, {128, 12}}));
  for (const DType codes : {DType::i8, DType::e4m3})
    EXPECT_EQ(planes(codes), (Planes{{64, 6}, {128, 6}, {192, 4}, {224, 4}}));
}

TEST(Beginnings, ALayoutHasNoRows) {
  const Layout l;
  for (const int n : {l.rows, l.sequences, l.words, l.table_width, l.deepest, l.longest}) EXPECT_EQ(n, 0);
  const Layout::Straight& s = l.straight;
  for (const int n : {s.rows, s.sequences, s.deepest, s.longest}) EXPECT_EQ(n, 0);
}

TEST(Beginnings, AWeightIsAbsentAndReadsNothing) {
  Weight w;
  EXPECT_FALSE(w);
  EXPECT_EQ(w.bytes(), 0);
  EXPECT_TRUE(w.out == 0 && w.in == 0 && w.group == 0 && w.input_scale == 0);
  EXPECT_TRUE(w.format == nullptr && w.activations == nullptr);
  w.values = Tensor::host({2, 3}, DType::bf16), w.scales = Tensor::host({2, 1}, DType::f32);
  w.zeros = w.minima = w.scales, w.bias = Tensor::host({2}, DType::f32), w.order = Tensor::host({3}, DType::i32);
  EXPECT_EQ(w.bytes(), 12 + 3 * 8 + 8);
  w.forget_stored();
  EXPECT_FALSE(w.values || w.scales || w.zeros || w.minima || w.order);
  EXPECT_TRUE(w.bias) << "products read it";
}

TEST(Beginnings, ADistributionOfNothingSaidKeepsEverything) {
  const DistributionRow row;
  EXPECT_TRUE(row.mass == 1 && row.raw_log_normalizer == 0 && row.inverse_temperature == 1 && row.peak == 0);
  EXPECT_TRUE(row.threshold == 0 && row.greedy == -1 && row.one_hot == 0);
  const Distribution d;
  EXPECT_TRUE(d.logits == nullptr && d.vocab == 0);
  const Distributions none;
  EXPECT_FALSE(none);
  EXPECT_TRUE(none.count() == 0 && none.vocab() == 0);
}

// A row that serves every index lies 0 elements behind itself.
TEST(Tensors, RowsMayLieAnywhereApart) {
  float numbers[12];
  for (int i = 0; i < 12; ++i) numbers[i] = float(i);
  const Shape shape{3, 2};
  const auto at = [&](std::int64_t stride) {
    const Tensor t({}, numbers, shape, DType::f32, {}, stride);
    return std::array{t.row<float>(0)[1], t.row<float>(1)[0], t.row<float>(2)[1]};
  };
  EXPECT_EQ(at(0), (std::array{1.0f, 0.0f, 1.0f}));
  EXPECT_EQ(at(1), (std::array{1.0f, 1.0f, 3.0f}));
  EXPECT_EQ(at(4), (std::array{1.0f, 4.0f, 9.0f}));
  EXPECT_EQ(at(-1), (std::array{1.0f, 2.0f, 5.0f})) << "one behind another";
  EXPECT_FALSE(Tensor({}, numbers, shape, DType::f32, {}, 4).dense());
  EXPECT_TRUE(Tensor({}, numbers, shape, DType::f32).dense());
  const Tensor empty({}, numbers, {0, 2}, DType::f32), scalar({}, numbers, {}, DType::f32);
  EXPECT_EQ(empty.elements(), 0);
  EXPECT_EQ(scalar.elements(), 1);
  EXPECT_EQ(scalar.row_stride(), 1);
  EXPECT_EQ(Shape({3, 384}).text(), "[3, 384]");
  EXPECT_EQ(Shape().text(), "[]");
}

TEST(Tensors, ViewsShareTheirMemory) {
  const Tensor t = Tensor::host({4, 3}, DType::f32);
  for (int i = 0; i < 12; ++i) t.data<float>()[i] = float(i);
  const Tensor rows = t.rows(1, 2), columns = t.columns(1, 2), both = rows.columns(2, 1);
  EXPECT_EQ(rows.shape(), Shape({2, 3}));
  EXPECT_EQ(rows.row<float>(1)[0], 6);
  EXPECT_TRUE(rows.dense());
  EXPECT_EQ(columns.shape(), Shape({4, 2}));
  EXPECT_EQ(columns.row<float>(3)[0], 10);
  EXPECT_FALSE(columns.dense());
  EXPECT_EQ(both.row<float>(1)[0], 8);
  EXPECT_TRUE(columns.rows(2, 1).dense()) << "a single row";
  EXPECT_EQ(t.reshaped({2, 6}).row<float>(1)[0], 6);
  EXPECT_EQ(t.bytes(), 48);
}

}  // namespace
}  // namespace foretoken::test
