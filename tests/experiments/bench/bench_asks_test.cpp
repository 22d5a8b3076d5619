// What `foretoken bench` asks of a device: a device that watches compares it with what the pages say is measured.
#include <algorithm>
#include <numeric>
#include <set>

#include <gtest/gtest.h>

#include "experiments/bench/bench.h"
#include "experiments/bench/bench_steps.h"
#include "kernels/reference/reference_backend.h"

namespace foretoken::test {
namespace {

using Numbers = std::vector<int>;

Numbers numbers_of(const Tensor& t) {
  const std::span<const std::int32_t> all = t.values<std::int32_t>();
  return {all.begin(), all.end()};
}

class Watching final : public ReferenceBackend {
 public:
  struct Attended {
    Layout layout;
    std::int64_t place;  // of the keys in a page: another one for each layer
    std::int64_t queries, keys;
    float scale;
  };

  Tensor norm_linear(const Tensor& x, const Tensor& gain, float epsilon, const Weight& w) override {
    rows = x, gains = gain;
    return ReferenceBackend::norm_linear(x, gain, epsilon, w);
  }
  Tensor linear(const Tensor& x, const Weight& w) override {
    products.push_back({x.dim(0), w.out, w.in});
    return ReferenceBackend::linear(x, w);
  }
  Tensor rope_attend(Tensor q, Tensor k, const Tensor& v, const KvLayer& kv, const Layout& layout,
                     const RotaryRules& rotation, const AttentionRules& rules) override {
    attended.push_back({layout, kv.keys, q.dim(1), k.dim(1), rules.scale});
    EXPECT_EQ(v.dim(1), k.dim(1));
    EXPECT_EQ(rotation.frequencies.dim(0), kv.head_size / 2);
    return ReferenceBackend::rope_attend(q, k, v, kv, layout, rotation, rules);
  }
  void move(std::span<const Moves> all) override {
    moved.emplace_back();
    for (const Moves& m : all) moved.back().emplace_back(m.rows.begin(), m.rows.end());
    ReferenceBackend::move(all);
  }

  Tensor rows, gains;
  std::vector<Attended> attended;
  std::vector<std::array<std::int64_t, 3>> products;        // rows, outputs, inputs
  std::vector<std::vector<std::vector<Moves::Row>>> moved;  // of each call, of each block table
};

// Two sequences of 37 slots each: the last three rows of each, page after page of 16 slots in no order.
TEST(BenchAsks, AttentionOfTheLastRowsOfEverySequence) {
  const ModelConfig m = ModelConfig::load("experiments/models/draft");
  Watching device;
  EXPECT_GT(attention_seconds(device, m, {2, 37, 3, {m.kv_heads, m.head_size, DType::bf16}}, 2), 0);
  ASSERT_EQ(device.attended.size() % 16, 0u) << "16 layers, which caches do not hold";
  EXPECT_GE(device.attended.size(), 16u * (3 + 2));
  std::set<std::int64_t> layers;
  for (const auto& [layout, place, queries, keys, scale] : device.attended) {
    EXPECT_EQ((Numbers{layout.rows, layout.sequences, layout.table_width, layout.deepest, layout.longest}),
              (Numbers{6, 2, 3, 37, 3}));
    EXPECT_EQ(numbers_of(layout.slots), (Numbers{34, 35, 36, 34, 35, 36}));
    EXPECT_EQ(numbers_of(layout.positions), numbers_of(layout.slots));
    EXPECT_EQ(numbers_of(layout.visible), (Numbers{35, 36, 37, 35, 36, 37}));
    EXPECT_EQ(numbers_of(layout.owner), (Numbers{0, 0, 0, 1, 1, 1}));
    EXPECT_EQ(numbers_of(layout.begins), (Numbers{0, 3, 6}));
    Numbers pages = numbers_of(layout.tables);
    EXPECT_FALSE(std::ranges::is_sorted(pages));
    std::ranges::sort(pages);
    EXPECT_EQ(pages, (Numbers{0, 1, 2, 3, 4, 5})) << "each page is of one sequence";
    EXPECT_EQ(queries, m.heads * m.head_size);
    EXPECT_EQ(keys, m.kv_heads * m.head_size);
    EXPECT_FLOAT_EQ(scale * scale * float(m.head_size), 1);
    layers.insert(place);
  }
  EXPECT_EQ(layers.size(), 16u);
  // Numbers about 0, as a layer's inputs are.
  const auto [least, most] = std::ranges::minmax(device.rows.values<float>());
  EXPECT_GE(least, -0.5f);
  EXPECT_LE(most, 0.5f);
  EXPECT_LT(least, -0.4f);
  EXPECT_GT(most, 0.4f);
  EXPECT_TRUE(std::ranges::all_of(device.gains.values<float>(), [](float g) { return g == 1; }));
}

// Rows move from the second half of a page of 16 slots to its first, and each call takes other pages than the one
// before.
TEST(BenchAsks, CompactionOfRowsOfOtherPagesInEachCall) {
  Watching device;
  EXPECT_GT(compaction_seconds(device, {2, 64, 9, KvShape(1, 1, 4, DType::bf16)}, 2), 0);
  EXPECT_GE(device.moved.size(), 3u + 2);
  std::set<std::int64_t> before;
  for (const auto& call : device.moved) {
    ASSERT_EQ(call.size(), 2u);
    std::set<std::int64_t> pages;
    for (const auto& rows : call) {
      ASSERT_EQ(rows.size(), 9u);
      for (std::size_t r = 0; r < rows.size(); ++r) {
        EXPECT_EQ(rows[r].from.page, rows[r].to.page);
        EXPECT_EQ(rows[r].from.row, 8 + int(r) % 8);
        EXPECT_EQ(rows[r].to.row, int(r) % 8);
        pages.insert(rows[r].from.page);
      }
      EXPECT_EQ(rows[0].from.page, rows[7].from.page);
      EXPECT_NE(rows[7].from.page, rows[8].from.page);
    }
    EXPECT_EQ(pages.size(), 4u) << "two of each sequence";
    for (const std::int64_t page : pages) {
      EXPECT_FALSE(before.contains(page));
      EXPECT_TRUE(page >= 0 && page < 8);
    }
    before = pages;
  }
}

// Layer after layer, then what a forward has once; each product reads as many rows as it was told.
TEST(BenchAsks, ProductsInTheOrderOfAForward) {
  Watching device;
  const std::vector<ProductShape> shapes{{"a", 6, 4, 2}, {"head", 8, 4, 1}, {"b", 4, 6, 2}};
  const WeightStream stream(device, shapes, "f32");
  EXPECT_EQ(stream.bytes, 4 * (2 * 6 * 4 + 8 * 4 + 2 * 4 * 6)) << "this device multiplies f32";
  const auto inputs = inputs_of(shapes, 5);
  ASSERT_EQ(inputs.size(), 2u);
  for (const auto& [width, x] : inputs) {
    EXPECT_EQ(x.shape(), (Shape{5, width}));
    EXPECT_TRUE(std::ranges::all_of(x.values<float>(), [](float v) { return v == 0.5f; }));
  }
  const std::vector<double> seconds = stream.run(device, inputs, 3);
  EXPECT_EQ(device.products,
            (std::vector<std::array<std::int64_t, 3>>{{3, 6, 4}, {3, 4, 6}, {3, 6, 4}, {3, 4, 6}, {3, 8, 4}}));
  ASSERT_EQ(seconds.size(), 4u);
  for (const double s : seconds) EXPECT_GT(s, 0);
  EXPECT_NEAR(seconds[3], seconds[0] + seconds[1] + seconds[2], 1e-9) << "the last is the total";
  for (const ProductShape& s : stream.shapes) EXPECT_EQ(s.weight_bytes, 4) << s.name;
}

}  // namespace
}  // namespace foretoken::test
