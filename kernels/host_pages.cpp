// bound_pages and select_pages of the host's backends. Bytes of a selection: 2 * head_size bounds of every candidate,
// once for all queries of a table and kv head. Operations: 4 * rows * heads * candidates * head_size.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "kernels/cache_codes.h"
#include "kernels/error.h"
#include "kernels/host_backend.h"
#include "kernels/host_keys.h"
#include "kernels/selected_pages.h"

namespace foretoken {
namespace {

template <class T> void bound_page(const KvLayer& kv, std::byte* page) {
  const std::size_t size = std::size_t(kv.head_size);
  T* const least = reinterpret_cast<T*>(page + kv.bounds);
  T* const greatest = least + kv.kv_heads * kv.head_size;
  std::vector<float> key(size), low, high;
  for (int h = 0; h < kv.kv_heads; ++h) {
    low.assign(size, std::numeric_limits<float>::infinity()), high.assign(size, -low.front());
    for (int row = 0; row < kv.page_rows; ++row) {
      read_key(kv, page, row, h, key.data());
      for (std::size_t i = 0; i < size; ++i) low[i] = std::fmin(low[i], key[i]), high[i] = std::fmax(high[i], key[i]);
    }
    std::ranges::transform(low, least + h * kv.head_size, [](float x) { return T(x); });
    std::ranges::transform(high, greatest + h * kv.head_size, [](float x) { return T(x); });
  }
}

// sum_i max(q_i least_i, q_i greatest_i), eight sums in turn.
template <class T> float score_of(const float* q, const T* least, const T* greatest, int n) {
  float sums[8] = {};
  for (int i = 0; i < n; ++i) sums[i % 8] += std::max(q[i] * float(least[i]), q[i] * float(greatest[i]));
  for (int step = 4; step > 0; step /= 2)
    for (int k = 0; k < step; ++k) sums[k] += sums[k + step];
  return sums[0];
}

// The greatest score of a page over the queries.
template <class T>
float page_score(const std::vector<const float*>& queries, const KvLayer& kv, std::int32_t page, int head) {
  const T* const least = reinterpret_cast<const T*>(kv.pool.row<std::byte>(page) + kv.bounds) + head * kv.head_size;
  float most = -std::numeric_limits<float>::infinity();
  for (const float* q : queries)
    most = std::fmax(most, score_of(q, least, least + kv.kv_heads * kv.head_size, kv.head_size));
  return most;
}

// The numbers of the `chosen` highest scores, ascending.
std::vector<int> highest(const std::vector<std::uint32_t>& scores, int chosen) {
  std::vector<int> order(scores.size());
  std::iota(order.begin(), order.end(), 0);
  const auto end = order.begin() + chosen;
  std::nth_element(order.begin(), end, order.end(), [&](int a, int b) {
    const std::uint32_t of_a = scores[std::size_t(a)], of_b = scores[std::size_t(b)];
    return of_a != of_b ? of_a > of_b : a < b;
  });
  order.erase(end, order.end());
  std::ranges::sort(order);
  return order;
}

}  // namespace

void read_key(const KvLayer& kv, const std::byte* page, int row, int head, float* to) {
  const std::int64_t at = std::int64_t(head) * kv.page_rows + row;
  const std::byte* const p = page + kv.keys + at * kv.head_size * size_of(kv.dtype);
  if (has_scales(kv.dtype)) {
    const float scale = reinterpret_cast<const float*>(page + kv.key_scales)[at];
    for (int i = 0; i < kv.head_size; ++i) to[i] = scale * number_of(kv.dtype, p[i]);
  } else if (kv.dtype == DType::bf16) {
    for (int i = 0; i < kv.head_size; ++i) to[i] = float(reinterpret_cast<const bf16*>(p)[i]);
  } else {
    std::copy_n(reinterpret_cast<const float*>(p), kv.head_size, to);
  }
}

void expect_bounds(const KvLayer& kv) {
  if (kv.bounds == 0)
    throw Error(
        "pages of a cache are to be selected by bounds that it has no room for; let Needs::page_bounds state it");
}

void HostBackend::bound_pages(std::span<const KvLayer> layers, std::span<const std::int32_t> pages) {
  for (const KvLayer& kv : layers) expect_bounds(kv);
  for_each(int(pages.size()), [&](int n) {
    for (const KvLayer& kv : layers) {
      std::byte* const page = kv.pool.row<std::byte>(pages[std::size_t(n)]);
      bounds_type(kv.dtype) == DType::f32 ? bound_page<float>(kv, page) : bound_page<bf16>(kv, page);
    }
  });
}

Tensor HostBackend::select_pages(const Tensor& q, const KvLayer& kv, const Layout& layout) {
  expect_bounds(kv);
  const PageSelection& s = layout.selection;
  Tensor tables = allocate({std::int64_t(layout.sequences) * kv.kv_heads, layout.table_width}, DType::i32);
  const int group = int(q.dim(1)) / kv.head_size / kv.kv_heads;
  for_each(layout.sequences * kv.kv_heads, [&](int n) {
    const int table = n / kv.kv_heads, head = n % kv.kv_heads;
    const int count = s.counts.data<std::int32_t>()[table], chosen = s.chosen.data<std::int32_t>()[table];
    const std::int32_t* const candidates = s.candidates.row<std::int32_t>(table);
    std::int32_t* const to = tables.row<std::int32_t>(n);
    std::copy_n(layout.tables.row<std::int32_t>(table), layout.table_width, to);
    if (chosen == count) return void(std::copy_n(candidates, count, to));
    std::vector<const float*> queries;
    const std::int32_t* const begins = layout.begins.data<std::int32_t>();
    const int end = s.choosing ? begins[table] + s.choosing.data<std::int32_t>()[table] : begins[table + 1];
    for (int r = begins[table]; r < end; ++r)
      for (int h = head * group; h < (head + 1) * group; ++h)
        queries.push_back(q.row<float>(r) + std::int64_t(h) * kv.head_size);
    std::vector<std::uint32_t> scores;
    for (int i = 0; i < count; ++i)
      scores.push_back(order_of_score(std::bit_cast<std::uint32_t>(
          bounds_type(kv.dtype) == DType::f32 ? page_score<float>(queries, kv, candidates[i], head)
                                              : page_score<bf16>(queries, kv, candidates[i], head))));
    const std::vector<int> best = highest(scores, chosen);
    for (int i = 0; i < chosen; ++i) to[i] = candidates[best[std::size_t(i)]];
  });
  return tables;
}

}  // namespace foretoken
