// Attention of a few rows over paged keys and values, for any kWidth: see Attention in operations.h.
//
//   y = sum_j softmax(f(q . k_j * scale))_j v_j       q [rows, heads, size], k and v [slots, kv_heads, size], f as of
//                                                     AttentionRules
//
// Bytes: 2 * slots * kv_heads * size * sizeof(kv), once for the rows of a sequence that run together and the heads of
// one kv head (at most kMaxQueries pairs). Operations: 4 * slots * heads * size a row, and one exponential a slot and
// head. The context is divided into tiles of kAttendTile slots by depth alone. Each tile has its own softmax, and tiles
// are combined in order. So a row's bits depend on its context, not on the rows beside it.
#pragma once
#include "kernels/cpu/attend_products.h"

namespace foretoken {
namespace {

constexpr float kNothing = -__builtin_inff();

struct Rows {  // the rows of one call
  int row, rows, head, heads;
  int queries() const { return rows * heads; }
};

// Turns the scores of a tile into weights relative to the greatest score, which it returns; `mass` becomes their sum.
inline float soften(float* weights, int n, float* mass) {
  for (int i = n; i % kWidth != 0; ++i) weights[i] = kNothing;
  Floats peaks = spread(kNothing), sum = {};
  for (int i = 0; i < n; i += kWidth) peaks = greater(load<Floats>(weights + i), peaks);
  const float peak = greatest(peaks);
  for (int i = 0; i < n; i += kWidth) {
    const Floats w = exp_weights(load<Floats>(weights + i) - peak);
    sum += w;
    save(weights + i, w);
  }
  *mass = total(sum);
  return peak;
}

// Adds a tile's sums to the result, both relative to the greater peak.
inline void fold(AttendScratch& scratch, int query, int size, bool first, float peak, float mass) {
  if (first) {
    scratch.peak[query] = peak, scratch.mass[query] = mass;
    for (int i = 0; i < size; i += kWidth) save(scratch.result[query] + i, load<Floats>(scratch.sum[query] + i));
    return;
  }
  const float both = peak > scratch.peak[query] ? peak : scratch.peak[query];
  const float before = exp_weights(spread(scratch.peak[query] - both))[0], now = exp_weights(spread(peak - both))[0];
  scratch.peak[query] = both;
  scratch.mass[query] = scratch.mass[query] * before + mass * now;
  for (int i = 0; i < size; i += kWidth)
    save(scratch.result[query] + i,
         load<Floats>(scratch.result[query] + i) * before + load<Floats>(scratch.sum[query] + i) * now);
}

// The scales of `run` adjacent slots of a page, from slot `at` of it on, in f32.
inline void read_scales(const Attention& a, const std::byte* page, int kv_head, int at, int run, float* key,
                        float* value) {
  const float more = a.numbers == CacheNumbers::e4m3 ? 256.0f : 1.0f;  // see E4m3
  const auto* const of_keys = reinterpret_cast<const float*>(page + a.key_scales);
  const auto* const of_values = reinterpret_cast<const float*>(page + a.value_scales);
  const int first = kv_head * a.page_rows + at;
  for (int i = 0; i < run; ++i) key[i] = of_keys[first + i] * more, value[i] = of_values[first + i] * more;
}

// Addresses of the keys and values at depths [from, to) of one row, and their scales. Some keys are repeated at the
// end, so that a batch is always full.
inline void look(const Attention& a, const Rows& r, AttendScratch& scratch, int row, int from, int to) {
  const int kv_head = r.head / (a.heads / a.kv_heads);
  const std::int32_t* table = a.table_of(a.owner[r.row], kv_head);
  const std::int64_t row_bytes = a.row_bytes, head = std::int64_t(kv_head) * a.page_rows * row_bytes;
  Sight& sight = scratch.sight[row];
  const std::byte **key = scratch.key, **value = scratch.value;
  for (int d = from; d < to;) {
    const int slot = d < sight.visible ? d : sight.ancestor();
    const int within = slot % a.page_rows, prefix = sight.visible < to ? sight.visible : to;
    const int run = d >= sight.visible                  ? 1
                    : prefix - d < a.page_rows - within ? prefix - d
                                                        : a.page_rows - within;  // in one page
    const std::byte* const page = a.pool + table[slot / a.page_rows] * a.page_bytes;
    const std::byte* row = page + head + within * row_bytes;
    for (int i = 0; i < run; ++i, row += row_bytes) *key++ = row + a.keys, *value++ = row + a.values;
    if (a.scaled)
      read_scales(a, page, kv_head, within, run, scratch.key_scale + (d - from), scratch.value_scale + (d - from));
    d += run;
  }
  for (int i = 0; i < kWidth; ++i) key[i] = scratch.key[0];
}

// Keys of the prefix at depths [from, to). They are prefetched while values are added up, when memory would be idle.
inline void look_ahead(const Attention& a, const Rows& r, AttendScratch& scratch, int from, int to) {
  const int kv_head = r.head / (a.heads / a.kv_heads);
  const std::int32_t* table = a.table_of(a.owner[r.row], kv_head);
  const std::int64_t row_bytes = a.row_bytes, at = a.keys + std::int64_t(kv_head) * a.page_rows * row_bytes;
  for (int d = from; d < to; ++d)
    scratch.next[scratch.nexts++] = a.pool + table[d / a.page_rows] * a.page_bytes + at + d % a.page_rows * row_bytes;
}

// One tile: depths [begin, end) of every row whose context is that long. The `shared` depths are the same slots for all
// rows.
template <class S>
void tile(const Attention& a, const Rows& r, AttendScratch& scratch, int begin, int end, int shared) {
  const int together = shared < begin ? 0 : (shared < end ? shared : end) - begin;
  const int own = begin + together;  // from this depth on, each row has slots of its own
  const auto stop = [&](int row) { return scratch.sight[row].seen < end ? scratch.sight[row].seen : end; };
  const auto from = [&](int row) { return scratch.sight[row].first > own ? scratch.sight[row].first : own; };
  const auto looks = [&](int row) { return stop(row) > begin && scratch.sight[row].first < end; };
  for (int row = 0; row < r.rows; ++row) {
    if (stop(row) <= from(row)) continue;
    const Sight before = scratch.sight[row];
    look(a, r, scratch, row, from(row), stop(row));
    score<S>(a, scratch, row * r.heads, (row + 1) * r.heads, from(row) - begin, stop(row) - from(row));
    scratch.sight[row] = before;  // its values are read again below
  }
  if (together > 0) look(a, r, scratch, 0, begin, own), score<S>(a, scratch, 0, r.queries(), 0, together);
  float peak[kMaxQueries], mass[kMaxQueries];
  const int size = units_of<S>(a.value_size) * kUnit<S>;
  for (int query = 0; query < r.queries(); ++query) {
    for (int i = 0; i < size; i += kWidth) save(scratch.sum[query] + i, Floats{});
    const int row = query / r.heads;
    if (!looks(row)) continue;
    for (int d = begin; d < scratch.sight[row].first; ++d) scratch.weights[query][d - begin] = kNothing;
    peak[query] = soften(scratch.weights[query], stop(row) - begin, &mass[query]);
  }
  if (together > 0) {
    look_ahead(a, r, scratch, end, shared < end + kAttendTile ? shared : end + kAttendTile);
    mix_queries<S>(a, scratch, 0, r.queries(), 0, together);
    scratch.nexts = 0;
  }
  for (int row = 0; row < r.rows; ++row) {
    if (stop(row) <= from(row)) continue;
    look(a, r, scratch, row, from(row), stop(row));
    mix_queries<S>(a, scratch, row * r.heads, (row + 1) * r.heads, from(row) - begin, stop(row) - from(row));
  }
  for (int query = 0; query < r.queries(); ++query)
    if (looks(query / r.heads))
      fold(scratch, query, size, begin <= scratch.sight[query / r.heads].first, peak[query], mass[query]);
}

// A mass with that of the head's sink, relative to the greatest score of the slots.
inline float with_sink(float mass, float peak, float sink) {
  const bool below = sink <= peak;
  const float e = exp_weights(spread(below ? sink - peak : peak - sink))[0];
  return mass + (below ? e : 1 / e);  // infinite where the slots have nothing of the weight
}

template <class S> void attend(const Attention& a, int row, int rows, int head, int heads) {
  AttendScratch scratch;
  const Rows r{row, rows, head, heads};
  int shared = 1 << 30, deepest = 0, first = 1 << 30;
  for (int i = 0; i < rows; ++i) {
    scratch.sight[i].open(a, row + i);
    if (scratch.sight[i].visible < shared) shared = scratch.sight[i].visible;
    if (scratch.sight[i].seen > deepest) deepest = scratch.sight[i].seen;
    if (scratch.sight[i].first < first) first = scratch.sight[i].first;
  }
  for (int query = 0; query < r.queries(); ++query) {
    const float* q = a.q + (row + query / heads) * a.q_stride + std::int64_t(head + query % heads) * a.head_size;
    arrange<S>(a.head_size, q, a.scale, scratch.q[query]);
    scratch.mass[query] = 0;
  }
  for (int begin = first / kAttendTile * kAttendTile; begin < deepest; begin += kAttendTile)
    tile<S>(a, r, scratch, begin, begin + kAttendTile < deepest ? begin + kAttendTile : deepest, shared);
  for (int query = 0; query < r.queries(); ++query) {
    float* y = a.y + (row + query / heads) * a.y_stride + std::int64_t(head + query % heads) * a.value_size;
    float mass = scratch.mass[query];
    if (a.sinks) mass = with_sink(mass, scratch.peak[query], a.sinks[head + query % heads]);
    restore<S>(a.value_size, scratch.result[query], mass, y);
  }
}

void attend_rows(const Attention& a, int row, int rows, int head, int heads) {
  switch (a.numbers) {
    case CacheNumbers::f32:
      return attend<Singles>(a, row, rows, head, heads);
    case CacheNumbers::bf16:
      return attend<Halves>(a, row, rows, head, heads);
    case CacheNumbers::int8:
      return attend<Integers>(a, row, rows, head, heads);
    case CacheNumbers::e4m3:
      return attend<E4m3>(a, row, rows, head, heads);
  }
}

}  // namespace
}  // namespace foretoken
