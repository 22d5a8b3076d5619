// attend of the CPU backend: see attend_rows.h for the mathematics. Here the rows are divided into blocks that share
// keys and values, and the blocks are distributed to threads.
#include <algorithm>
#include <vector>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/error.h"

namespace foretoken {
namespace {

struct RowBlock {
  int row, rows;
};

// Multiplications that take longer than a fork: 0.6 us, or 0.2 us with workers that spin.
constexpr std::int64_t kForkProducts = 16000;

// Consecutive rows of one block table, in as few blocks as possible, of about equal sizes.
std::vector<RowBlock> blocks_of(const Layout& layout, int most) {
  std::vector<RowBlock> blocks;
  const std::int32_t* owner = layout.owner.data<std::int32_t>();
  for (int begin = 0, end; begin < layout.rows; begin = end) {
    for (end = begin + 1; end < layout.rows && owner[end] == owner[begin]; ++end) {
    }
    const int n = end - begin, count = (n + most - 1) / most;
    for (int b = 0; b < count; ++b) blocks.push_back({begin + n * b / count, n * (b + 1) / count - n * b / count});
  }
  return blocks;
}

CacheNumbers numbers_of(DType cache) {
  if (cache == DType::bf16) return CacheNumbers::bf16;
  if (cache == DType::i8) return CacheNumbers::int8;
  return cache == DType::e4m3 ? CacheNumbers::e4m3 : CacheNumbers::f32;
}

Attention describe(const Tensor& q, const Tensor& y, const KvLayer& kv, const Layout& layout,
                   const AttentionRules& rules) {
  Attention a{};
  a.q = q.data<float>(), a.q_stride = q.row_stride();
  a.y = y.data<float>(), a.y_stride = y.row_stride();
  a.pool = kv.pool.data<std::byte>();
  a.page_bytes = kv.pool.row_stride(), a.keys = kv.keys, a.values = kv.values;
  a.page_rows = kv.page_rows, a.kv_heads = kv.kv_heads, a.head_size = kv.head_size, a.value_size = kv.value_size();
  a.heads = int(q.dim(1)) / kv.head_size;
  a.numbers = numbers_of(kv.dtype), a.scaled = has_scales(kv.dtype);
  a.key_scales = kv.key_scales, a.value_scales = kv.value_scales;
  a.row_bytes = kv.head_size * size_of(kv.dtype);
  a.scale = rules.scale, a.softcap = rules.softcap;
  a.sinks = rules.sinks ? rules.sinks.data<float>() : nullptr;
  a.owner = layout.owner.data<std::int32_t>();
  a.visible = layout.visible.data<std::int32_t>();
  a.first = layout.first.data<std::int32_t>();
  a.words = layout.words;
  a.ancestors = layout.ancestors.data<std::uint64_t>(), a.ancestors_stride = layout.ancestors.row_stride();
  a.tables = layout.tables.data<std::int32_t>(), a.tables_stride = layout.tables.row_stride(),
  a.head_tables = layout.head_tables;
  return a;
}

}  // namespace

Tensor CpuBackend::attend(const Tensor& q, const KvLayer& kv, const Layout& layout, const AttentionRules& rules) {
  if (kv.head_size > kMaxHeadSize)
    throw Error("attend: heads of " + std::to_string(kv.head_size) + " numbers; the cpu backend takes at most " +
                std::to_string(kMaxHeadSize) + ", the reference backend takes any");
  Tensor y = allocate({q.dim(0), q.dim(1) / kv.head_size * kv.value_size()}, DType::f32);
  const Attention a = describe(q, y, kv, layout, rules);
  const int group = a.heads / a.kv_heads;          // query heads that read one kv head
  const int heads = std::min(group, kMaxQueries);  // of them in one call
  const int parts = (group + heads - 1) / heads;
  const std::vector<RowBlock> blocks = blocks_of(layout, kMaxQueries / heads);
  const int n = int(blocks.size());
  const auto one = [&](int i) {  // one kv head after the other, so that each thread reads few of them
    const RowBlock& block = blocks[std::size_t(i % n)];
    const int part = i / n % parts, head = i / n / parts * group + part * heads;
    operations_.attend(a, block.row, block.rows, head, std::min(heads, group - part * heads));
  };
  std::int64_t slots = 0;
  for (int r = 0; r < layout.rows; ++r) slots += a.visible[r];
  if (slots * q.dim(1) < kForkProducts) {
    for (int i = 0; i < n * parts * a.kv_heads; ++i) one(i);
  } else {
    pool_.run(n * parts * a.kv_heads, one);
  }
  return y;
}

}  // namespace foretoken
