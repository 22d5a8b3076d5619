// attention_mass of the CPU backend: one unit of work for each block table and kv head, which reads every key once for
// all queries. Bytes: the keys of the context, and 4 a score, which are kept until the peak of their row is known.
// Operations: 2 * rows * heads * slots * head_size, and one exponential a score.
#include <cmath>
#include <vector>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/host_keys.h"

namespace foretoken {
namespace {

// A row's query head and its scores, which become weights.
struct MassQuery {
  const float* q;
  int row;
  float sink;                 // -infinity: there is none
  std::vector<float> scores;  // by slot; -infinity where the row does not attend
};

bool attends(const Layout& layout, int row, std::int32_t slot) {
  if (layout.first && slot < layout.first.data<std::int32_t>()[row]) return false;
  const std::int32_t behind = slot - layout.visible.data<std::int32_t>()[row];
  if (behind < 0) return true;
  return behind < 64 * layout.words &&
         (layout.ancestors.row<std::uint64_t>(row)[behind / 64] >> (behind % 64) & 1u) != 0;
}

// Sixteen sums in turn: of vectors, and in an order that depends on the head's size alone.
float dot_of(const float* a, const float* b, int n) {
  float sums[16] = {};
  int i = 0;
  for (; i + 16 <= n; i += 16)
    for (int k = 0; k < 16; ++k) sums[k] += a[i + k] * b[i + k];
  for (int k = 0; i + k < n; ++k) sums[k] += a[i + k] * b[i + k];
  for (int step = 8; step > 0; step /= 2)
    for (int k = 0; k < step; ++k) sums[k] += sums[k + step];
  return sums[0];
}

// The mass of the queries of one block table and kv head, by page.
std::vector<double> mass_of(std::vector<MassQuery>& queries, const KvLayer& kv, const Layout& layout,
                            const std::int32_t* table, int head, const AttentionRules& rules) {
  std::vector<double> pages(std::size_t(layout.table_width), 0.0);
  const std::int32_t end = std::min(layout.deepest, layout.table_width * kv.page_rows);
  for (MassQuery& query : queries) query.scores.assign(std::size_t(end), -INFINITY);
  std::vector<float> key(std::size_t(kv.head_size));
  for (std::int32_t slot = 0; slot < end; ++slot) {
    bool read = false;
    for (MassQuery& query : queries) {
      if (!attends(layout, query.row, slot)) continue;
      if (!read) {
        const std::byte* const page = kv.pool.row<std::byte>(table[slot / kv.page_rows]);
        read_key(kv, page, slot % kv.page_rows, head, key.data()), read = true;
      }
      const float score = rules.scale * dot_of(query.q, key.data(), kv.head_size);
      query.scores[std::size_t(slot)] = float(capped(score, rules.softcap));
    }
  }
  for (MassQuery& query : queries) {
    float peak = query.sink;
    for (const float s : query.scores) peak = std::max(peak, s);
    double mass = query.sink == -INFINITY ? 0.0 : std::exp(double(query.sink) - double(peak));
    for (float& s : query.scores) mass += double(s = s == -INFINITY ? 0.0f : std::exp(s - peak));
    for (std::int32_t slot = 0; slot < end; ++slot)
      pages[std::size_t(slot / kv.page_rows)] += double(query.scores[std::size_t(slot)]) / mass;
  }
  return pages;
}

}  // namespace

Tensor CpuBackend::attention_mass(const Tensor& q, const KvLayer& kv, const Layout& layout,
                                  const AttentionRules& rules) {
  Tensor all = allocate({layout.sequences, layout.table_width}, DType::f32);
  const int group = int(q.dim(1)) / kv.head_size / kv.kv_heads;
  std::vector<std::vector<double>> parts(std::size_t(layout.sequences) * std::size_t(kv.kv_heads));
  pool_.run(int(parts.size()), [&](int i) {
    const int table = i / kv.kv_heads, head = i % kv.kv_heads;
    std::vector<MassQuery> queries;
    for (int r = 0; r < layout.rows; ++r)
      for (int h = head * group; layout.owner.data<std::int32_t>()[r] == table && h < (head + 1) * group; ++h)
        queries.push_back({q.row<float>(r) + std::int64_t(h) * kv.head_size,
                           r,
                           rules.sinks ? rules.sinks.data<float>()[h] : -INFINITY,
                           {}});
    parts[std::size_t(i)] = mass_of(queries, kv, layout, layout.tables.row<std::int32_t>(table), head, rules);
  });
  for (int table = 0; table < layout.sequences; ++table)
    for (int page = 0; page < layout.table_width; ++page) {
      double sum = 0;
      for (int h = 0; h < kv.kv_heads; ++h) sum += parts[std::size_t(table * kv.kv_heads + h)][std::size_t(page)];
      all.row<float>(table)[page] = float(sum);
    }
  return all;
}

}  // namespace foretoken
