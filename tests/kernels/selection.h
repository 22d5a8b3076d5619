// Layouts that select pages, and the block tables of one kv head, for tests of select_pages and of attention to what it
// selects.
#pragma once
#include "tests/kernels/scenario.h"

namespace foretoken::test {

// Of each block table of the cache, the first counts[i] pages are candidates, of which chosen[i] are to be selected.
// The layout's own tables have the chosen ones' places, then the pages behind the candidates.
inline Layout selecting(Layout l, const Cache& cache, const std::vector<std::int32_t>& counts,
                        const std::vector<std::int32_t>& chosen) {
  const int sequences = int(cache.tables.dim(0)), width = int(cache.tables.dim(1));
  l.selection = {width, cache.tables, integers(counts), integers(chosen), {}};
  l.tables = Tensor::host({sequences, width}, DType::i32), l.table_width = width;
  for (int i = 0; i < sequences; ++i) {
    const std::int32_t* const from = cache.tables.row<std::int32_t>(i);
    std::int32_t* const to = l.tables.row<std::int32_t>(i);
    std::fill_n(to, width, 0);
    std::copy(from + counts[std::size_t(i)], from + width, to + chosen[std::size_t(i)]);
  }
  return l;
}

inline Layout of_head(Layout l, const Tensor& tables, int head, int kv_heads) {
  l.tables = Tensor::host({l.sequences, l.table_width}, DType::i32), l.head_tables = false, l.selection = {};
  for (int i = 0; i < l.sequences; ++i)
    std::copy_n(tables.row<std::int32_t>(i * kv_heads + head), l.table_width, l.tables.row<std::int32_t>(i));
  return l;
}
inline Layout of_heads(Layout l, const Tensor& tables) {
  l.tables = tables, l.head_tables = true, l.selection = {};
  return l;
}

}  // namespace foretoken::test
