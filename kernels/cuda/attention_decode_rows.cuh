// What a block of attention_decode.cuh works on: its rows and chunks, what it shares, and how the rows themselves are turned and
// placed, in shared memory and in their pages. This room must not know how a chunk is summed.
#pragma once
#include "kernels/cuda/attention.cuh"
#include "kernels/cuda/matrix_tiles.cuh"
#include "kernels/cuda/rotation.cuh"

namespace foretoken {

constexpr int kDecodeThreads = 256, kDecodeRows = 16;  // query vectors
constexpr int kDecodeSteps = kChunk / kStep;

// `group` query heads of each of at most kDecodeRows / group rows of a sequence, which is a chain; everything bf16.
struct DecodeWork {
  AttentionWork a;  // part: chunks of a block; parts: blocks of a cluster; q: not turned yet
  const Bf16 *k, *v;
  std::int64_t k_stride, v_stride;
  const std::int32_t *positions, *slots;
  const float* frequencies;
  bool settled = false;  // no kernel that may still run writes to these pages: they are read before it ends
};

template <int kHead> struct DecodeShared {
  alignas(128) Bf16 keys[kChunk * kHead];
  alignas(128) Bf16 values[kChunk * kHead];
  alignas(128) Bf16 q[kDecodeRows * kHead];
  alignas(128) Bf16 weights[kDecodeSteps][kDecodeRows * kStep];
  float peaks[kDecodeSteps][4][kDecodeRows];
  std::int64_t source[kChunk];  // where a key stands behind the pool's begin; kNowhere: nobody sees it; kOwn - that place: it is one of the rows
  int low[kDecodeRows], high[kDecodeRows], slot[kDecodeRows];  // of each row: what it sees, and where it goes
  Turn turns[kDecodeRows][kHead / 2];
  // Behind it: of every chunk of the cluster, peaks and masses [chunks, kDecodeRows] and this block's piece of the sums [chunks, piece].
};
constexpr std::int64_t kNowhere = -1, kOwn = -2;

__host__ __device__ inline int decode_piece(int vectors, int head, int blocks) { return (vectors * head / 2 + blocks - 1) / blocks; }  // pairs of numbers

// One block and the rows that it serves.
template <int kHead> struct DecodeRows {
  using Shared = DecodeShared<kHead>;
  static constexpr int kChunks = kHead / 8;  // 16 bytes of a head

  const DecodeWork& work;
  const AttentionWork& a;
  Shared& shared;
  int sequence, head, rank, row, rows, vectors;  // kv head; block of the cluster; the first row and how many
  int begin, end, first, last;                   // chunks of the sequence; those of this block
  int receiver, piece;                           // the first block that gets a piece, and its pairs of numbers
  int page_number;  // of key `thread` of the next chunk
  int position;     // of the first row
  float frequency;  // of pair `thread`
  const std::int32_t* table;
  float2* peaks;  // received
  float2* sums;
  const int thread = int(threadIdx.x), warp = thread / 32, lane = thread % 32;

  __device__ DecodeRows(const DecodeWork& w, Shared& s) : work(w), a(w.a), shared(s) {}

  // ---- what there is to do; false: nothing ----
  __device__ bool open() {
    sequence = int(blockIdx.x) / a.parts, rank = int(blockIdx.x) % a.parts, head = int(blockIdx.y);
    table = a.tables + std::int64_t(sequence) * a.table_width;
    const int page = page_at(rank * a.part);  // asked for before anything says that it is needed, as the frequency
    frequency = thread < a.head_size / 2 ? work.frequencies[thread] : 0;
    const bool single = a.rows == a.sequences && a.longest == 1;
    row = single ? sequence : a.begins[sequence], rows = single ? 1 : a.begins[sequence + 1] - row, vectors = rows * a.group;
    if (rows <= 0) return false;
    int low = 0x7fffffff, high = 0;
    position = work.positions[row];
    for (int r = 0; r < rows; ++r) {
      const int visible = a.visible[row + r], from = a.first ? max(a.first[row + r], 0) : 0, slot = work.slots[row + r];
      low = min(low, min(from, slot)), high = max(high, max(visible, slot + 1));
      if (thread == r) shared.low[r] = from, shared.high[r] = visible, shared.slot[r] = slot;
    }
    begin = low / kChunk, end = (high - 1) / kChunk + 1;
    first = max(begin, rank * a.part), last = min(end, (rank + 1) * a.part);
    receiver = begin / a.part, piece = decode_piece(vectors, a.head_size, (end - 1) / a.part - receiver + 1);
    page_number = first == rank * a.part ? page : page_at(first);
    peaks = reinterpret_cast<float2*>(&shared + 1), sums = peaks + a.parts * a.part * kDecodeRows;
    return true;
  }

  __device__ int page_at(int chunk) const {
    const int depth = chunk * kChunk + thread, index = a.page_shift >= 0 ? depth >> a.page_shift : depth / a.page_rows;
    return thread < kChunk && index < a.table_width ? table[index] : 0;
  }

  // ---- the rows themselves ----
  __device__ void turn_table() {
    const int half = a.head_size / 2;
    if (thread < half) shared.turns[0][thread] = turn_of(position, frequency);
    for (int i = half + thread; i < rows * half; i += kDecodeThreads) shared.turns[i / half][i % half] = turn_of(work.positions[row + i / half], work.frequencies[i % half]);
  }
  __device__ static void put(Bf16* tile, int line, int i, Bf16 x) {
    *reinterpret_cast<Bf16*>(reinterpret_cast<std::byte*>(tile) + swizzled<kChunks>(line, i / 8) + i % 8 * 2) = x;
  }
  // Pairs of numbers as the product before left them; all are asked for before the first is used.
  struct Pair {
    Bf16 low, high;
  };
  static constexpr int kQueryPairs = kDecodeRows * kHead / 2 / kDecodeThreads, kRowPairs = 2;
  __device__ void ask_queries(Pair (&raw)[kQueryPairs]) const {
    const int half = a.head_size / 2;
#pragma unroll
    for (int i = 0; i < kQueryPairs; ++i) {
      const int n = thread + i * kDecodeThreads, vector = n / half;
      if (n >= vectors * half) break;
      const Bf16* const x = static_cast<const Bf16*>(a.q) + (row + vector / a.group) * a.q_stride + (head * a.group + vector % a.group) * a.head_size + n % half;
      raw[i] = {x[0], x[half]};
    }
  }
  __device__ void place_queries(const Pair (&raw)[kQueryPairs]) {
    const int half = a.head_size / 2;
    const uint4 zeros = {};
    for (int i = thread; i < kDecodeRows * kChunks; i += kDecodeThreads)
      if (i / kChunks >= vectors || i % kChunks * 8 >= a.head_size) *reinterpret_cast<uint4*>(reinterpret_cast<std::byte*>(shared.q) + swizzled<kChunks>(i / kChunks, i % kChunks)) = zeros;
#pragma unroll
    for (int i = 0; i < kQueryPairs; ++i) {
      const int n = thread + i * kDecodeThreads, vector = n / half, at = n % half;
      if (n >= vectors * half) break;
      const float2 pair = turned(to_float(raw[i].low), to_float(raw[i].high), shared.turns[vector / a.group][at]);
      put(shared.q, vector, at, __float2bfloat16_rn(pair.x)), put(shared.q, vector, at + half, __float2bfloat16_rn(pair.y));
    }
  }

  // Pair n of the rows: first those of keys, then those of values.
  __device__ void ask_rows(Pair (&raw)[kRowPairs], int from) const {
    const int half = a.head_size / 2;
#pragma unroll
    for (int i = 0; i < kRowPairs; ++i) {
      const int n = from + i * kDecodeThreads, r = n / half;
      if (n >= 2 * rows * half) break;
      const Bf16* const x = (r < rows ? work.k + (row + r) * work.k_stride : work.v + (row + r - rows) * work.v_stride) + head * a.head_size + n % half;
      raw[i] = {x[0], x[half]};
    }
  }
  // Those in `chunk` into this block's tiles and into their pages. Of rows with one slot (padding) the last counts.
  __device__ void place_row(int chunk, Pair raw, int n) {
    const int half = a.head_size / 2, r = n / half % rows, i = n % half, slot = shared.slot[r], key = slot - chunk * kChunk;
    bool last_of_slot = key >= 0 && key < kChunk;
    for (int other = r + 1; other < rows; ++other) last_of_slot = last_of_slot && shared.slot[other] != slot;
    if (!last_of_slot) return;
    const bool is_key = n < rows * half;
    if (is_key) {
      const float2 pair = turned(to_float(raw.low), to_float(raw.high), shared.turns[r][i]);
      raw = {__float2bfloat16_rn(pair.x), __float2bfloat16_rn(pair.y)};
    }
    Bf16* const tile = is_key ? shared.keys : shared.values;
    put(tile, key, i, raw.low), put(tile, key, i + half, raw.high);
    Bf16* const page = reinterpret_cast<Bf16*>(const_cast<std::byte*>(a.pool) + (is_key ? a.keys : a.values) + kOwn - shared.source[key]);
    page[i] = raw.low, page[i + half] = raw.high;
  }
  __device__ void place_rows(int chunk, Pair (&raw)[kRowPairs]) {
    for (int n = thread; n < rows * a.head_size; n += kRowPairs * kDecodeThreads) {
      if (n != thread || chunk != first) ask_rows(raw, n);
#pragma unroll
      for (int i = 0; i < kRowPairs; ++i)
        if (n + i * kDecodeThreads < rows * a.head_size) place_row(chunk, raw[i], n + i * kDecodeThreads);
    }
    for (int i = thread; a.head_size < kHead && i < kChunk * kChunks; i += kDecodeThreads) {  // a head that is padded
      const int key = i / kChunks, c = i % kChunks, at = swizzled<kChunks>(key, c);
      if (c * 8 < a.head_size || shared.source[key] > kOwn) continue;
      *reinterpret_cast<uint4*>(reinterpret_cast<std::byte*>(shared.keys) + at) = *reinterpret_cast<uint4*>(reinterpret_cast<std::byte*>(shared.values) + at) = {};
    }
  }
};

std::int64_t decode_bytes(const DecodeWork& work);  // of shared memory, of a block
int decode_cluster(std::int64_t shared_memory);    // blocks of the largest cluster that runs, each with so many bytes
void launch_decode(const DecodeWork& work, cudaStream_t stream);

}  // namespace foretoken
