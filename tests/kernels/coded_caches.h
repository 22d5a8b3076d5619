// Quantized caches beside caches of the numbers for which their codes stand, for tests of attention.
#pragma once
#include "kernels/cache_codes.h"
#include "kernels/host_backend.h"
#include "tests/kernels/scenario.h"

namespace foretoken::test {

// Random rows whose scales are powers of two, between 2^-3 and 2^3: the greatest magnitude of every head is the
// greatest number of the type times one.
inline Tensor with_simple_scales(Shape shape, int head_size, DType cache, unsigned seed) {
  const float most = cache == DType::i8 ? 127 : 448;
  Tensor t = random_tensor(shape, seed);
  std::mt19937 engine(seed);
  for (std::int64_t r = 0; r < t.dim(0); ++r)
    for (float* head = t.row<float>(r); head < t.row<float>(r) + t.dim(1); head += head_size) {
      const float scale = std::ldexp(1.0f, int(engine() % 7) - 3);
      for (int i = 0; i < head_size; ++i) head[i] = std::clamp(head[i] * 0.25f, -0.9f, 0.9f) * most * scale;
      head[engine() % unsigned(head_size)] = engine() % 2 ? most * scale : -most * scale;
    }
  return t;
}

// The same slots with the numbers that the codes of `cache` stand for, rounded to the type of `to`.
inline void fill_with_meant(Cache& to, const Cache& from, int slots) {
  for (int s = 0; s < int(from.tables.dim(0)); ++s)
    for (std::size_t l = 0; l < 2; ++l) {
      const KvLayer &kv = from.layers[l], &wide = to.layers[l];
      for (int slot = 0; slot < slots; ++slot)
        for (const bool values : {false, true})
          for (std::int64_t h = 0; h < kv.kv_heads; ++h) {
            const std::int32_t* table = from.tables.row<std::int32_t>(s);
            const std::byte* codes = slot_address(kv, values ? kv.values : kv.keys, table, slot);
            const auto* scales = reinterpret_cast<const float*>(
                slot_address(kv, KvPlane{values ? kv.value_scales : kv.key_scales, 4}, table, slot));
            std::byte* numbers =
                slot_address(wide, values ? wide.values : wide.keys, to.tables.row<std::int32_t>(s), slot);
            for (std::int64_t i = 0, at = h * kv.page_rows * kv.head_size; i < kv.head_size; ++i) {
              const float meant = number_of(kv.dtype, codes[at + i]) * scales[h * kv.page_rows];
              if (wide.dtype == DType::f32)
                reinterpret_cast<float*>(numbers)[at + i] = meant;
              else
                reinterpret_cast<bf16*>(numbers)[at + i] = bf16(meant);
            }
          }
    }
}

// Keys and values whose scales are powers of two, in slots [0, slots) of every sequence.
inline void fill_with_simple_scales(Backend& backend, Cache& cache, int slots) {
  std::vector<ScenarioRow> rows;
  for (int s = 0; s < int(cache.tables.dim(0)); ++s)
    for (int slot = 0; slot < slots; ++slot) rows.push_back(chain_row(s, slot));
  for (const KvLayer& kv : cache.layers) {
    const Shape shape{std::int64_t(rows.size()), std::int64_t(kv.kv_heads) * kv.head_size};
    backend.store(with_simple_scales(shape, kv.head_size, kv.dtype, 3),
                  with_simple_scales(shape, kv.head_size, kv.dtype, 4), kv, layout_of(rows, cache.tables, 0));
  }
}

// Chains of two sequences, then a tree behind a prefix of the first.
inline std::vector<Layout> layouts_of(const Cache& cache) {
  std::vector<ScenarioRow> chains, tree;
  for (const int slot : {0, 1, 15, 16, 17, 255, 256, 257, 258, 299}) chains.push_back(chain_row(0, slot));
  for (int slot = 250; slot < 262; ++slot) chains.push_back(chain_row(1, slot));
  for (int n = 0; n < 9; ++n)
    tree.push_back({0, 250 + n, 250 + std::min(n, 3), 250, {(n % 3 ? 1u << (n - 1) : 0u) | 1u << n | 1u}});
  const Layout whole = layout_of(chains, cache.tables, 0);
  return {whole, windowed(whole, 9), windowed(whole, 257), layout_of(tree, cache.tables.rows(0, 1), 1)};
}

}  // namespace foretoken::test
