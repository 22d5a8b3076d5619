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

// Walks the slots that one row sees, by depth.
struct Sight {
  int visible = 0, seen = 0;           // slots of the prefix; all slots
  const std::uint64_t* bits = nullptr;  // of ancestors, from slot `visible` on
  int word = 0;
  std::uint64_t left = 0;  // unvisited bits of the current word

  void open(const Attention& a, int row) {
    visible = seen = a.visible[row];
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
  float q[kMaxQueries][kMaxHeadSize];        // scaled, zero behind the head
  float weights[kMaxQueries][kAttendTile + kWidth];
  float sum[kMaxQueries][kMaxHeadSize];      // of the current tile
  float result[kMaxQueries][kMaxHeadSize];   // of all tiles so far, relative to `peak`
  float peak[kMaxQueries], mass[kMaxQueries];
  float keys[kWidth][kMaxHeadSize];          // a batch of keys in f32, zero behind the head
  const std::byte* key[kAttendTile + kWidth];
  const std::byte* value[kAttendTile + kWidth];
  Sight sight[kMaxQueries];
};

struct Rows {  // what is attended by one call
  int row, rows, head, heads;
  int queries() const { return rows * heads; }
};

// Lane s of the answer is the sum of the lanes of v[s]; each sum is the same tree of additions.
template <int kStep> inline Floats transposed_sums(Floats (&v)[kWidth]) {
  Ints low, high;  // lanes whose `kStep` bit is clear come from the first vector, the others from the second
  for (int i = 0; i < kWidth; ++i) {
    low[i] = (i & kStep ? kWidth : 0) + (i & ~kStep);
    high[i] = low[i] + kStep;
  }
  for (int i = 0; i < kWidth / kStep / 2; ++i) {
    const Floats a = v[2 * i], b = v[2 * i + 1];
    v[i] = __builtin_shuffle(a, b, low) + __builtin_shuffle(a, b, high);
  }
  if constexpr (2 * kStep < kWidth) return transposed_sums<2 * kStep>(v);
  else return v[0];
}

// Addresses of the head rows of one slot.
inline void locate(const Attention& a, const std::int32_t* table, int kv_head, int slot, const std::byte** key, const std::byte** value) {
  const std::int64_t item = a.bf16 ? 2 : 4;
  const std::int64_t at = (std::int64_t(kv_head) * a.page_rows + slot % a.page_rows) * a.head_size * item;
  const std::byte* page = a.pool + table[slot / a.page_rows] * a.page_bytes;
  *key = page + a.keys + at;
  *value = page + a.values + at;
}

inline Floats part_of(const Attention& a, const std::byte* p, int i) {  // numbers [i, i + kWidth) of a head, then zeros
  const int n = a.head_size - i;
  if (a.bf16) {
    const auto* h = reinterpret_cast<const std::uint16_t*>(p) + i;
    return widen(n >= kWidth ? load<Halves>(h) : load_some(h, n));
  }
  const auto* f = reinterpret_cast<const float*>(p) + i;
  return n >= kWidth ? load<Floats>(f) : load_some(f, n);
}

// weights[query][at + s] = q . k_s for `n` slots and queries [first, last).
inline void score(const Attention& a, Workplace& place, int first, int last, int at, int n) {
  for (int s = 0; s < n; s += kWidth) {
    const int here = n - s < kWidth ? n - s : kWidth;
    for (int j = 0; j < kWidth; ++j)
      for (int i = 0; i < a.head_size; i += kWidth) save(place.keys[j] + i, part_of(a, place.key[s + (j < here ? j : 0)], i));
    for (int query = first; query < last; ++query) {
      Floats dot[kWidth] = {};
      for (int i = 0; i < a.head_size; i += kWidth) {
        const Floats q = load<Floats>(place.q[query] + i);
        for (int j = 0; j < kWidth; ++j) dot[j] = fused(q, load<Floats>(place.keys[j] + i), dot[j]);
      }
      const Floats scores = transposed_sums<1>(dot);
      if (here == kWidth) save(place.weights[query] + at + s, scores);
      else save_some(place.weights[query] + at + s, scores, here);
    }
  }
}

// sum[query] += weights[query][at + s] * v_s for Q queries from `first` on, C vectors of numbers from `i` on.
template <int Q, int C> inline void mix_part(const Attention& a, Workplace& place, int first, int at, int n, int i) {
  Floats sum[Q][C];
  for (int j = 0; j < Q; ++j)
    for (int c = 0; c < C; ++c) sum[j][c] = load<Floats>(place.sum[first + j] + i + c * kWidth);
  for (int s = 0; s < n; ++s) {
    for (int c = 0; c < C; ++c) {
      const Floats v = part_of(a, place.value[s], i + c * kWidth);
      for (int j = 0; j < Q; ++j) sum[j][c] = fused(spread(place.weights[first + j][at + s]), v, sum[j][c]);
    }
  }
  for (int j = 0; j < Q; ++j)
    for (int c = 0; c < C; ++c) save(place.sum[first + j] + i + c * kWidth, sum[j][c]);
}

template <int Q, int C> void mix(const Attention& a, Workplace& place, int first, int at, int n) {
  int i = 0;
  for (; i + C * kWidth <= a.head_size; i += C * kWidth) mix_part<Q, C>(a, place, first, at, n, i);
  for (; i < a.head_size; i += kWidth) mix_part<Q, 1>(a, place, first, at, n, i);
}

// Independent sums enough to hide the latency of an addition, and few enough to stay in registers.
inline void mix_queries(const Attention& a, Workplace& place, int first, int last, int at, int n) {
  constexpr int kMany = kWidth == 16 ? 2 : 1;
  for (; last - first >= 6; first += 6) mix<6, kMany>(a, place, first, at, n);
  for (; last - first >= 3; first += 3) mix<3, 2 * kMany>(a, place, first, at, n);
  for (; last - first >= 2; first += 2) mix<2, 2 * kMany>(a, place, first, at, n);
  for (; first < last; ++first) mix<1, 2 * kMany>(a, place, first, at, n);
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
    std::memcpy(place.result[query], place.sum[query], sizeof(place.sum[query]));
    return;
  }
  const float both = peak > place.peak[query] ? peak : place.peak[query];
  const float before = exp_weights(spread(place.peak[query] - both))[0], now = exp_weights(spread(peak - both))[0];
  place.peak[query] = both;
  place.mass[query] = place.mass[query] * before + mass * now;
  for (int i = 0; i < a.head_size; i += kWidth)
    save(place.result[query] + i, load<Floats>(place.result[query] + i) * before + load<Floats>(place.sum[query] + i) * now);
}

// Depths [from, to) of one row: where their keys and values lie.
inline void look(const Attention& a, const Rows& r, Workplace& place, int row, int from, int to) {
  const std::int32_t* table = a.tables + a.owner[r.row] * a.tables_stride;
  const int kv_head = r.head / (a.heads / a.kv_heads);
  Sight& sight = place.sight[row];
  for (int d = from; d < to; ++d)
    locate(a, table, kv_head, d < sight.visible ? d : sight.ancestor(), place.key + (d - from), place.value + (d - from));
}

// One tile: depths [begin, end) of every row that sees as far. `shared` depths are the same slots for all rows.
inline void tile(const Attention& a, const Rows& r, Workplace& place, int begin, int end, int shared) {
  const int together = shared < begin ? 0 : (shared < end ? shared : end) - begin;
  const int own = begin + together;  // from this depth on, each row by itself
  const auto stop = [&](int row) { return place.sight[row].seen < end ? place.sight[row].seen : end; };
  for (int row = 0; row < r.rows; ++row) {
    if (stop(row) <= own) continue;
    const Sight before = place.sight[row];
    look(a, r, place, row, own, stop(row));
    score(a, place, row * r.heads, (row + 1) * r.heads, together, stop(row) - own);
    place.sight[row] = before;  // its values are looked up again below
  }
  if (together > 0) {
    look(a, r, place, 0, begin, own);
    score(a, place, 0, r.queries(), 0, together);
  }
  float peak[kMaxQueries], mass[kMaxQueries];
  for (int query = 0; query < r.queries(); ++query) {
    std::memset(place.sum[query], 0, sizeof(place.sum[query]));
    if (stop(query / r.heads) > begin) peak[query] = soften(place.weights[query], stop(query / r.heads) - begin, &mass[query]);
  }
  if (together > 0) mix_queries(a, place, 0, r.queries(), 0, together);
  for (int row = 0; row < r.rows; ++row) {
    if (stop(row) <= own) continue;
    look(a, r, place, row, own, stop(row));
    mix_queries(a, place, row * r.heads, (row + 1) * r.heads, together, stop(row) - own);
  }
  for (int query = 0; query < r.queries(); ++query)
    if (stop(query / r.heads) > begin) fold(a, place, query, begin == 0, peak[query], mass[query]);
}

void attend_rows(const Attention& a, int row, int rows, int head, int heads) {
  Workplace place;
  const Rows r{row, rows, head, heads};
  int shared = 1 << 30, deepest = 0;
  for (int i = 0; i < rows; ++i) {
    place.sight[i].open(a, row + i);
    if (place.sight[i].visible < shared) shared = place.sight[i].visible;
    if (place.sight[i].seen > deepest) deepest = place.sight[i].seen;
  }
  for (int query = 0; query < r.queries(); ++query) {
    const float* q = a.q + (row + query / heads) * a.q_stride + std::int64_t(head + query % heads) * a.head_size;
    std::memset(place.q[query], 0, sizeof(place.q[query]));
    for (int i = 0; i < a.head_size; ++i) place.q[query][i] = q[i] * a.scale;
    place.mass[query] = 0;
  }
  for (int begin = 0; begin < deepest; begin += kAttendTile)
    tile(a, r, place, begin, begin + kAttendTile < deepest ? begin + kAttendTile : deepest, shared);
  for (int query = 0; query < r.queries(); ++query) {
    float* y = a.y + (row + query / heads) * a.y_stride + std::int64_t(head + query % heads) * a.head_size;
    for (int i = 0; i < a.head_size; ++i) y[i] = place.result[query][i] / place.mass[query];
  }
}

}  // namespace
}  // namespace foretoken
