// The products of attention for any kWidth: scores of queries with keys, and weighted sums of values. Included by
// attend_rows.h, which divides contexts into tiles and assigns rows to blocks.
//
// A bf16 cache is read 2 kWidth numbers at a time and widened to f32 while multiplications are waiting, codes kWidth at
// a time; up to three queries use each number that is read. Operations: 4 * size a slot and query. Each score is the
// same tree of additions, whatever other rows are computed.
#pragma once
#include "kernels/cpu/attend_units.h"
#include "kernels/cpu/hyperbolic.h"

namespace foretoken {
namespace {

constexpr int kFetchAhead = 32;  // slots
// From this number of queries on, storing keys in f32 is worth its cost; with few registers it always is.
constexpr int kManyQueries = kWidth == 16 ? 6 : 1;

// Visits the slots that one row attends to, by depth: at depths [first, visible) the slots of the same number, then, up
// to depth `seen`, its ancestors. A window may begin behind the prefix, among the ancestors (first > visible): bits of
// those before it are not set, and depths are those of the path as a chain.
struct Sight {
  int visible = 0, seen = 0, first = 0;
  const std::uint64_t* bits = nullptr;  // of ancestors, from slot `visible` on
  int word = 0;
  std::uint64_t left = 0;  // unvisited bits of the current word

  void open(const Attention& a, int row) {
    visible = a.visible[row];
    first = a.first ? a.first[row] : 0;
    seen = first > visible ? first : visible;
    bits = a.ancestors + row * a.ancestors_stride;
    for (int w = 0; w < a.words; ++w) seen += __builtin_popcountll(bits[w]);
    word = 0, left = a.words > 0 ? bits[0] : 0;
  }
  int ancestor() {  // the slot of the next ancestor
    while (left == 0) left = bits[++word];
    const int slot = visible + word * 64 + __builtin_ctzll(left);
    left &= left - 1;
    return slot;
  }
};

// Everything that one call needs, on the stack: about 230 KB, of which heads of 128 numbers touch 80.
struct AttendScratch {
  float q[kMaxQueries][kMaxHeadSize];  // scaled, padded with zeros; the numbers of a head are in the order of read_unit
  float weights[kMaxQueries][kAttendTile + kWidth];
  float sum[kMaxQueries][kMaxHeadSize];     // of the current tile
  float result[kMaxQueries][kMaxHeadSize];  // of all tiles so far, relative to `peak`
  float peak[kMaxQueries], mass[kMaxQueries];
  float keys[kWidth][kMaxHeadSize];  // a batch of keys in f32, in the order of q; see score_many
  const std::byte* key[kAttendTile + kWidth];
  const std::byte* value[kAttendTile + kWidth];
  float key_scale[kAttendTile], value_scale[kAttendTile];  // of codes
  const std::byte* next[kAttendTile];                      // keys of the next tile, `nexts` of them
  int nexts = 0;
  Sight sight[kMaxQueries];
};

// Prefetches into the L1 cache, or (kFar) the next level.
template <bool kFar = false> inline void fetch(const std::byte* row, std::int64_t bytes) {
  for (std::int64_t at = 0; at < bytes; at += 64) __builtin_prefetch(row + at, 0, kFar ? 2 : 3);
}

// How much is prefetched while a batch of scores is computed: `values` rows of its slots, and `keys` rows of the slots
// kFetchAhead later.
struct Fetches {
  int values = 0, keys = 0;
  std::int64_t bytes = 0;
};

// dot[j][s] += products, lane by lane, of Q queries from `query` on with the keys of B slots: sums enough to hide the
// latency of an addition, and few enough to stay in registers.
template <class S, int Q, int B, bool kWhole> inline void dot_unit(const Attention& a, const AttendScratch& scratch,
                                                                   int query, int u, int from,
                                                                   const std::byte* const* key, Floats (&dot)[Q][B]) {
  Floats q[Q][S::kVectors];
  for (int j = 0; j < Q; ++j)
    for (int v = 0; v < S::kVectors; ++v) q[j][v] = load<Floats>(scratch.q[query + j] + u * kUnit<S> + v * kWidth);
  for (int s = 0; s < B; ++s) {
    Floats k[S::kVectors];
    read_unit<S, kWhole>(a.head_size, key[s], from, k);
    for (int v = 0; v < S::kVectors; ++v)
      for (int j = 0; j < Q; ++j) dot[j][s] = fused(q[j][v], k[v], dot[j][s]);
  }
}

inline void keep_scores(const Floats& scores, float* to, int n) {
  if (n == kWidth)
    save(to, scores);
  else
    save_some(to, scores, n);
}

// weights[query + j][at + s] = q . k_s for Q queries and the n <= kWidth slots from `key` on (where kWidth can be
// read). kWhole: see read_unit.
template <class S, int Q, bool kWhole, bool kFetches = false>
inline void score_batch(const Attention& a, AttendScratch& scratch, int query, const std::byte* const* key, int at,
                        int n, const std::byte* const* value = nullptr, Fetches fetches = {}) {
  constexpr int B = Q == 1 && kWidth >= 8 ? 8 : 4;
  Floats dots[Q][kWidth];
  for (int s = 0; s < kWidth; s += B) {
    if constexpr (kFetches)  // a few at a time: more outstanding prefetches would delay current reads
      for (int j = s; j < s + B; ++j) {
        if (j < fetches.values) fetch(value[j], fetches.bytes);
        if (j < fetches.keys) fetch(key[j + kFetchAhead], fetches.bytes);
      }
    Floats dot[Q][B] = {};
    for_units<S>(a.head_size,
                 [&](int u, int from) { dot_unit<S, Q, B, kWhole>(a, scratch, query, u, from, key + s, dot); });
    for (int j = 0; j < Q; ++j)
      for (int b = 0; b < B; ++b) dots[j][s + b] = dot[j][b];
  }
  for (int j = 0; j < Q; ++j) keep_scores(transposed_sums<1>(dots[j]), scratch.weights[query + j] + at, n);
}

// The same for queries [first, last), many enough to widen the keys to f32 once for all of them.
template <class S, bool kWhole> void score_many(const Attention& a, AttendScratch& scratch, int first, int last,
                                                const std::byte* const* key, int at, int n) {
  const int size = units_of<S>(a.head_size) * kUnit<S>;
  for (int s = 0; s < kWidth; ++s) {
    for_units<S>(a.head_size, [&](int u, int from) {
      Floats k[S::kVectors];
      read_unit<S, kWhole>(a.head_size, key[s], from, k);
      for (int v = 0; v < S::kVectors; ++v) save(scratch.keys[s] + u * kUnit<S> + v * kWidth, k[v]);
    });
  }
  for (int query = first; query < last; ++query) {
    Floats dot[kWidth] = {};
    for (int i = 0; i < size; i += kWidth) {
      const Floats q = load<Floats>(scratch.q[query] + i);
      for (int s = 0; s < kWidth; ++s) dot[s] = fused(q, load<Floats>(scratch.keys[s] + i), dot[s]);
    }
    keep_scores(transposed_sums<1>(dot), scratch.weights[query] + at, n);
  }
}

// weights[query][at + s] = q . k_s for `n` slots and queries [first, last). Pages are scattered, and since the last
// forward a model's weights have passed through the caches, so keys are prefetched two batches before their use, and
// values while scores are computed.
template <class S, bool kWhole>
void score_slots(const Attention& a, AttendScratch& scratch, int first, int last, int at, int n) {
  const std::int64_t bytes = a.head_size * std::int64_t(sizeof(typename S::Item));
  for (int s = 0; s < n && s < kFetchAhead; ++s) fetch(scratch.key[s], bytes);
  for (int s = 0; s < n; s += kWidth) {
    const int here = n - s < kWidth ? n - s : kWidth, left = n - s - kFetchAhead;
    const bool many = last - first >= kManyQueries, between = !many && last - first >= 3;
    for (int j = 0; j < here && !between; ++j) fetch(scratch.value[s + j], bytes);
    for (int j = 0; j < left && j < kWidth && !between; ++j) fetch(scratch.key[s + kFetchAhead + j], bytes);
    if (many) {
      score_many<S, kWhole>(a, scratch, first, last, scratch.key + s, at + s, here);
      continue;
    }
    int query = first;
    if (between)
      score_batch<S, 3, kWhole, true>(a, scratch, query, scratch.key + s, at + s, here, scratch.value + s,
                                      {here, left, bytes}),
          query += 3;
    for (; last - query >= 3; query += 3) score_batch<S, 3, kWhole>(a, scratch, query, scratch.key + s, at + s, here);
    if (last - query == 2) score_batch<S, 2, kWhole>(a, scratch, query, scratch.key + s, at + s, here);
    if (last - query == 1) score_batch<S, 1, kWhole>(a, scratch, query, scratch.key + s, at + s, here);
  }
}

// weights[query][at + s] *= scale[s] for n slots and queries [first, last).
inline void multiply_scales(AttendScratch& scratch, const float* scale, int first, int last, int at, int n) {
  for (int query = first; query < last; ++query) {
    float* const weight = scratch.weights[query] + at;
    int s = 0;
    for (; s + kWidth <= n; s += kWidth) save(weight + s, load<Floats>(weight + s) * load<Floats>(scale + s));
    for (; s < n; ++s) weight[s] *= scale[s];
  }
}

template <class S> void score(const Attention& a, AttendScratch& scratch, int first, int last, int at, int n) {
  if (a.head_size >= kUnit<S>)
    score_slots<S, true>(a, scratch, first, last, at, n);
  else
    score_slots<S, false>(a, scratch, first, last, at, n);
  if (a.scaled) multiply_scales(scratch, scratch.key_scale, first, last, at, n);
  for (int query = first; a.softcap > 0 && query < last; ++query)
    softcap_row(scratch.weights[query] + at, a.softcap, n);
}

// sum[query] += weights[query][at + s] * v_s for Q queries from `first` on, U units from unit `u` on, which begins at
// number `from`.
template <class S, int Q, int U, bool kWhole>
inline void mix_part(const Attention& a, AttendScratch& scratch, int first, int at, int n, int u, int from) {
  Floats sum[Q][U][S::kVectors];
  const auto sum_at = [&](int j, int c, int v) { return scratch.sum[first + j] + (u + c) * kUnit<S> + v * kWidth; };
  for (int j = 0; j < Q; ++j)
    for (int c = 0; c < U; ++c)
      for (int v = 0; v < S::kVectors; ++v) sum[j][c][v] = load<Floats>(sum_at(j, c, v));
  const int nexts = u == 0 && first == 0 ? scratch.nexts : 0;
  const std::int64_t bytes = a.head_size * std::int64_t(sizeof(typename S::Item));
  for (int s = 0; s < n; ++s) {
    if (s < nexts) fetch<true>(scratch.next[s], bytes);
    for (int c = 0; c < U; ++c) {
      Floats value[S::kVectors];
      read_unit<S, kWhole>(a.value_size, scratch.value[s], from + c * kUnit<S>, value);
      for (int j = 0; j < Q; ++j)
        for (int v = 0; v < S::kVectors; ++v)
          sum[j][c][v] = fused(spread(scratch.weights[first + j][at + s]), value[v], sum[j][c][v]);
    }
  }
  for (int j = 0; j < Q; ++j)
    for (int c = 0; c < U; ++c)
      for (int v = 0; v < S::kVectors; ++v) save(sum_at(j, c, v), sum[j][c][v]);
}

template <class S, int Q, int U> void mix(const Attention& a, AttendScratch& scratch, int first, int at, int n) {
  if (a.value_size < kUnit<S>) return mix_part<S, Q, 1, false>(a, scratch, first, at, n, 0, 0);
  const int together = a.value_size / kUnit<S> / U * U;
  for (int u = 0; u < together; u += U) mix_part<S, Q, U, true>(a, scratch, first, at, n, u, u * kUnit<S>);
  for_units<S>(a.value_size, [&](int u, int from) {
    if (u >= together) mix_part<S, Q, 1, true>(a, scratch, first, at, n, u, from);
  });
}

// Enough independent sums to hide the latency of an addition, and few enough to stay in registers.
template <class S> void mix_queries(const Attention& a, AttendScratch& scratch, int first, int last, int at, int n) {
  if (a.scaled) multiply_scales(scratch, scratch.value_scale, first, last, at, n);
  constexpr int kMany = kWidth == 16 ? 2 : 1, kFew = 2 * kMany / S::kVectors;
  for (; last - first >= 6; first += 6)
    mix<S, 6, kMany / S::kVectors ? kMany / S::kVectors : 1>(a, scratch, first, at, n);
  for (; last - first >= 3; first += 3) mix<S, 3, kFew>(a, scratch, first, at, n);
  for (; last - first >= 2; first += 2) mix<S, 2, kFew>(a, scratch, first, at, n);
  for (; first < last; ++first) mix<S, 1, kFew>(a, scratch, first, at, n);
}

}  // namespace
}  // namespace foretoken
