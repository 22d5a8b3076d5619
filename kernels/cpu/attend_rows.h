// Attention of a few rows over paged keys and values, for any kWidth: see Attention in operations.h.
//
//   y = sum_j softmax(q . k_j * scale)_j v_j       q [rows, heads, size], k and v [slots, kv_heads, size]
//
// Bytes: 2 * slots * kv_heads * size * sizeof(kv), once for the rows of a sequence that run together and the heads of one kv
// head (at most kMaxQueries pairs). Operations: 4 * slots * heads * size a row, and one exponential a slot and head.
// The context is cut into tiles of kAttendTile slots by depth alone; each tile's softmax is taken by itself and folded into
// the result in order. So a row's bits depend on what it sees, not on what runs beside it.
#pragma once
#include "kernels/cpu/operations.h"
#include "kernels/cpu/vectors.h"

namespace foretoken {
namespace {

constexpr float kNothing = -__builtin_inff();
constexpr int kFetchAhead = 32;  // slots

// Walks the slots that one row sees, by depth.
struct Sight {
  int visible = 0, seen = 0;            // slots of the prefix; all slots
  int first = 0;                        // depths before it are hidden by a sliding window
  const std::uint64_t* bits = nullptr;  // of ancestors, from slot `visible` on
  int word = 0;
  std::uint64_t left = 0;  // unvisited bits of the current word

  void open(const Attention& a, int row) {
    visible = seen = a.visible[row];
    first = !a.first ? 0 : a.first[row] < visible ? a.first[row] : visible;
    bits = a.ancestors + row * a.ancestors_stride;
    for (int w = 0; w < a.words; ++w) seen += __builtin_popcountll(bits[w]);
    word = 0, left = a.words > 0 ? bits[0] : 0;
  }
  int ancestor() {  // the next one's slot
    while (left == 0) left = bits[++word];
    const int slot = visible + word * 64 + __builtin_ctzll(left);
    left &= left - 1;
    return slot;
  }
};

// Everything that one call needs, on the stack: about 80 KB.
struct Workplace {
  float q[kMaxQueries][kMaxHeadSize];  // scaled, zero behind the head
  float weights[kMaxQueries][kAttendTile + kWidth];
  float sum[kMaxQueries][kMaxHeadSize];     // of the current tile
  float result[kMaxQueries][kMaxHeadSize];  // of all tiles so far, relative to `peak`
  float peak[kMaxQueries], mass[kMaxQueries];
  float keys[kWidth][kMaxHeadSize];  // a batch of keys in f32, zero behind the head
  const std::byte* key[kAttendTile + kWidth];
  const std::byte* value[kAttendTile + kWidth];
  Sight sight[kMaxQueries];
};

struct Rows {  // what is attended by one call
  int row, rows, head, heads;
  int queries() const { return rows * heads; }
};

// Lane i is lane which[i] of a and b, one behind the other.
inline Floats shuffled(const Floats& a, const Floats& b, const Ints& which) {
#ifdef __clang__  // knows no shuffle by a vector, and compiles this code for fuzzing alone
  Floats result;
  for (int i = 0; i < kWidth; ++i) result[i] = which[i] < kWidth ? a[which[i]] : b[which[i] - kWidth];
  return result;
#else
  return __builtin_shuffle(a, b, which);
#endif
}

// Lane s of the answer is the sum of the lanes of v[s]; each sum is the same tree of additions.
template <int kStep> inline Floats transposed_sums(Floats (&v)[kWidth]) {
  Ints low, high;  // lanes whose `kStep` bit is clear come from the first vector, the others from the second
  for (int i = 0; i < kWidth; ++i) {
    low[i] = ((i & kStep) ? kWidth : 0) + (i & ~kStep);
    high[i] = low[i] + kStep;
  }
  for (int i = 0; i < kWidth / kStep / 2; ++i) {
    const Floats a = v[2 * i], b = v[2 * i + 1];
    v[i] = shuffled(a, b, low) + shuffled(a, b, high);
  }
  if constexpr (2 * kStep < kWidth)
    return transposed_sums<2 * kStep>(v);
  else
    return v[0];
}

// How a number of the cache is read: kWidth of them at p, or the first n and then zeros.
struct Singles {
  using Item = float;
  static Floats read(const float* p) { return load<Floats>(p); }
  static Floats read_some(const float* p, int n) { return load_some(p, n); }
};
struct Halves {
  using Item = std::uint16_t;
  static Floats read(const std::uint16_t* p) { return widen(p); }
  static Floats read_some(const std::uint16_t* p, int n) { return widen_some(p, n); }
};
// Numbers [i, i + kWidth) of a head; kWhole: all of them belong to it.
template <class S, bool kWhole> inline Floats part_of(const Attention& a, const std::byte* row, int i) {
  const auto* p = reinterpret_cast<const typename S::Item*>(row) + i;
  if constexpr (kWhole)
    return S::read(p);
  else
    return S::read_some(p, a.head_size - i);
}

inline void fetch(const std::byte* row, std::int64_t bytes) {
  for (std::int64_t at = 0; at < bytes; at += 64) __builtin_prefetch(row + at, 0, 3);
}

// weights[query][at + s] = q . k_s for `n` slots and queries [first, last). Pages lie anywhere, and since the last forward a
// model's weights have gone by, so keys are fetched two batches before their use and values while scores are taken.
template <class S> void score(const Attention& a, Workplace& place, int first, int last, int at, int n) {
  const std::int64_t bytes = a.head_size * std::int64_t(sizeof(typename S::Item));
  for (int s = 0; s < n && s < kFetchAhead; ++s) fetch(place.key[s], bytes);
  for (int s = 0; s < n; s += kWidth) {
    const int here = n - s < kWidth ? n - s : kWidth;
    for (int j = 0; j < here; ++j) fetch(place.value[s + j], bytes);
    for (int j = s + kFetchAhead; j < n && j < s + kFetchAhead + kWidth; ++j) fetch(place.key[j], bytes);
    for (int j = 0; j < kWidth; ++j) {
      int i = 0;
      for (; i + kWidth <= a.head_size; i += kWidth) save(place.keys[j] + i, part_of<S, true>(a, place.key[s + j], i));
      if (i < a.head_size) save(place.keys[j] + i, part_of<S, false>(a, place.key[s + j], i));
    }
    for (int query = first; query < last; ++query) {
      Floats dot[kWidth] = {};
      for (int i = 0; i < a.head_size; i += kWidth) {
        const Floats q = load<Floats>(place.q[query] + i);
        for (int j = 0; j < kWidth; ++j) dot[j] = fused(q, load<Floats>(place.keys[j] + i), dot[j]);
      }
      const Floats scores = transposed_sums<1>(dot);
      if (here == kWidth)
        save(place.weights[query] + at + s, scores);
      else
        save_some(place.weights[query] + at + s, scores, here);
    }
  }
}

// sum[query] += weights[query][at + s] * v_s for Q queries from `first` on, C vectors of numbers from `i` on.
template <class S, int Q, int C, bool kWhole>
inline void mix_part(const Attention& a, Workplace& place, int first, int at, int n, int i) {
  Floats sum[Q][C];
  for (int j = 0; j < Q; ++j)
    for (int c = 0; c < C; ++c) sum[j][c] = load<Floats>(place.sum[first + j] + i + c * kWidth);
  for (int s = 0; s < n; ++s) {
    for (int c = 0; c < C; ++c) {
      const Floats v = part_of<S, kWhole>(a, place.value[s], i + c * kWidth);
      for (int j = 0; j < Q; ++j) sum[j][c] = fused(spread(place.weights[first + j][at + s]), v, sum[j][c]);
    }
  }
  for (int j = 0; j < Q; ++j)
    for (int c = 0; c < C; ++c) save(place.sum[first + j] + i + c * kWidth, sum[j][c]);
}

template <class S, int Q, int C> void mix(const Attention& a, Workplace& place, int first, int at, int n) {
  int i = 0;
  for (; i + C * kWidth <= a.head_size; i += C * kWidth) mix_part<S, Q, C, true>(a, place, first, at, n, i);
  for (; i + kWidth <= a.head_size; i += kWidth) mix_part<S, Q, 1, true>(a, place, first, at, n, i);
  if (i < a.head_size) mix_part<S, Q, 1, false>(a, place, first, at, n, i);
}

// Independent sums enough to hide the latency of an addition, and few enough to stay in registers.
template <class S> void mix_queries(const Attention& a, Workplace& place, int first, int last, int at, int n) {
  constexpr int kMany = kWidth == 16 ? 2 : 1;
  for (; last - first >= 6; first += 6) mix<S, 6, kMany>(a, place, first, at, n);
  for (; last - first >= 3; first += 3) mix<S, 3, 2 * kMany>(a, place, first, at, n);
  for (; last - first >= 2; first += 2) mix<S, 2, 2 * kMany>(a, place, first, at, n);
  for (; first < last; ++first) mix<S, 1, 2 * kMany>(a, place, first, at, n);
}

// Turns the scores of a tile into weights relative to their greatest, and returns that; `mass` becomes their sum.
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

// Folds a tile's sums into the result: both are brought to the greater peak.
inline void fold(const Attention& a, Workplace& place, int query, bool first, float peak, float mass) {
  if (first) {
    place.peak[query] = peak, place.mass[query] = mass;
    for (int i = 0; i < a.head_size; i += kWidth) save(place.result[query] + i, load<Floats>(place.sum[query] + i));
    return;
  }
  const float both = peak > place.peak[query] ? peak : place.peak[query];
  const float before = exp_weights(spread(place.peak[query] - both))[0], now = exp_weights(spread(peak - both))[0];
  place.peak[query] = both;
  place.mass[query] = place.mass[query] * before + mass * now;
  for (int i = 0; i < a.head_size; i += kWidth)
    save(place.result[query] + i,
         load<Floats>(place.result[query] + i) * before + load<Floats>(place.sum[query] + i) * now);
}

// Depths [from, to) of one row: where their keys and values lie. A few more keys are named than there are, so that a batch
// is always full.
inline void look(const Attention& a, const Rows& r, Workplace& place, int row, int from, int to) {
  const std::int32_t* table = a.tables + a.owner[r.row] * a.tables_stride;
  const std::int64_t row_bytes = a.head_size * (a.bf16 ? 2 : 4),
                     head = std::int64_t(r.head / (a.heads / a.kv_heads)) * a.page_rows * row_bytes;
  Sight& sight = place.sight[row];
  const std::byte **key = place.key, **value = place.value;
  for (int d = from; d < to;) {
    const int slot = d < sight.visible ? d : sight.ancestor();
    const int within = slot % a.page_rows, prefix = sight.visible < to ? sight.visible : to;
    const int run = d >= sight.visible                  ? 1
                    : prefix - d < a.page_rows - within ? prefix - d
                                                        : a.page_rows - within;  // in one page
    const std::byte* page = a.pool + table[slot / a.page_rows] * a.page_bytes + head + within * row_bytes;
    for (int i = 0; i < run; ++i, page += row_bytes) *key++ = page + a.keys, *value++ = page + a.values;
    d += run;
  }
  for (int i = 0; i < kWidth; ++i) key[i] = place.key[0];
}

// One tile: depths [begin, end) of every row that sees as far. `shared` depths are the same slots for all rows.
template <class S> void tile(const Attention& a, const Rows& r, Workplace& place, int begin, int end, int shared) {
  const int together = shared < begin ? 0 : (shared < end ? shared : end) - begin;
  const int own = begin + together;  // from this depth on, each row by itself
  const auto stop = [&](int row) { return place.sight[row].seen < end ? place.sight[row].seen : end; };
  const auto looks = [&](int row) { return stop(row) > begin && place.sight[row].first < end; };
  for (int row = 0; row < r.rows; ++row) {
    if (stop(row) <= own) continue;
    const Sight before = place.sight[row];
    look(a, r, place, row, own, stop(row));
    score<S>(a, place, row * r.heads, (row + 1) * r.heads, together, stop(row) - own);
    place.sight[row] = before;  // its values are looked up again below
  }
  if (together > 0) {
    look(a, r, place, 0, begin, own);
    score<S>(a, place, 0, r.queries(), 0, together);
  }
  float peak[kMaxQueries], mass[kMaxQueries];
  for (int query = 0; query < r.queries(); ++query) {
    for (int i = 0; i < a.head_size; i += kWidth) save(place.sum[query] + i, Floats{});
    const int row = query / r.heads;
    if (!looks(row)) continue;
    for (int d = begin; d < place.sight[row].first; ++d) place.weights[query][d - begin] = kNothing;
    peak[query] = soften(place.weights[query], stop(row) - begin, &mass[query]);
  }
  if (together > 0) mix_queries<S>(a, place, 0, r.queries(), 0, together);
  for (int row = 0; row < r.rows; ++row) {
    if (stop(row) <= own) continue;
    look(a, r, place, row, own, stop(row));
    mix_queries<S>(a, place, row * r.heads, (row + 1) * r.heads, together, stop(row) - own);
  }
  for (int query = 0; query < r.queries(); ++query)
    if (looks(query / r.heads)) fold(a, place, query, begin <= place.sight[query / r.heads].first, peak[query], mass[query]);
}

template <class S> void attend(const Attention& a, int row, int rows, int head, int heads) {
  Workplace place;
  const Rows r{row, rows, head, heads};
  int shared = 1 << 30, deepest = 0, first = 1 << 30;
  for (int i = 0; i < rows; ++i) {
    place.sight[i].open(a, row + i);
    if (place.sight[i].visible < shared) shared = place.sight[i].visible;
    if (place.sight[i].seen > deepest) deepest = place.sight[i].seen;
    if (place.sight[i].first < first) first = place.sight[i].first;
  }
  for (int query = 0; query < r.queries(); ++query) {
    const float* q = a.q + (row + query / heads) * a.q_stride + std::int64_t(head + query % heads) * a.head_size;
    for (int i = 0; i < a.head_size; i += kWidth)
      save(place.q[query] + i,
           (a.head_size - i >= kWidth ? load<Floats>(q + i) : load_some(q + i, a.head_size - i)) * a.scale);
    place.mass[query] = 0;
  }
  for (int begin = first / kAttendTile * kAttendTile; begin < deepest; begin += kAttendTile)
    tile<S>(a, r, place, begin, begin + kAttendTile < deepest ? begin + kAttendTile : deepest, shared);
  for (int query = 0; query < r.queries(); ++query) {
    float* y = a.y + (row + query / heads) * a.y_stride + std::int64_t(head + query % heads) * a.head_size;
    for (int i = 0; i < a.head_size; ++i) y[i] = place.result[query][i] / place.mass[query];
  }
}

void attend_rows(const Attention& a, int row, int rows, int head, int heads) {
  if (a.bf16)
    attend<Halves>(a, row, rows, head, heads);
  else
    attend<Singles>(a, row, rows, head, heads);
}

}  // namespace
}  // namespace foretoken
