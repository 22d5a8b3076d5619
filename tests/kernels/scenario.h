// Random inputs for the tests of operations: tensors, paged caches and layouts. Memory that an operation must not read
// holds NaN.
#pragma once
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "kernels/backend.h"
#include "kernels/formats/formats.h"
#include "kernels/host_backend.h"

namespace foretoken::test {

inline constexpr float kNan = std::numeric_limits<float>::quiet_NaN(),
                       kInfinity = std::numeric_limits<float>::infinity();

inline Tensor random_tensor(Shape shape, unsigned seed, float scale = 1) {
  Tensor t = Tensor::host(shape, DType::f32);
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal(0, scale);
  for (float& v : t.values<float>()) v = normal(engine);
  return t;
}

inline Tensor rounded(const Tensor& t) {  // to bf16, as bf16
  Tensor b = Tensor::host(t.shape(), DType::bf16);
  for (std::int64_t i = 0; i < t.elements(); ++i) b.data<bf16>()[i] = bf16(t.data<float>()[i]);
  return b;
}

inline Tensor through_bf16(const Tensor& t) {  // to bf16 and back
  Tensor b = Tensor::host(t.shape(), DType::f32);
  for (std::int64_t r = 0; r < t.dim(0); ++r)
    for (std::int64_t i = 0; i < t.dim(1); ++i) b.row<float>(r)[i] = float(bf16(t.row<float>(r)[i]));
  return b;
}

constexpr int kWickedRows = 14;

// Logits with invalid and extreme rows: NaN, infinities, ties at the peak and everywhere, zeros of both signs, one
// finite token.
inline Tensor wicked_logits(int vocab, unsigned seed) {
  constexpr float infinity = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  Tensor t = random_tensor({kWickedRows, vocab}, seed, 3);
  const auto row = [&](int r) { return std::span<float>(t.row<float>(r), std::size_t(vocab)); };
  for (float& v : row(1)) v = std::round(v);  // ties
  for (float& v : row(2)) v = 1.5f;           // all equal
  row(3)[std::size_t(vocab / 2)] = nan;
  row(4)[std::size_t(vocab - 1)] = infinity;
  for (float& v : row(5)) v = -infinity;
  for (int i = 0; i < vocab; i += 2) row(6)[std::size_t(i)] = -infinity;  // masked
  for (float& v : row(7)) v *= 100;                                       // weights that underflow
  std::fill(row(8).begin() + 1, row(8).end(), -infinity);
  row(9)[std::size_t(vocab - 1)] = 50;  // the last token dominates
  row(10)[0] = nan;
  for (float& v : row(11)) v = v * 1e-3f - 7;  // nearly flat
  for (float& v : row(12)) v = -0.0f;
  for (std::size_t i = 0; i < std::size_t(vocab); ++i) row(13)[i] = i % 3 ? 0.0f : -0.0f;
  return t;
}

inline Tensor copy_of(const Tensor& t) {
  Tensor c = Tensor::host(t.shape(), t.dtype());
  std::memcpy(c.raw(), t.raw(), std::size_t(t.bytes()));
  return c;
}

template <class T> Tensor listed(const std::vector<T>& v, DType dtype) {
  return Tensor::host_copy(std::span<const T>(v), dtype);
}
inline Tensor integers(const std::vector<std::int32_t>& v) { return listed(v, DType::i32); }

// The greatest distance between two tensors, over the greatest magnitude of the second.
inline double distance(const Tensor& a, const Tensor& b) {
  if (a.shape() != b.shape()) return std::numeric_limits<double>::infinity();
  double most = 0, far = 0;
  for (std::int64_t r = 0; r < a.dim(0); ++r) {
    for (std::int64_t i = 0; i < a.dim(1); ++i) {
      const double d = std::abs(double(a.row<float>(r)[i]) - b.row<float>(r)[i]);
      if (std::isnan(d)) return std::numeric_limits<double>::infinity();
      far = std::max(far, d), most = std::max(most, std::abs(double(b.row<float>(r)[i])));
    }
  }
  return most > 0 ? far / most : far;
}

inline bool same_row(const Tensor& a, std::int64_t i, const Tensor& b, std::int64_t j) {
  return a.dim(1) == b.dim(1) &&
         std::memcmp(a.row<float>(i), b.row<float>(j), std::size_t(a.dim(1)) * sizeof(float)) == 0;
}

inline bool same_bits(const Tensor& a, const Tensor& b) {
  if (a.shape() != b.shape()) return false;
  for (std::int64_t r = 0; r < a.dim(0); ++r)
    if (!same_row(a, r, b, r)) return false;
  return true;
}

inline Weight random_weight(std::int64_t out, std::int64_t in, DType dtype, unsigned seed) {
  const Tensor t = random_tensor({out, in}, seed, 0.5f);
  if (dtype == DType::f32) return Weight::dense(t);
  if (dtype == DType::bf16) return Weight::dense(rounded(t));
  if (dtype == DType::i8) {
    for (int group : {32, 11, 7, 5, 3, 1})
      if (in % group == 0) return quantize(Weight::dense(t), formats::int8_group(), group);
  }
  Tensor h = Tensor::host(t.shape(), DType::f16);  // any finite bit pattern
  std::mt19937 engine(seed);
  for (std::uint16_t& v : h.values<std::uint16_t>()) v = std::uint16_t((engine() & 0x8fffu) | 0x2000u);
  return Weight::dense(h);
}

// One row: its sequence, its slot, its depth, and the slots that it attends to.
struct ScenarioRow {
  int owner, slot, position, visible;
  std::vector<std::uint64_t> ancestors;
};

inline ScenarioRow chain_row(int owner, int slot) { return {owner, slot, slot, slot + 1, {}}; }

// All arrays of a layout; some may be absent.
inline std::array<Tensor*, 8> columns_of(Layout& l) {
  return {&l.positions, &l.slots, &l.owner, &l.begins, &l.visible, &l.first, &l.ancestors, &l.tables};
}

// The same layout, but every row attends to at most `window` positions of its chain.
inline Layout windowed(Layout layout, int window) {
  std::vector<std::int32_t> first;
  for (int r = 0; r < layout.rows; ++r)
    first.push_back(std::max(0, layout.positions.data<std::int32_t>()[r] + 1 - window));
  layout.first = integers(first);
  return layout;
}

inline Layout layout_of(const std::vector<ScenarioRow>& rows, const Tensor& tables, int words) {
  Layout layout;
  layout.rows = int(rows.size()), layout.sequences = int(tables.dim(0)), layout.words = words,
  layout.table_width = int(tables.dim(1));
  std::vector<std::int32_t> positions, slots, owner, visible;
  std::vector<std::uint64_t> bits;
  for (const ScenarioRow& r : rows) {
    positions.push_back(r.position), slots.push_back(r.slot), owner.push_back(r.owner), visible.push_back(r.visible);
    layout.deepest = std::max(layout.deepest, r.visible + 64 * words);
    for (int w = 0; w < words; ++w) bits.push_back(w < int(r.ancestors.size()) ? r.ancestors[std::size_t(w)] : 0);
  }
  layout.positions = integers(positions), layout.slots = integers(slots), layout.owner = integers(owner),
  layout.visible = integers(visible);
  if (words > 0) layout.ancestors = listed(bits, DType::u64).reshaped({layout.rows, words});
  layout.tables = tables;
  if (std::is_sorted(owner.begin(), owner.end())) {
    std::vector<std::int32_t> begins;
    for (int i = 0; i <= layout.sequences; ++i)
      begins.push_back(std::int32_t(std::lower_bound(owner.begin(), owner.end(), i) - owner.begin()));
    for (int i = 0; i < layout.sequences; ++i)
      layout.longest = std::max(layout.longest, begins[std::size_t(i) + 1] - begins[std::size_t(i)]);
    layout.begins = integers(begins);
  }
  return layout;
}

// The same layout, which says which of the first tables have no row with ancestors.
inline Layout with_straight(Layout layout) {
  const std::int32_t *begins = layout.begins.data<std::int32_t>(), *visible = layout.visible.data<std::int32_t>();
  const auto bits = [&](int r) {
    const std::uint64_t* const words = layout.ancestors.row<std::uint64_t>(r);
    return std::any_of(words, words + layout.words, [](std::uint64_t w) { return w != 0; });
  };
  Layout::Straight& s = layout.straight;
  for (s = {}; s.sequences < layout.sequences; ++s.sequences) {
    const int begin = begins[s.sequences], end = begins[s.sequences + 1];
    for (int r = begin; r < end; ++r)
      if (bits(r)) return layout;
    for (int r = begin; r < end; ++r) s.deepest = std::max(s.deepest, int(visible[r]));
    s.rows = end, s.longest = std::max(s.longest, end - begin);
  }
  return layout;
}

// A pool of pages in random order, all NaN, with two layers in a page; scales of codes are behind the numbers, and room
// for bounds behind the scales.
struct Cache {
  Tensor pool, tables;
  std::vector<KvLayer> layers;

  Cache(int sequences, int slots, int page_rows, int kv_heads, int head_size, DType dtype, unsigned seed = 1) {
    const int width = (slots + page_rows - 1) / page_rows, pages = sequences * width + 3;
    const std::int64_t plane = std::int64_t(page_rows) * kv_heads * head_size * size_of(dtype),
                       scales = has_scales(dtype) ? std::int64_t(page_rows) * kv_heads * 4 : 0,
                       of_scales = (64 + 4 * plane + 15) / 16 * 16, of_bounds = (of_scales + 4 * scales + 15) / 16 * 16,
                       bounds = std::int64_t(2) * kv_heads * head_size * size_of(bounds_type(dtype));
    pool = Tensor::host({pages, (of_bounds + 2 * bounds + 15) / 16 * 16}, DType::u8);
    std::memset(pool.raw(), 0xff, std::size_t(pool.bytes()));
    for (int l = 0; l < 2; ++l)
      layers.push_back({pool, 64 + l * 2 * plane, 64 + (l * 2 + 1) * plane, page_rows, kv_heads, head_size, dtype,
                        of_scales + 2 * l * scales, of_scales + (2 * l + 1) * scales, of_bounds + l * bounds});
    std::vector<std::int32_t> order;
    for (int i = 0; i < pages; ++i) order.push_back(i);
    std::shuffle(order.begin(), order.end(), std::mt19937(seed));
    order.resize(std::size_t(sequences * width));
    tables = integers(order).reshaped({sequences, width});
  }
};

// All that a cache has in one slot of a sequence, of all layers and heads, as bytes.
inline std::string slot_bytes(const Cache& cache, int sequence, int slot) {
  std::string all;
  for (const KvLayer& kv : cache.layers)
    for (const KvPlane& plane : KvPlanes(kv))
      for (int h = 0; h < kv.kv_heads; ++h) {
        const std::byte* const row = slot_address(kv, plane, cache.tables.row<std::int32_t>(sequence), slot);
        all.append(reinterpret_cast<const char*>(row) + h * kv.page_rows * plane.bytes, std::size_t(plane.bytes));
      }
  return all;
}

// Slot from[i] of a sequence moves to slot to[i].
inline std::vector<Moves::Row> moved_rows(const Cache& cache, int sequence, const std::vector<std::int32_t>& from,
                                          const std::vector<std::int32_t>& to) {
  const int page_rows = cache.layers.front().page_rows;
  const auto at = [&](std::int32_t slot) {
    return PageRow{cache.tables.row<std::int32_t>(sequence)[slot / page_rows], slot % page_rows};
  };
  std::vector<Moves::Row> rows;
  for (std::size_t i = 0; i < from.size(); ++i) rows.push_back({at(from[i]), at(to[i])});
  return rows;
}
inline void move(Backend& backend, const Cache& cache, int sequence, const std::vector<std::int32_t>& from,
                 const std::vector<std::int32_t>& to) {
  const std::vector<Moves::Row> rows = moved_rows(cache, sequence, from, to);
  const Moves moves{cache.layers, rows};
  backend.move({&moves, 1});
}

// Writes random keys and values for slots [0, slots) of every sequence.
inline void fill(Backend& backend, Cache& cache, int slots, unsigned seed) {
  std::vector<ScenarioRow> rows;
  for (int s = 0; s < int(cache.tables.dim(0)); ++s)
    for (int i = 0; i < slots; ++i) rows.push_back(chain_row(s, i));
  for (const KvLayer& kv : cache.layers) {
    const Shape shape{std::int64_t(rows.size()), std::int64_t(kv.kv_heads) * kv.head_size};
    backend.store(random_tensor(shape, seed), random_tensor(shape, seed + 100), kv, layout_of(rows, cache.tables, 0));
    ++seed;
  }
}

}  // namespace foretoken::test
