// bound_pages and select_pages of the host's backends against their definitions, and attention to block tables of each
// kv head against attention to those of one head alone, bit for bit.
#include "tests/kernels/selection.h"

#include <set>

#include <gtest/gtest.h>

#include "kernels/cache_codes.h"
#include "kernels/error.h"

namespace foretoken::test {
namespace {

constexpr int kHeads = 6, kKvHeads = 2, kSize = 20, kRows = 7, kSlots = 60;

// Number i of the key of a head in a row of a page, as a cache of this type means it.
double meant(const KvLayer& kv, std::int32_t page, int head, int row, int i) {
  const std::byte* const p = kv.pool.row<std::byte>(page);
  const std::int64_t at = (std::int64_t(head) * kv.page_rows + row) * kv.head_size + i;
  if (kv.dtype == DType::f32) return double(reinterpret_cast<const float*>(p + kv.keys)[at]);
  if (kv.dtype == DType::bf16) return double(float(reinterpret_cast<const bf16*>(p + kv.keys)[at]));
  return double(reinterpret_cast<const float*>(p + kv.key_scales)[head * kv.page_rows + row] *
                number_of(kv.dtype, (p + kv.keys)[at]));
}

double bound(const KvLayer& kv, std::int32_t page, bool greatest, int head, int i) {
  const std::byte* const p = kv.pool.row<std::byte>(page) + kv.bounds;
  const std::int64_t at = (greatest ? kv.kv_heads * kv.head_size : 0) + head * kv.head_size + i;
  return kv.dtype == DType::f32 ? double(reinterpret_cast<const float*>(p)[at])
                                : double(float(reinterpret_cast<const bf16*>(p)[at]));
}

struct ParityOfPages : ::testing::TestWithParam<std::string> {
  std::unique_ptr<Backend> backend =
      GetParam() == "reference" ? make_reference_backend() : make_cpu_backend(2, GetParam());

  Cache filled(DType dtype, int pages = kSlots / kRows) {
    Cache cache(3, kSlots, kRows, kKvHeads, kSize, dtype);
    fill(*backend, cache, kSlots, 7);
    std::vector<std::int32_t> full;
    for (int s = 0; s < 3; ++s)
      full.insert(full.end(), cache.tables.row<std::int32_t>(s), cache.tables.row<std::int32_t>(s) + pages);
    backend->bound_pages(cache.layers, full);
    return cache;
  }
};

// The least and the greatest of a page.
TEST_P(ParityOfPages, bound_pages) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::i8, DType::e4m3}) {
    const Cache cache = filled(dtype);
    for (const KvLayer& kv : cache.layers)
      for (int s = 0; s < 3; ++s)
        for (int p = 0; p < kSlots / kRows; ++p)
          for (int h = 0; h < kKvHeads; ++h)
            for (int i = 0; i < kSize; ++i) {
              const std::int32_t page = cache.tables.row<std::int32_t>(s)[p];
              double low = 1e9, high = -1e9;
              for (int row = 0; row < kRows; ++row)
                low = std::min(low, meant(kv, page, h, row, i)), high = std::max(high, meant(kv, page, h, row, i));
              const auto as_kept = [&](double x) { return dtype == DType::f32 ? x : double(float(bf16(float(x)))); };
              ASSERT_EQ(bound(kv, page, false, h, i), as_kept(low)) << name_of(dtype) << ", page " << p;
              ASSERT_EQ(bound(kv, page, true, h, i), as_kept(high)) << name_of(dtype) << ", page " << p;
            }
  }
}

// The pages of the highest scores, in the order of the candidates; all, and none; a table without rows or candidates.
TEST_P(ParityOfPages, select_pages) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::e4m3}) {
    const Cache cache = filled(dtype);
    const std::vector<ScenarioRow> rows{chain_row(0, 30), {2, 20, 44, 20, {0b101}}, {2, 22, 45, 20, {0b110}}};
    for (const auto& [counts, chosen] :
         {std::pair<std::vector<std::int32_t>, std::vector<std::int32_t>>{{8, 0, 5}, {3, 0, 2}},
          {{8, 6, 5}, {8, 0, 4}}}) {
      const Layout layout = selecting(layout_of(rows, cache.tables, 1), cache, counts, chosen);
      const Tensor q = random_tensor({3, kHeads * kSize}, 8);
      const KvLayer& kv = cache.layers[1];
      const Tensor tables = backend->select_pages(q, kv, layout);
      ASSERT_EQ(tables.shape(), Shape({3 * kKvHeads, layout.table_width}));
      std::set<std::vector<std::int32_t>> different;
      for (const int table : {0, 1, 2})
        for (int h = 0; h < kKvHeads; ++h) {
          std::vector<std::pair<double, int>> order;  // less its score, and the number of a candidate
          for (int p = 0; p < counts[std::size_t(table)]; ++p) {
            double most = -1e9;
            for (int r = 0; r < 3; ++r)
              for (int g = h * 3; g < h * 3 + 3; ++g) {
                double score = 0;
                for (int i = 0; i < kSize; ++i) {
                  const double x = double(q.row<float>(r)[g * kSize + i]);
                  const std::int32_t page = cache.tables.row<std::int32_t>(table)[p];
                  score += std::max(x * bound(kv, page, false, h, i), x * bound(kv, page, true, h, i));
                }
                if (rows[std::size_t(r)].owner == table) most = std::max(most, score);
              }
            order.emplace_back(-most, p);
          }
          std::ranges::sort(order);
          order.resize(std::size_t(chosen[std::size_t(table)]));
          std::set<int> best;
          for (const auto& [score, p] : order) best.insert(p);
          std::vector<std::int32_t> right;
          for (const int p : best) right.push_back(cache.tables.row<std::int32_t>(table)[p]);
          const std::int32_t *const own = layout.tables.row<std::int32_t>(table), *const got = tables.row<std::int32_t>(
                                                                                      table * kKvHeads + h);
          right.insert(right.end(), own + right.size(), own + layout.table_width);
          EXPECT_EQ(std::vector(got, got + layout.table_width), right) << "table " << table << ", head " << h;
          different.insert(right);
        }
      EXPECT_GE(different.size(), 4u) << "heads select for themselves, else this tests little";
    }
  }
}

// Rows that do not choose might as well not be there.
TEST_P(ParityOfPages, AreChosenByTheFirstRowsOfATable) {
  const Cache cache = filled(DType::bf16);
  const std::vector<ScenarioRow> rows{
      chain_row(0, 50), chain_row(0, 51), {2, 20, 44, 20, {0b101}}, {2, 22, 45, 20, {0b110}}};
  const Tensor q = random_tensor({4, kHeads * kSize}, 8);
  const auto tables = [&](const std::vector<std::int32_t>& choosing) {
    Layout layout = selecting(layout_of(rows, cache.tables, 1), cache, {8, 0, 8}, {3, 0, 2});
    layout.selection.choosing = integers(choosing);
    return backend->select_pages(q, cache.layers[1], layout);
  };
  Layout first = selecting(layout_of({rows[0], rows[2]}, cache.tables, 1), cache, {8, 0, 8}, {3, 0, 2});
  const Tensor of_first = Tensor::host({2, kHeads * kSize}, DType::f32);
  std::copy_n(q.row<float>(0), kHeads * kSize, of_first.row<float>(0));
  std::copy_n(q.row<float>(2), kHeads * kSize, of_first.row<float>(1));
  EXPECT_TRUE(same_bits(tables({1, 0, 1}), backend->select_pages(of_first, cache.layers[1], first)));
  const Layout all = selecting(layout_of(rows, cache.tables, 1), cache, {8, 0, 8}, {3, 0, 2});
  EXPECT_TRUE(same_bits(tables({2, 0, 2}), backend->select_pages(q, cache.layers[1], all)));
  EXPECT_FALSE(same_bits(tables({1, 0, 1}), tables({2, 0, 2}))) << "otherwise this tests nothing";
}

TEST_P(ParityOfPages, TakesTheFirstOfEqualScores) {
  Cache cache(1, kSlots, kRows, kKvHeads, kSize, DType::bf16);
  const std::vector<std::int32_t> all(cache.tables.row<std::int32_t>(0), cache.tables.row<std::int32_t>(0) + 8);
  std::vector<ScenarioRow> rows;
  for (int i = 0; i < kSlots; ++i) rows.push_back(chain_row(0, i));
  const Tensor same = Tensor::host({kSlots, kKvHeads * kSize}, DType::f32);
  std::ranges::fill(same.values<float>(), 0.5f);
  backend->store(same, same, cache.layers[0], layout_of(rows, cache.tables, 0));
  backend->bound_pages({cache.layers.data(), 1}, all);
  for (const float of_q : {1.0f, kNan}) {
    const Tensor q = Tensor::host({1, kHeads * kSize}, DType::f32);
    std::ranges::fill(q.values<float>(), of_q);
    const Layout layout = selecting(layout_of({chain_row(0, 59)}, cache.tables, 0), cache, {8}, {3});
    const Tensor tables = backend->select_pages(q, cache.layers[0], layout);
    for (int h = 0; h < kKvHeads; ++h)
      for (int i = 0; i < 3; ++i) EXPECT_EQ(tables.row<std::int32_t>(h)[i], all[std::size_t(i)]) << of_q;
  }
}

// Two pages above, three below and the others equal: of these the first ones.
TEST_P(ParityOfPages, TakesTheFirstOfThoseThatAreEqualAtTheCut) {
  Cache cache(1, kSlots, kRows, kKvHeads, kSize, DType::f32);
  std::vector<ScenarioRow> rows;
  for (int i = 0; i < kSlots; ++i) rows.push_back(chain_row(0, i));
  const Tensor keys = Tensor::host({kSlots, kKvHeads * kSize}, DType::f32);
  const std::vector<float> of_page{0, 1, 0, -1, 0, 0, 2, -1, 0};
  for (int i = 0; i < kSlots; ++i) std::fill_n(keys.row<float>(i), kKvHeads * kSize, of_page[std::size_t(i / kRows)]);
  backend->store(keys, keys, cache.layers[0], layout_of(rows, cache.tables, 0));
  const std::int32_t* const table = cache.tables.row<std::int32_t>(0);
  backend->bound_pages({cache.layers.data(), 1}, std::vector<std::int32_t>(table, table + 8));
  const Tensor q = Tensor::host({1, kHeads * kSize}, DType::f32);
  std::ranges::fill(q.values<float>(), 1.0f);
  const Tensor tables = backend->select_pages(
      q, cache.layers[0], selecting(layout_of({chain_row(0, 59)}, cache.tables, 0), cache, {8}, {4}));
  for (int h = 0; h < kKvHeads; ++h)
    for (const auto& [i, page] : {std::pair(0, 0), {1, 1}, {2, 2}, {3, 6}})
      EXPECT_EQ(tables.row<std::int32_t>(h)[i], table[page]) << h << ", " << i;
}

TEST_P(ParityOfPages, HeadsAttendToTheirOwnTables) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::i8}) {
    const Cache cache = filled(dtype);
    std::vector<ScenarioRow> rows{chain_row(0, 20), chain_row(0, 24)};
    rows.push_back({2, 20, 44, 18, {0b101}});
    const Layout layout = selecting(layout_of(rows, cache.tables, 1), cache, {8, 0, 5}, {3, 0, 2});
    const Tensor q = random_tensor({3, kHeads * kSize}, 8);
    const KvLayer& kv = cache.layers[0];
    const Tensor tables = backend->select_pages(q, kv, layout);
    const Tensor y = backend->attend(q, kv, of_heads(layout, tables), 0.2f);
    for (int h = 0; h < kKvHeads; ++h) {
      const Tensor one = backend->attend(q, kv, of_head(layout, tables, h, kKvHeads), 0.2f);
      const int width = kHeads / kKvHeads * kSize;
      EXPECT_TRUE(same_bits(y.columns(h * width, width), one.columns(h * width, width))) << name_of(dtype);
      EXPECT_FALSE(same_bits(y, one)) << "otherwise this tests nothing";
    }
  }
}

TEST_P(ParityOfPages, NeedsRoomForBounds) {
  Cache cache(1, kSlots, kRows, kKvHeads, kSize, DType::bf16);
  cache.layers[0].bounds = 0;
  const std::int32_t page = 0;
  EXPECT_THROW(backend->bound_pages(cache.layers, {&page, 1}), Error);
}

INSTANTIATE_TEST_SUITE_P(Backends, ParityOfPages, ::testing::Values("reference", "", "scalar"),
                         [](const auto& info) { return info.param.empty() ? "best" : info.param; });

}  // namespace
}  // namespace foretoken::test
