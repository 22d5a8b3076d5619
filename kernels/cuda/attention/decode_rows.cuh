// The input of a block of decode.cuh: its rows and spans, its shared memory, copies of the keys and values of a span,
// and how the rows themselves are rotated and stored, in shared memory and in their pages. This header must not know
// how a span is summed.
#pragma once
#include <climits>

#include "kernels/cuda/attention/attention.cuh"
#include "kernels/cuda/attention/plans.h"
#include "kernels/cuda/attention/rotation.cuh"
#include "kernels/cuda/attention/teams.cuh"
#include "kernels/cuda/instructions/matrix_tiles.cuh"

namespace foretoken {

// kDecodeRows: the most rows of a sequence, and heads of a group. kSpan: depths that a block processes at once: a
// chunk, or a part of a longer one.
constexpr int kDecodeSteps = 2, kDecodePeers = kDecodeSteps * kTeamWarps, kDecodeThreads = 32 * kDecodePeers;
constexpr int kDecodeRows = 32, kSpan = kDecodeSpan;
static_assert(kSpan == kDecodeSteps * kStep);

// `group` query heads of each of a sequence's rows, no trees; everything bf16, rows aligned to 16 bytes, heads of a
// multiple of 16 numbers.
struct DecodeWork {
  AttentionWork a;  // splits: blocks of a cluster; tile: query vectors of a block, 8, 16 or 32; q: not rotated yet
  const Bf16 *k = nullptr, *v = nullptr;
  std::int64_t k_stride = 0, v_stride = 0;
  const std::int32_t *positions = nullptr, *slots = nullptr;
  const float* frequencies = nullptr;
  int spans = 1;           // that a block of the decode kernel takes: whole chunks
  std::int64_t bytes = 0;  // of shared memory of a block, at least decode_bytes()
  bool settled = false;  // no running kernel writes to these pages: they may be read before wait_for_previous_kernels()
};

// The kernel's argument: the work, and reciprocals of run-time divisors, since integer divisions would take much of a
// block's time.
struct DecodeCall : DecodeWork {
  std::uint64_t page_inverse;    // 2^32 / page_rows, rounded up
  int inverse[kDecodeRows + 1];  // [n]: 65536 / n, rounded up
};

template <int kHead, int kSets> struct DecodeShared {
  static constexpr int kVectors = kSets * kSetVectors;
  alignas(128) std::byte ring[2 * kDecodeSteps][kStep * kHead * 2];  // as of stream.cuh: keys, values of each step
  alignas(128) Bf16 q[kVectors * kHead];
  TeamExchange<false, kDecodePeers> exchange[kSets];
  std::int64_t source[kSpan];  // byte offset of a key from the pool's begin; kNowhere: no row attends to it; kOwn -
                               // offset: it is one of the rows
  // Of each row: first and last + 1 depth that it attends to, its slot (-1: not stored), its position for the rotation.
  int low[kDecodeRows], high[kDecodeRows], slot[kDecodeRows], position[kDecodeRows];
  std::uint64_t received;  // barrier of the data that the cluster sends to this block
  // Followed by Rotation rotations[longest][kHead / 2], and what TeamFold receives.
};
constexpr std::int64_t kNowhere = -1, kOwn = -2;

// One block and the rows that it computes.
template <int kHeadSize, int kSets> struct DecodeRows {
  using Shared = DecodeShared<kHeadSize, kSets>;
  static constexpr int kHead = kHeadSize, kOfTeam = kSets, kSteps = kDecodeSteps, kPeers = kDecodePeers;
  static constexpr int kBoxRow = 128, kPlane = kStep * kHead * 2, kWorkers = kDecodeThreads;
  static constexpr CacheCodes kKind = CacheCodes::none;
  static constexpr bool kCodes = false, kPadded = true;  // a head may be smaller than kHead
  // kChunks: vectors of 16 bytes of a head.
  static constexpr int kChunks = kHead / 8, kHalf = kHead / 2, kVectors = Shared::kVectors;

  const DecodeCall& work;
  const AttentionWork& a;
  Shared& shared;
  int sequence, head, rank, row, rows;  // kv head; block of the cluster; the first row and how many
  int vector, vectors;                  // the first query vector of this block among those of all rows, and how many
  int begin, end, first, last;          // spans of the sequence; those of this block
  int chunk, chunks;                    // the sequence's first chunk, and how many
  int all_low, all_high, own_low, own_high;  // depths that every row attends to; slots of the rows
  int sets;                                  // with vectors
  int page_number;                           // of key `thread` of the next span
  float frequency;                           // of pair `thread` % kHalf
  const std::int32_t* table;
  Rotation* rotations;
  float2 *peaks, *sums;  // received
  std::byte* const ring;
  TeamExchange<false, kDecodePeers>* const exchange;
  const int thread = int(threadIdx.x), lane = thread % 32, peer = thread / 32, warp = peer % kTeamWarps,
            team = peer / kTeamWarps;

  __device__ DecodeRows(const DecodeCall& w, Shared& s)
      : work(w), a(w.a), shared(s), ring(s.ring[0]), exchange(s.exchange) {}

  // ---- the block's work; false: none ----
  __device__ bool open() {
    asm("mov.u32 %0, %%clusterid.x;" : "=r"(sequence));
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    head = int(blockIdx.y);
    table = a.tables + std::int64_t(sequence) * a.table_width;
    // `page` is loaded before it is known to be needed, as is the frequency: this hides the latency.
    const int page = page_at(rank * work.spans);
    frequency = thread % kHalf < a.head_size / 2 ? work.frequencies[thread % kHalf] : 0;
    const bool single = a.rows == a.sequences && a.longest == 1;
    row = single ? sequence : a.begins[sequence], rows = single ? 1 : a.begins[sequence + 1] - row;
    vector = int(blockIdx.z) * kVectors, vectors = min(rows * a.group - vector, kVectors);
    if (vectors <= 0) return false;
    sets = (vectors + kSetVectors - 1) / kSetVectors;
    int least[3] = {INT_MAX, INT_MAX, INT_MAX}, most[3] = {};
    if (const int r = lane; r < rows) {
      const int visible = a.visible[row + r], from = a.first ? max(a.first[row + r], 0) : 0, slot = work.slots[row + r],
                position = work.positions[row + r];
      least[0] = min(from, slot), least[1] = visible, least[2] = slot;
      most[0] = max(visible, slot + 1), most[1] = from, most[2] = slot + 1;
      // Of several rows with the same slot (padding) the last is stored.
      const bool counts = __match_any_sync(~0u >> (32 - rows), slot) >> r == 1;
      if (peer == 0)
        shared.low[r] = from, shared.high[r] = visible, shared.slot[r] = counts ? slot : -1,
        shared.position[r] = position;
    }
    begin = __reduce_min_sync(~0u, least[0]) / kSpan, all_high = __reduce_min_sync(~0u, least[1]),
    own_low = __reduce_min_sync(~0u, least[2]);
    end = (__reduce_max_sync(~0u, most[0]) - 1) / kSpan + 1, all_low = __reduce_max_sync(~0u, most[1]),
    own_high = __reduce_max_sync(~0u, most[2]);
    first = max(begin, rank * work.spans), last = min(end, (rank + 1) * work.spans);
    chunk = chunk_of(begin * kSpan), chunks = chunks_of(end * kSpan) - chunk;
    page_number = first == rank * work.spans ? page : page_at(first);
    rotations = reinterpret_cast<Rotation*>(&shared + 1);
    peaks = reinterpret_cast<float2*>(rotations + a.longest * kHalf), sums = peaks + chunks * sets * kSetVectors;
    return true;
  }

  __device__ int over(int n, int d) const {
    return n * work.inverse[d] >> 16;
  }  // n / d; n d < 65536, n < 32768, 0 < d <= kDecodeRows
  __device__ int page_of(int depth) const { return int(std::uint64_t(depth) * work.page_inverse >> 32); }
  __device__ int page_at(int span) const {
    const int index = page_of(span * kSpan + thread);
    return thread < kSpan && index < a.table_width ? table[index] : 0;
  }

  // ---- keys and values ----
  __device__ bool sees_all(int span) const {
    return span * kSpan >= all_low && (span + 1) * kSpan <= all_high;
  }  // true: every row attends to all of the span
  __device__ void find_sources(int span) {
    if (thread >= kSpan) return;
    const int depth = span * kSpan + thread;
    bool seen = depth >= all_low && depth < all_high, own = false;
    if (!seen || (depth >= own_low && depth < own_high))
#pragma unroll 1
      for (int r = 0; r < rows; ++r)
        seen = seen || (depth >= shared.low[r] && depth < shared.high[r]), own = own || depth == shared.slot[r];
    const int at = depth - page_of(depth) * a.page_rows;
    const std::int64_t from = page_number * a.page_bytes + (std::int64_t(head) * a.page_rows + at) * a.head_size * 2;
    shared.source[thread] = own ? kOwn - from : seen ? from : kNowhere;
  }
  // Prefetches into L2, which is coherent with later writes: allowed before earlier kernels have ended.
  __device__ void read_ahead() const {
#pragma unroll 1
    for (int i = thread; i < 2 * kSpan * kHead / 64; i += kDecodeThreads) {
      const int key = i / 2 / (kHead / 64), line = i / 2 % (kHead / 64);
      const std::int64_t from = shared.source[key];
      if (from >= 0 && line * 64 < a.head_size)
        asm volatile("prefetch.global.L2 [%0];" ::"l"(a.pool + (i % 2 ? a.values : a.keys) + from + line * 128));
    }
  }
  // 16 bytes of a key or value of the span.
  __device__ uint4* line(bool value, int key, int c) const {
    return reinterpret_cast<uint4*>(ring + (key / kStep * 2 + value) * kPlane + (c / 8 * kStep + key % kStep) * 128) +
           (c % 8 ^ (key & 7));
  }
  __device__ void request() {
    constexpr int kLines = kDecodeThreads / kChunks;  // keys at once
    static_assert(kLines % 8 == 0 && kStep % kLines == 0, "the swizzle is that of the first key");
    const int c = thread % kChunks, first_key = thread / kChunks;
    const std::uint32_t keys = shared_address(line(false, first_key, c));
    const bool inside = c * 8 < a.head_size;
#pragma unroll
    for (int i = 0; i < kSpan / kLines; ++i) {
      const std::uint32_t to = keys + unsigned(i * kLines / kStep * 2 * kPlane + i * kLines % kStep * 128);
      const std::int64_t from = shared.source[first_key + i * kLines];
      if (from <= kOwn) continue;
      const bool read = from >= 0 && inside;
      const std::byte* const at = a.pool + (read ? from + c * 16 : 0);
      copy_behind(to, at + a.keys, read);
      copy_behind(to + kPlane, at + a.values, read);
    }
    end_copies();
  }

  // ---- the rows themselves ----
  __device__ int row_of(int v) const { return over(vector + v, a.group); }  // of vector v of this block
  __device__ bool owns(int begins, int ends) const {
    return own_low < ends * kSpan && own_high > begins * kSpan;
  }  // whether these spans may contain one of the rows
  // Of the rows whose queries this block has, or of all rows where their keys may be in its spans; and what each vector
  // attends to.
  __device__ void fill_rotations() {
    if (thread < kVectors) {
      const int r = row_of(thread);
      exchange[thread / kSetVectors].sights[thread % kSetVectors] =
          thread < vectors ? int2{shared.low[r], shared.high[r]} : int2{};
    }
    const bool all = owns(first, last);
    const int begins = all ? 0 : row_of(0) * kHalf, ends = all ? rows * kHalf : (row_of(vectors - 1) + 1) * kHalf;
    if (thread % kHalf < a.head_size / 2)
#pragma unroll 2  // two at once: each is a long chain
      for (int i = begins + thread; i < ends; i += kDecodeThreads)
        rotations[i] = rotation_of(shared.position[i / kHalf], frequency);
  }
  __device__ uint4& query_at(int v, int c) const {
    return *reinterpret_cast<uint4*>(reinterpret_cast<std::byte*>(shared.q) + swizzled<kChunks>(v, c));
  }

  // Eight numbers of a head and their eight partners in the rotation, or eight values.
  struct Piece {
    uint4 low, high;
  };
  // The vector or row of piece n, where each has `each` times as many pieces as half a head.
  __device__ int pairs() const { return a.head_size / 16; }
  __device__ int line_of(int n, int each) const {
    return a.head_size == kHead ? n / (kHead / 16 * each) : over(n, pairs() * each);
  }

  // ---- queries ----
  __device__ static int set(int n) { return n; }
  // The row and query head of vector v of this block; false: there is none.
  __device__ bool find(int v, int& of_row, int& of_head) const {
    const int r = row_of(v);
    of_row = row + r, of_head = head * a.group + vector + v - r * a.group;
    return v < vectors;
  }
  // Vectors of set n as the second factors of two products: numbers 32 k ... 32 k + 31.
  __device__ uint4 query(int n, int k) const {
    const Quad of = load_quad(shared_address(shared.q) +
                              unsigned(swizzled<kChunks>(n * kSetVectors + (lane & 7), k * 4 + (lane >> 3))));
    return {of.r[0], of.r[1], of.r[2], of.r[3]};
  }
  // Queries as the preceding product wrote them, one piece for each thread.
  static_assert(kVectors * kHead / 16 <= kDecodeThreads);
  __device__ Piece load_query() const {
    const int v = line_of(thread, 1), r = row_of(v), c = thread - v * pairs();
    if (v >= vectors) return {};
    const uint4* const x = reinterpret_cast<const uint4*>(static_cast<const Bf16*>(a.q) + (row + r) * a.q_stride +
                                                          (head * a.group + vector + v - r * a.group) * a.head_size);
    return {x[c], x[c + pairs()]};
  }
  __device__ void store_query(Piece p) {
#pragma unroll 1
    for (int i = thread; a.head_size < kHead && i < kVectors * kChunks; i += kDecodeThreads)
      if (i % kChunks * 8 >= a.head_size) query_at(i / kChunks, i % kChunks) = {};
    const int v = line_of(thread, 1), c = thread - v * pairs();
    if (v >= vectors) return;
    rotate_eight(p.low, p.high, rotations + row_of(v) * kHalf + c * 8);
    query_at(v, c) = p.low, query_at(v, c + pairs()) = p.high;
  }

  // Of each row first the pieces of its key, then those of its value.
  __device__ bool is_here(int span, int r) const {
    return r < rows && unsigned(shared.slot[r] - span * kSpan) < unsigned(kSpan);
  }
  __device__ Piece load_row(int span, int n) const {
    const int r = line_of(n, 3), c = n - r * 3 * pairs();
    if (!is_here(span, r)) return {};
    const uint4* const k = reinterpret_cast<const uint4*>(work.k + (row + r) * work.k_stride + head * a.head_size);
    if (c < pairs()) return {k[c], k[c + pairs()]};
    return {reinterpret_cast<const uint4*>(work.v + (row + r) * work.v_stride + head * a.head_size)[c - pairs()], {}};
  }
  // Stores the rows of `span` in this block's tiles and in their pages.
  __device__ void store_row(int span, int n, Piece p) {
    const int r = line_of(n, 3), c = n - r * 3 * pairs();
    if (!is_here(span, r)) return;
    const int key = shared.slot[r] - span * kSpan;
    if (c < pairs()) {
      rotate_eight(p.low, p.high, rotations + r * kHalf + c * 8);
      *line(false, key, c) = p.low, *line(false, key, c + pairs()) = p.high;
    } else {
      *line(true, key, c - pairs()) = p.low;
    }
    if (blockIdx.z > 0) return;  // another block has the same rows for other queries, and stores them
    uint4* const page = reinterpret_cast<uint4*>(const_cast<std::byte*>(a.pool) + (c < pairs() ? a.keys : a.values) +
                                                 kOwn - shared.source[key]);
    if (c < pairs())
      page[c] = p.low, page[c + pairs()] = p.high;
    else
      page[c - pairs()] = p.low;
  }
  // `loaded`: the piece of the first span that this thread has loaded.
  __device__ void store_rows(int span, Piece loaded) {
    if (!owns(span, span + 1)) return;
#pragma unroll 1
    for (int n = thread; n < rows * 3 * pairs(); n += kDecodeThreads)
      store_row(span, n, n == thread && span == first ? loaded : load_row(span, n));
#pragma unroll 1
    for (int i = thread; a.head_size < kHead && i < kSpan * kChunks;
         i += kDecodeThreads) {  // zeros where the head is padded
      const int key = i / kChunks, c = i % kChunks;
      if (c * 8 >= a.head_size && shared.source[key] <= kOwn) *line(false, key, c) = *line(true, key, c) = {};
    }
  }
};

inline bool has_aligned_rows(const DecodeWork& w) {
  return w.a.q_aligned && (reinterpret_cast<std::uintptr_t>(w.k) | reinterpret_cast<std::uintptr_t>(w.v)) % 16 == 0 &&
         (w.k_stride | w.v_stride) % 8 == 0;
}

inline int decode_blocks(const AttentionWork& a) {
  return (a.longest * a.group + a.tile - 1) / a.tile;
}  // blocks that share a chunk
std::int64_t decode_bytes(const DecodeWork& work);  // shared memory that a block needs
// Blocks of the largest cluster that the device runs with `shared_memory` bytes a block.
int decode_cluster(std::int64_t shared_memory);
void launch_decode(const DecodeWork& work, cudaStream_t stream, bool dependent_launch);

}  // namespace foretoken
