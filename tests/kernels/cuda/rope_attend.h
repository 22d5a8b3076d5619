// rope_attend on the GPU beside rope_store and then attend: one case, its input, and the comparison of results and
// pages.
#pragma once
#include <gtest/gtest.h>

#include "tests/kernels/cuda/gpu.h"
#include "tests/kernels/scenario.h"

namespace foretoken::test {

struct RopeAttendCase {
  int head_size = 128, group = 4, kv_heads = 2, page_rows = 16, window = 0, padding = 0;
  int bound = 0;  // Layout::deepest is at least this
  int most = 0;   // and Layout::longest is at least this
  int ahead = 0;  // how much positions exceed slots
  DType cache = DType::bf16;
};

// Rows of sequence i: the slots [begins[i], begins[i] + rows[i]).
struct RopeAttendRows {
  std::vector<int> begins, rows;
};

struct RopeAttended {
  Tensor y, pool;
};

inline RopeAttended rope_attended(const RopeAttendCase& c, const Cache& cache, const Layout& layout, const Tensor& qkv,
                                  bool fused) {
  const std::int64_t nq = std::int64_t(c.kv_heads) * c.group * c.head_size,
                     nkv = std::int64_t(c.kv_heads) * c.head_size;
  KvLayer kv = cache.layers[1];
  kv.pool = gpu().upload(copy_of(cache.pool));
  const Tensor x = gpu().upload(rounded(qkv)), q = x.columns(0, nq), k = x.columns(nq, nkv),
               v = x.columns(nq + nkv, nkv);
  const Tensor frequencies = gpu().upload(random_tensor({c.head_size / 2}, 3));
  const Layout there = on_gpu(layout);
  if (fused) return {fetched(gpu().rope_attend(q, k, v, kv, there, frequencies, 0.1f)), fetched(kv.pool)};
  gpu().rope_store(q, k, v, kv, there, frequencies);
  return {fetched(gpu().attend(q, kv, there, 0.1f)), fetched(kv.pool)};
}

// The input of one case: rows of several sequences, some of them padding, and a cache that holds NaN where no row may
// read.
struct RopeAttendScenario {
  std::vector<ScenarioRow> rows;
  std::int64_t real = 0;  // rows that are not padding
  int sequences = 0, deepest = 1;
  Cache cache;

  RopeAttendScenario(const RopeAttendCase& c, const RopeAttendRows& given, unsigned seed)
      : rows(rows_of(given)),
        real(std::int64_t(rows.size())),
        sequences(int(given.begins.size())),
        deepest(deepest_of(rows)),
        cache(sequences + (c.padding > 0), deepest, c.page_rows, c.kv_heads, c.head_size, c.cache, seed) {
    for (int i = 0; i < c.padding; ++i) rows.push_back({sequences, 0, 0, 1, {}});
    fill(*make_cpu_backend(2), cache, deepest, seed);
    for (const ScenarioRow& row : rows)  // slots that are about to be written, and slots that no row attends to
      for (int slot = std::max(0, row.slot); slot < deepest; ++slot) forbid(c, row.owner, slot);
  }

  Layout layout(const RopeAttendCase& c) const {
    Layout l = layout_of(rows, cache.tables, 0);
    l.deepest = std::max(l.deepest, c.bound), l.longest = std::max(l.longest, c.most);
    for (int r = 0; r < l.rows; ++r) *l.positions.row<std::int32_t>(r) += c.ahead;
    return c.window > 0 ? windowed(l, c.window) : l;
  }
  // The page of padding, to whose one slot several rows write; -1: there is none.
  std::int32_t trash() const {
    return real < std::int64_t(rows.size()) ? *cache.tables.row<std::int32_t>(sequences) : -1;
  }

 private:
  static std::vector<ScenarioRow> rows_of(const RopeAttendRows& given) {
    std::vector<ScenarioRow> rows;
    for (std::size_t s = 0; s < given.begins.size(); ++s)
      for (int r = 0; r < given.rows[s]; ++r) rows.push_back(chain_row(int(s), given.begins[s] + r));
    return rows;
  }
  static int deepest_of(const std::vector<ScenarioRow>& rows) {
    int deepest = 1;
    for (const ScenarioRow& row : rows) deepest = std::max(deepest, row.slot + 1);
    return deepest;
  }
  void forbid(const RopeAttendCase& c, int sequence, int slot) {
    std::byte* const page =
        cache.pool.row<std::byte>(*cache.tables.rows(sequence, 1).columns(slot / c.page_rows, 1).data<std::int32_t>());
    for (int h = 0; h < c.kv_heads; ++h)
      for (const KvPlane& plane : KvPlanes(cache.layers[1]))
        std::memset(page + plane.begin + (std::int64_t(h) * c.page_rows + slot % c.page_rows) * plane.bytes, 0xff,
                    std::size_t(plane.bytes));
  }
};

inline void compare_rope_attend(const RopeAttendCase& c, const RopeAttendRows& given, unsigned seed) {
  SCOPED_TRACE(::testing::Message() << "head " << c.head_size << ", group " << c.group << ", page_rows " << c.page_rows
                                    << ", window " << c.window << ", seed " << seed);
  const RopeAttendScenario s(c, given, seed);
  const Layout layout = s.layout(c);
  const Tensor qkv =
      random_tensor({std::int64_t(s.rows.size()), std::int64_t(c.kv_heads) * (c.group + 2) * c.head_size}, seed + 9);
  const RopeAttended apart = rope_attended(c, s.cache, layout, qkv, false),
                     fused = rope_attended(c, s.cache, layout, qkv, true);
  EXPECT_EQ(std::memcmp(apart.y.raw(), fused.y.raw(), std::size_t(apart.y.rows(0, s.real).bytes())), 0);
  for (std::int64_t i = 0; i < s.real * apart.y.dim(1); ++i) ASSERT_FALSE(std::isnan(float(fused.y.data<bf16>()[i])));
  const std::int32_t trash = s.trash();
  for (std::int64_t p = 0; p < apart.pool.dim(0); ++p)
    EXPECT_TRUE(p == trash || std::memcmp(apart.pool.row<std::byte>(p), fused.pool.row<std::byte>(p),
                                          std::size_t(apart.pool.dim(1))) == 0)
        << "page " << p;
  ASSERT_FALSE(::testing::Test::HasFailure());
}

}  // namespace foretoken::test
