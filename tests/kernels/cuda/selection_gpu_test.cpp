// bound_pages and select_pages on the GPU against the reference, many candidates, ties; a table selects the same pages
// whatever other tables are in the batch; and attention to the block tables of each kv head, on every route, has the
// bits of attention to those of one head.
#include <numeric>
#include <set>

#include <gtest/gtest.h>

#include "tests/kernels/cuda/gpu.h"
#include "tests/kernels/selection.h"

namespace foretoken::test {
namespace {

Layout selection_on_gpu(Layout l) {
  l = on_gpu(l);
  for (Tensor* t : {&l.selection.candidates, &l.selection.counts, &l.selection.chosen, &l.selection.choosing})
    if (*t) *t = gpu().upload(*t);
  return l;
}

std::vector<std::int32_t> all_pages(const Cache& cache) {
  std::vector<std::int32_t> pages(std::size_t(cache.pool.dim(0)));
  std::iota(pages.begin(), pages.end(), 0);
  return pages;
}

std::vector<KvLayer> layers_on_gpu(const Cache& cache) {
  std::vector<KvLayer> layers = cache.layers;
  layers[0].pool = layers[1].pool = gpu().upload(cache.pool);
  return layers;
}

TEST(SelectPages, BoundsAreTheReferences) {
  const std::unique_ptr<Backend> reference = make_reference_backend();
  for (const DType dtype : {DType::f32, DType::bf16, DType::i8, DType::e4m3})
    for (const int page_rows : {5, 16}) {
      Cache cache(2, 160, page_rows, 3, 48, dtype);
      fill(*reference, cache, 160, 7);
      const std::vector<KvLayer> layers = layers_on_gpu(cache);
      std::vector<std::int32_t> pages(cache.tables.row<std::int32_t>(1), cache.tables.row<std::int32_t>(1) + 10);
      gpu().bound_pages(layers, pages);
      const Tensor before = copy_of(cache.pool);
      reference->bound_pages(cache.layers, pages);
      EXPECT_NE(std::memcmp(before.raw(), cache.pool.raw(), std::size_t(before.bytes())), 0);
      EXPECT_EQ(std::memcmp(fetched(layers[0].pool).raw(), cache.pool.raw(), std::size_t(cache.pool.bytes())), 0)
          << name_of(dtype) << ", pages of " << page_rows;
    }
}

struct SelectCase {
  int head_size = 128, kv_heads = 2, group = 4, slots = 4000;
  DType cache = DType::bf16, queries = DType::bf16;
  std::vector<std::int32_t> counts, chosen;
};

// The score of a page, in double.
double score(const Tensor& q, const KvLayer& kv, const Layout& layout, int table, int head, std::int32_t page) {
  const std::int32_t* const begins = layout.begins.data<std::int32_t>();
  const int group = int(q.dim(1)) / kv.head_size / kv.kv_heads;
  const auto bound = [&](int i, bool greatest) {
    const std::byte* const p = kv.pool.row<std::byte>(page) + kv.bounds;
    const std::int64_t at = ((greatest ? kv.kv_heads : 0) + head) * kv.head_size + i;
    return kv.dtype == DType::f32 ? double(reinterpret_cast<const float*>(p)[at])
                                  : double(float(reinterpret_cast<const bf16*>(p)[at]));
  };
  double most = -1e30;
  for (int r = begins[table]; r < begins[table + 1]; ++r)
    for (int g = head * group; g < (head + 1) * group; ++g) {
      double sum = 0;
      for (int i = 0; i < kv.head_size; ++i) {
        const double x = double(q.row<float>(r)[g * kv.head_size + i]);
        sum += std::max(x * bound(i, false), x * bound(i, true));
      }
      most = std::max(most, sum);
    }
  return most;
}

// Rows that do not choose might as well not be there.
void without_rows_that_do_not_choose(const SelectCase& c, const Cache& cache, const KvLayer& layer,
                                     const std::vector<ScenarioRow>& rows, const Tensor& given, const Layout& layout) {
  for (const std::vector<std::int32_t>& choosing : {std::vector<std::int32_t>{1, 1, 1}, {1, 2, 3}, {1, 2, 4}}) {
    std::vector<std::size_t> kept;
    for (const auto& [table, begin] : {std::pair(0, 0), {1, 1}, {2, 3}})
      for (int n = 0; n < choosing[std::size_t(table)]; ++n) kept.push_back(std::size_t(begin + n));
    std::vector<ScenarioRow> few_rows;
    const std::int64_t count = std::int64_t(kept.size());
    const Tensor of_few = Tensor::host({count, given.dim(1)}, given.dtype());
    const std::size_t bytes = std::size_t(of_few.bytes() / count);
    for (std::size_t to = 0; to < kept.size(); ++to) {
      few_rows.push_back(rows[kept[to]]);
      std::memcpy(static_cast<std::byte*>(of_few.raw()) + to * bytes,
                  static_cast<const std::byte*>(given.raw()) + kept[to] * bytes, bytes);
    }
    Layout first = layout;
    const Layout few = selecting(layout_of(few_rows, cache.tables, 0), cache, c.counts, c.chosen);
    first.selection.choosing = integers(choosing);
    EXPECT_TRUE(same_bits(fetched(gpu().select_pages(gpu().upload(given), layer, selection_on_gpu(first))),
                          fetched(gpu().select_pages(gpu().upload(of_few), layer, selection_on_gpu(few)))));
  }
}

// Scores of the reference decide, but for pages whose scores are as near as other orders of sums make them.
void compare(const SelectCase& c) {
  SCOPED_TRACE(::testing::Message() << "head " << c.head_size << ", cache " << name_of(c.cache));
  const std::unique_ptr<Backend> reference = make_reference_backend();
  Cache cache(3, c.slots, 16, c.kv_heads, c.head_size, c.cache);
  fill(*reference, cache, c.slots, 3);
  const std::vector<KvLayer> layers = layers_on_gpu(cache);
  gpu().bound_pages(layers, all_pages(cache));
  reference->bound_pages(cache.layers, all_pages(cache));
  const std::vector<ScenarioRow> rows{chain_row(0, 100), chain_row(1, 40), chain_row(1, 41), chain_row(2, 5),
                                      chain_row(2, 6),   chain_row(2, 7),  chain_row(2, 8)};
  const Tensor q = random_tensor({7, std::int64_t(c.kv_heads) * c.group * c.head_size}, 8),
               given = c.queries == DType::bf16 ? rounded(q) : q, seen = c.queries == DType::bf16 ? through_bf16(q) : q;
  const Layout layout = selecting(layout_of(rows, cache.tables, 0), cache, c.counts, c.chosen);
  const Tensor right = reference->select_pages(seen, cache.layers[1], layout),
               got = fetched(gpu().select_pages(gpu().upload(given), layers[1], selection_on_gpu(layout)));
  for (std::int64_t t = 0; t < right.dim(0); ++t) {
    const std::int32_t *const a = right.row<std::int32_t>(t), *const b = got.row<std::int32_t>(t);
    const int table = int(t / c.kv_heads), head = int(t % c.kv_heads), chosen = c.chosen[std::size_t(table)];
    const std::set<std::int32_t> these(a, a + chosen), those(b, b + chosen);
    EXPECT_EQ(those.size(), std::size_t(chosen)) << "no page twice";
    double least = 1e30;  // of the reference's choice
    for (const std::int32_t page : these)
      least = std::min(least, score(seen, cache.layers[1], layout, table, head, page));
    for (const std::int32_t page : those)
      EXPECT_GE(score(seen, cache.layers[1], layout, table, head, page), least - 1e-4 * std::abs(least)) << page;
    const std::int32_t* const candidates = cache.tables.row<std::int32_t>(table);
    const auto place = [&](std::int32_t page) { return std::find(candidates, candidates + layout.table_width, page); };
    EXPECT_TRUE(std::is_sorted(b, b + chosen, [&](auto x, auto y) { return place(x) < place(y); })) << "table " << t;
    EXPECT_TRUE(std::equal(a + chosen, a + layout.table_width, b + chosen)) << "the tail of table " << t;
  }
  // Alone, the second table selects the same.
  Layout alone = layout_of({chain_row(0, 40), chain_row(0, 41)}, cache.tables.rows(1, 1), 0);
  alone.tables = layout.tables.rows(1, 1), alone.table_width = layout.table_width;
  alone.selection = {layout.selection.width,
                     layout.selection.candidates.rows(1, 1),
                     integers({c.counts[1]}),
                     integers({c.chosen[1]}),
                     {}};
  const Tensor one = fetched(gpu().select_pages(gpu().upload(given.rows(1, 2)), layers[1], selection_on_gpu(alone)));
  EXPECT_EQ(std::memcmp(one.raw(), got.row<std::int32_t>(c.kv_heads), std::size_t(one.bytes())), 0);
  without_rows_that_do_not_choose(c, cache, layers[1], rows, given, layout);
}

TEST(SelectPages, AreTheReferences) {
  compare({.counts = {250, 100, 17}, .chosen = {16, 99, 1}});
  compare({.head_size = 64, .queries = DType::f32, .counts = {250, 33, 0}, .chosen = {250, 0, 0}});
  compare({.head_size = 80, .group = 3, .cache = DType::f32, .counts = {64, 3, 200}, .chosen = {13, 2, 100}});
  compare(
      {.head_size = 20, .cache = DType::f32, .queries = DType::f32, .counts = {64, 3, 200}, .chosen = {13, 2, 100}});
  compare({.head_size = 256, .cache = DType::i8, .counts = {64, 3, 200}, .chosen = {13, 2, 100}});
  compare({.cache = DType::e4m3, .counts = {250, 100, 17}, .chosen = {64, 50, 16}});
}

// More candidates than a block has in registers.
TEST(SelectPages, OfAnyNumber) {
  compare({.head_size = 16,
           .kv_heads = 1,
           .group = 1,
           .slots = 144000,
           .counts = {8999, 8192, 8193},
           .chosen = {256, 8000, 1}});
}

TEST(SelectPages, TakesTheFirstOfEqualScores) {
  Cache cache(1, 4000, 16, 2, 64, DType::bf16);
  std::vector<KvLayer> layers = layers_on_gpu(cache);
  std::vector<ScenarioRow> rows;
  for (int i = 0; i < 4000; ++i) rows.push_back(chain_row(0, i));
  const Tensor same = Tensor::host({4000, 2 * 64}, DType::f32);
  std::ranges::fill(same.values<float>(), 0.5f);
  gpu().store(gpu().upload(same), gpu().upload(same), layers[0], on_gpu(layout_of(rows, cache.tables, 0)));
  gpu().bound_pages({layers.data(), 1}, all_pages(cache));
  for (const float of_q : {1.0f, -2.0f, 0.0f, kNan}) {
    const Tensor q = Tensor::host({1, 8 * 64}, DType::f32);
    std::ranges::fill(q.values<float>(), of_q);
    const Layout layout = selecting(layout_of({chain_row(0, 59)}, cache.tables, 0), cache, {250}, {100});
    const Tensor tables = fetched(gpu().select_pages(gpu().upload(q), layers[0], selection_on_gpu(layout)));
    for (int h = 0; h < 2; ++h)
      for (int i = 0; i < 100; ++i)
        ASSERT_EQ(tables.row<std::int32_t>(h)[i], cache.tables.row<std::int32_t>(0)[i]) << of_q;
  }
}

// Three pages above, many equal at the cut, in several warps, and the others below.
TEST(SelectPages, TakesTheFirstOfThoseThatAreEqualAtTheCut) {
  for (const int slots : {4000, 144000}) {
    const int pages = slots / 16, chosen = pages / 3;
    Cache cache(1, slots, 16, 2, 16, DType::f32);
    const std::vector<KvLayer> layers = layers_on_gpu(cache);
    std::vector<ScenarioRow> rows;
    for (int i = 0; i < slots; ++i) rows.push_back(chain_row(0, i));
    const auto of_page = [&](int page) {
      return page == 5 || page == pages / 2 || page == pages - 1 ? 2.0f : page % 2 ? 1.0f : 0.0f;
    };
    const Tensor keys = Tensor::host({slots, 2 * 16}, DType::f32);
    for (int i = 0; i < slots; ++i) std::fill_n(keys.row<float>(i), 2 * 16, of_page(i / 16));
    gpu().store(gpu().upload(keys), gpu().upload(keys), layers[0], on_gpu(layout_of(rows, cache.tables, 0)));
    gpu().bound_pages({layers.data(), 1}, all_pages(cache));
    const Tensor q = Tensor::host({1, 2 * 16}, DType::f32);
    std::ranges::fill(q.values<float>(), 1.0f);
    const Layout layout = selecting(layout_of({chain_row(0, 59)}, cache.tables, 0), cache, {pages}, {chosen});
    const Tensor tables = fetched(gpu().select_pages(gpu().upload(q), layers[0], selection_on_gpu(layout)));
    std::set<int> right{5, pages / 2, pages - 1};
    for (int page = 0; int(right.size()) < chosen; ++page)
      if (of_page(page) == 1.0f) right.insert(page);
    for (int h = 0; h < 2; ++h) {
      int i = 0;
      for (const int page : right)
        ASSERT_EQ(tables.row<std::int32_t>(h)[i++], cache.tables.row<std::int32_t>(0)[page]) << slots;
    }
  }
}

// Rows of every route: single rows, a tree, a prompt; caches of numbers and of codes; a head that only the plain route
// takes. Attention reads block tables early: what was selected just before must be what it reads.
TEST(SelectPages, HeadsAttendToTheirOwnTables) {
  const std::unique_ptr<Backend> reference = make_reference_backend();
  for (const auto& [head_size, dtype] : {std::pair(128, DType::bf16),
                                         {64, DType::bf16},
                                         {256, DType::bf16},
                                         {128, DType::i8},
                                         {64, DType::e4m3},
                                         {128, DType::f32},
                                         {20, DType::bf16}})
    for (const int form : {0, 1, 2, 3}) {
      SCOPED_TRACE(::testing::Message() << "head " << head_size << ", cache " << name_of(dtype) << ", form " << form);
      Cache cache(2, 2000, 16, 2, head_size, dtype);
      fill(*reference, cache, 2000, unsigned(3 + form));
      const std::vector<KvLayer> layers = layers_on_gpu(cache);
      gpu().bound_pages(layers, all_pages(cache));
      // 90 pages are selected of 120, and those behind begin at slot 1440.
      std::vector<ScenarioRow> rows{chain_row(0, 1450)};
      const bool tree = form == 1 || form == 3;  // of which the last has parts of its own
      if (tree) rows.push_back({1, 1446, 1445, 1444, {0b101}}), rows.push_back({1, 1447, 1445, 1444, {0b1001}});
      for (int slot = 1440; form == 2 && slot < 1510; ++slot) rows.push_back(chain_row(1, slot));
      const Layout layout =
          selecting(form == 3 ? with_straight(layout_of(rows, cache.tables, 1)) : layout_of(rows, cache.tables, tree),
                    cache, {120, 120}, {90, 90});
      const Tensor q =
          gpu().upload(rounded(random_tensor({std::int64_t(rows.size()), 8 * head_size}, unsigned(8 + form))));
      const Layout here = selection_on_gpu(layout);
      Layout heads = here;
      heads.tables = gpu().select_pages(q, layers[0], here), heads.head_tables = true;
      const Tensor y = fetched_wide(gpu().attend(q, layers[0], heads, 0.2f)), tables = fetched(heads.tables);
      EXPECT_NE(std::memcmp(tables.row<std::int32_t>(0), tables.row<std::int32_t>(1), 90 * 4), 0);
      for (int h = 0; h < 2; ++h) {
        const Tensor one = fetched_wide(gpu().attend(q, layers[0], on_gpu(of_head(layout, tables, h, 2)), 0.2f));
        EXPECT_TRUE(
            same_bits(y.columns(h * 4 * head_size, 4 * head_size), one.columns(h * 4 * head_size, 4 * head_size)));
      }
    }
}

}  // namespace
}  // namespace foretoken::test
