// What the kernels of attention share: what one call is to do, what a row sees, where its keys lie, and the arithmetic
// by which pieces of a context become one. This header must not know how a kernel divides its work.
//
//   y[row, head] = sum_j softmax_j(q . k_j * scale) v_j        over the slots that the row sees, by depth
//
// Depth and slot: the j-th slot that a row sees of its prefix is slot j; of its ancestors in a tree, the one that lies
// at depth visible + i is the i-th set bit. All sums are taken by depth, so that a node of a tree has the same bits as
// the row of the chain that it becomes when it is accepted.
//
// Numerics, the same for every row whatever runs beside it: the context is cut by depth into chunks of kChunk; in a
// chunk, steps of kStep depths follow one another with a running maximum (products on tensor cores, weights rounded to
// bf16, f32 sums, the mass being the sum of the rounded weights); chunks are then folded into the result in their
// order. A step in which a row sees nothing changes no bit of it.
#pragma once
#include <cstdint>

#include "kernels/cuda/device.cuh"

namespace foretoken {

constexpr int kStep = 64;    // depths that are weighed at once
constexpr int kChunk = 128;  // depths whose sum starts from zero

// One call of attend, as kernels read it.
struct AttentionWork {
  const void* q = nullptr;  // [rows, heads * head_size] f32 or bf16
  void* out = nullptr;      // the same, dense
  std::int64_t q_stride = 0;
  bool q_bf16 = false, kv_bf16 = false, q_aligned = false;  // q_aligned: rows may be read 8 numbers at a time
  const std::byte* pool = nullptr;
  std::int64_t pages = 0, page_bytes = 0, keys = 0, values = 0;
  int page_rows = 0, page_shift = -1;  // log2(page_rows), or -1 where that is no integer
  int heads = 0, kv_heads = 0, group = 0, head_size = 0;
  int rows = 0, sequences = 0, words = 0, table_width = 0, longest = 0;
  const std::int32_t *begins = nullptr, *owner = nullptr, *visible = nullptr, *first = nullptr, *tables = nullptr;
  const std::uint64_t* ancestors = nullptr;
  float scale = 0;  // times log2(e)
  // Queries that are still to be rotated, in bf16 and aligned, heads of 64 or 128: launch_prompt only.
  const std::int32_t* positions = nullptr;
  const float* frequencies = nullptr;
  // A context of more than `part` chunks is worked on by `splits` blocks, each at chunks [i * part, (i + 1) * part). A
  // row whose chunks do not lie in one part leaves each chunk's sum in `sums` [rows * heads, chunks, head_size] and its
  // greatest score and mass in `peaks` [rows * heads, chunks].
  int chunks = 1, split_chunks = 1, splits = 1;
  int tile = 16;  // query vectors of one block
  float* sums = nullptr;
  float2* peaks = nullptr;
};

// What one row sees: depths [first, visible) are slots of the same number, depths [visible, end) its ancestors.
struct Sight {
  int first = 0, visible = 0, end = 0;
};

__device__ inline Sight sight_of(const AttentionWork& work, int row) {
  Sight s;
  s.first = work.first ? max(work.first[row], 0) : 0;
  s.visible = s.end = work.visible[row];
  for (int w = 0; w < work.words; ++w) s.end += __popcll(work.ancestors[std::int64_t(row) * work.words + w]);
  return s;
}

__device__ inline int slot_at(const AttentionWork& work, int row, int visible, int depth) {
  if (depth < visible) return depth;
  int rank = depth - visible;
  for (int w = 0; w < work.words; ++w) {
    std::uint64_t bits = work.ancestors[std::int64_t(row) * work.words + w];
    const int n = __popcll(bits);
    if (rank >= n) {
      rank -= n;
      continue;
    }
    for (; rank > 0; --rank) bits &= bits - 1;
    return visible + 64 * w + __ffsll(std::int64_t(bits)) - 1;
  }
  return 0;
}

// Where kv head `h` of a slot stands behind the pool's begin (add work.keys or work.values); bytes_each is a number's
// size.
__device__ inline std::int64_t slot_offset(const AttentionWork& work, const std::int32_t* table, int h, int slot,
                                           int bytes_each) {
  const int page = work.page_shift >= 0 ? slot >> work.page_shift : slot / work.page_rows,
            at = slot - page * work.page_rows;
  return table[page] * work.page_bytes + (std::int64_t(h) * work.page_rows + at) * work.head_size * bytes_each;
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

constexpr float kUnseen = -__builtin_huge_valf();

__device__ inline float exp2_fast(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// By what a sum taken relative to a greatest score must be multiplied to become relative to `peak` (which is not less).
__device__ inline float rescale(float old_peak, float peak, float scale) {
  return old_peak == peak ? 1.0f : exp2_fast((old_peak - peak) * scale);
}

// The fold of chunks, in order: result = result * keep + chunk * take, and the same for the masses.
struct Fold {
  float keep, take;
};
__device__ inline Fold fold(float& peak, float chunk_peak, float scale) {
  const float before = peak;
  peak = fmaxf(before, chunk_peak);
  return {rescale(before, peak, scale), rescale(chunk_peak, peak, scale)};
}
__device__ inline float folded(float result, float chunk, Fold by) {
  return __fmaf_rn(result, by.keep, __fmul_rn(chunk, by.take));
}

__device__ inline float inverse_mass(float mass) { return mass > 0 ? __fdiv_rn(1.0f, mass) : 0.0f; }

// The part that has all of a row's chunks to itself, or -1.
__device__ inline int sole_split(const AttentionWork& work, Sight s) {
  if (s.end <= s.first) return 0;
  const int begin = s.first / kChunk / work.split_chunks, end = (s.end - 1) / kChunk / work.split_chunks;
  return begin == end ? begin : -1;
}

// Launches; `blocks` says how many blocks the machine runs at once.
void launch_tiles(const AttentionWork& work, std::int64_t shared_memory, cudaStream_t stream,
                  bool dependent_launch);  // shared_memory: bytes that a block may have
void launch_prompt(const AttentionWork& work, cudaStream_t stream,
                   bool dependent_launch);          // heads of up to 128, no trees, one part; 90a
bool rotates_queries(const AttentionWork& work);    // whether launch_prompt takes queries that are still to be rotated
int attention_cluster(std::int64_t shared_memory);  // blocks of the largest cluster that runs whatever shared memory
                                                    // its blocks need; architecture 90
void launch_plain(const AttentionWork& work, cudaStream_t stream, bool dependent_launch);
void launch_fold(const AttentionWork& work, cudaStream_t stream, bool dependent_launch);

}  // namespace foretoken
