// What the attention kernels share: the arguments of a call, the keys that a row attends to, their addresses, and the
// arithmetic that combines chunks of a context. This header must not know how a kernel divides its work.
//
//   y[row, head] = sum_j softmax_j(q . k_j * scale) v_j        over the slots that the row sees, by depth
//
// Depth and slot: at depth j of its prefix a row attends to slot j; at depth max(first, visible) + i, to the ancestor
// of the i-th set bit. All sums are ordered by depth, so that a node of a tree has the same bits as the row of the
// chain that it becomes when it is accepted.
//
// Numerics, the same for a row whatever other rows are in the batch: the context is divided by depth into chunks
// (chunks.h); in a chunk, steps of kStep depths are processed in order with a running maximum (softmax.cuh; products on
// tensor cores, weights rounded to bf16, f32 sums, the mass being the sum of the rounded weights); chunks are then
// folded into the result in order. Of codes, a score is multiplied by its key's scale, and a weight by its value's
// scale before it is rounded; the mass is that of the weights without scales. A step in which a row attends to nothing
// changes no bit of it.
#pragma once
#include <cstdint>

#include "kernels/attention_rules.h"
#include "kernels/cuda/attention/cache_codes.cuh"
#include "kernels/cuda/attention/plans.h"
#include "kernels/cuda/attention/softmax.cuh"
#include "kernels/cuda/device.cuh"
#include "kernels/layout.h"

namespace foretoken {

// The arguments of one call of attend, as kernels read them.
struct AttentionWork {
  const void* q = nullptr;  // [rows, heads * head_size] f32 or bf16
  void* out = nullptr;      // the same, dense
  std::int64_t q_stride = 0;
  bool q_bf16 = false, kv_bf16 = false, q_aligned = false;  // q_aligned: rows may be read 8 numbers at a time
  const std::byte* pool = nullptr;
  std::int64_t pages = 0, page_bytes = 0, keys = 0, values = 0;
  CacheCodes codes = CacheCodes::none;            // a quantized cache; kv_bf16 is false
  std::int64_t key_scales = 0, value_scales = 0;  // of codes
  int page_rows = 0, page_shift = -1;             // log2(page_rows), or -1 where page_rows is no power of two
  int heads = 0, kv_heads = 0, group = 0, head_size = 0;
  // Numbers of rows and block tables of this call: rows [first_row, first_row + rows), to which begins[0] ...
  // begins[sequences] refer. Other arrays have all rows of the layout.
  int first_row = 0, rows = 0, sequences = 0, words = 0, table_width = 0, longest = 0;
  const std::int32_t *begins = nullptr, *owner = nullptr, *visible = nullptr, *first = nullptr, *tables = nullptr;
  const std::uint64_t* ancestors = nullptr;
  bool head_tables = false;  // Layout::head_tables
  ScoreRules rules;
  // Queries that are still to be rotated, in bf16 and aligned, heads of 64 or 128: launch_prompt only.
  const std::int32_t* positions = nullptr;
  const float* frequencies = nullptr;
  int deepest = 1;  // no row attends to this depth or a later one
  // A context is shared by up to `splits` blocks (split_of()). Where `sums` is set, every chunk that is computed is
  // written to sums f32 [rows * heads, chunks, head_size], its greatest score and mass to peaks [rows * heads, chunks],
  // and launch_fold follows.
  int chunks = 1, splits = 1;
  int tile = 16;  // query vectors of one block
  float* sums = nullptr;
  float2* peaks = nullptr;
};

// The block table of a kv head of sequence `sequence` of this call.
__device__ inline const std::int32_t* table_of(const AttentionWork& work, int sequence, int kv_head) {
  const int table = work.head_tables ? sequence * work.kv_heads + kv_head : sequence;
  return work.tables + std::int64_t(table) * work.table_width;
}

// What one row attends to: depths [first, visible) are the slots of the same number, depths [branch(), end) its
// ancestors. A window may begin behind the prefix, among the ancestors; bits before it are not set.
struct Sight {
  int first = 0, visible = 0, end = 0;
  __device__ int branch() const { return max(first, visible); }
  __device__ bool branches() const { return end > branch(); }
};

__device__ inline Sight sight_of(const AttentionWork& work, int row) {
  Sight s;
  s.first = work.first ? max(work.first[row], 0) : 0;
  s.visible = s.end = work.visible[row];
  int ancestors = 0;
  for (int w = 0; w < work.words; ++w) ancestors += __popcll(work.ancestors[std::int64_t(row) * work.words + w]);
  if (ancestors > 0) s.end = s.branch() + ancestors;
  return s;
}

// The position of the bit before which `rank` bits are set.
__device__ inline int position_of(std::uint64_t bits, int rank) {
  int at = 0;
#pragma unroll
  for (int size = 32; size > 0; size /= 2) {
    const int n = __popcll(bits >> at & ((std::uint64_t(1) << size) - 1));
    if (rank >= n) rank -= n, at += size;
  }
  return at;
}

__device__ inline int slot_at(const AttentionWork& work, int row, Sight s, int depth) {
  if (depth < s.visible) return depth;
  int rank = depth - s.branch();
  for (int w = 0; w < work.words; ++w) {
    const std::uint64_t bits = work.ancestors[std::int64_t(row) * work.words + w];
    const int n = __popcll(bits);
    if (rank < n) return s.visible + 64 * w + position_of(bits, rank);
    rank -= n;
  }
  return 0;
}

// Byte offset of kv head `h` of a slot from the pool's begin (add work.keys or work.values); bytes_each is the size of
// a number.
__device__ inline std::int64_t slot_offset(const AttentionWork& work, const std::int32_t* table, int h, int slot,
                                           int bytes_each) {
  const int page = work.page_shift >= 0 ? slot >> work.page_shift : slot / work.page_rows,
            at = slot - page * work.page_rows;
  return table[page] * work.page_bytes + (std::int64_t(h) * work.page_rows + at) * work.head_size * bytes_each;
}

// The scale of kv head `h` of a slot: a multiple of 4 bytes from the pool's begin on, behind `scales` bytes of its
// page.
__device__ inline float scale_at(const AttentionWork& work, std::int64_t scales, int page, int h, int at) {
  return *reinterpret_cast<const float*>(work.pool + page * work.page_bytes + scales +
                                         (std::int64_t(h) * work.page_rows + at) * 4);
}

__device__ inline float load_q(const AttentionWork& work, std::int64_t row, int at) {
  return work.q_bf16 ? to_float(static_cast<const Bf16*>(work.q)[row * work.q_stride + at])
                     : static_cast<const float*>(work.q)[row * work.q_stride + at];
}

__device__ inline void store_out(const AttentionWork& work, std::int64_t at, float x) {
  if (work.q_bf16)
    from_float(static_cast<Bf16*>(work.out)[at], x);
  else
    static_cast<float*>(work.out)[at] = x;
}

// Where the sum of a chunk of one row and query head is, in `peaks`; in `sums`, times head_size.
__device__ inline std::int64_t piece_at(const AttentionWork& work, std::int64_t row, int head, int chunk) {
  return ((row - work.first_row) * work.heads + head) * work.chunks + chunk;
}

// Of all rows of a layout, without memory for results: checked, an Error where it cannot be computed.
AttentionWork attention_work(const Tensor& q, const KvLayer& kv, const Layout& layout,
                             const AttentionRules& rules);  // attend.cu

// Bytes of the sums of all chunks.
inline std::int64_t scratch_of(const AttentionWork& w) {
  return scratch_bytes(std::int64_t(w.rows) * w.heads, w.head_size, w.deepest);
}

// Launches. `dependent_launch`: see Grid::dependent_launch; `shared_memory`: bytes of a block, at most.
void launch_tiles(const AttentionWork& work, std::int64_t shared_memory, cudaStream_t stream, bool dependent_launch);
// The same with a cap or sinks (tiles_rules.cu), of bf16 numbers or of codes.
void launch_ruled_tiles(const AttentionWork& work, std::int64_t shared_memory, cudaStream_t stream,
                        bool dependent_launch);
// Of codes: heads of up to 256, a multiple of 16.
void launch_coded_tiles(const AttentionWork& work, cudaStream_t stream, bool dependent_launch);
// Heads of up to 128; 90a.
void launch_prompt(const AttentionWork& work, cudaStream_t stream, bool dependent_launch);
bool rotates_queries(const AttentionWork& work);    // whether launch_prompt can rotate the queries itself
int attention_cluster(std::int64_t shared_memory);  // blocks of the largest cluster that the device runs with
                                                    // `shared_memory` bytes a block; architecture 90
void launch_plain(const AttentionWork& work, cudaStream_t stream, bool dependent_launch);
void launch_fold(const AttentionWork& work, cudaStream_t stream, bool dependent_launch);

}  // namespace foretoken
