// Attention over a cache of any type of numbers and head size: one block for each row and head, each warp taking every
// kWarps-th block of 32 depths. Correct, not fast: bf16 caches with heads of up to 256 are computed by tiles.cu. Bytes:
// each row and head reads its keys and values separately, 2 * slots * head_size numbers.
#include "kernels/cuda/attention/attention.cuh"
#include "kernels/cuda/shared_memory.h"

namespace foretoken {
namespace {

constexpr int kWarps = 8, kLines = 16;  // kLines: numbers of a head that a lane holds; a head has up to 32 * kLines

__device__ inline float number_at(const AttentionWork& work, const std::byte* p, int i) {
  if (work.codes != CacheCodes::none) return number_of_code(work.codes, std::uint8_t(p[i]));
  return work.kv_bf16 ? to_float(reinterpret_cast<const Bf16*>(p)[i]) : reinterpret_cast<const float*>(p)[i];
}

__device__ inline int number_bytes(const AttentionWork& work) {
  return work.codes != CacheCodes::none ? 1 : work.kv_bf16 ? 2 : 4;
}

// Where a slot lies.
struct Place {
  int page, row;
};
__device__ inline Place place_of(const AttentionWork& work, const std::int32_t* table, int slot) {
  return {table[slot / work.page_rows], slot % work.page_rows};
}

// The sum of one warp; lane l holds numbers l, l + 32, ... of the head.
struct PlainSum {
  float peak = kUnseen, mass = 0, sum[kLines] = {};
};

// Depths [32 block, 32 block + 32): each lane scores one key, then all lanes add every value.
template <bool kRules> __device__ void add_block(const AttentionWork& work, int row, int kv_head, Sight s,
                                                 const float* q, int block, PlainSum& to) {
  const int lane = int(threadIdx.x) % 32, depth = block * 32 + lane, bytes_each = number_bytes(work);
  const std::int32_t* table = table_of(work, work.owner[row], kv_head);
  float score = kUnseen, value_scale = 1;
  std::int64_t offset = 0;
  if (depth >= s.first && depth < s.end) {
    offset = slot_offset(work, table, kv_head, slot_at(work, row, s, depth), bytes_each);
    const std::byte* key = work.pool + offset + work.keys;
    float dot = 0;
    for (int i = 0; i < work.head_size; ++i) dot = __fmaf_rn(q[i], number_at(work, key, i), dot);
    if (work.codes != CacheCodes::none) {
      const Place at = place_of(work, table, slot_at(work, row, s, depth));
      dot = __fmul_rn(dot, scale_at(work, work.key_scales, at.page, kv_head, at.row));
      value_scale = scale_at(work, work.value_scales, at.page, kv_head, at.row);
    }
    float products[1] = {dot};
    work.rules.apply<kRules>(products);
    score = products[0];
  }
  float most = score;
  for (int x = 1; x < 32; x *= 2) most = fmaxf(most, __shfl_xor_sync(~0u, most, x));
  const Weigher by_score = weigher_of(work.rules, to.peak, most);
  const float weight = by_score(score);
  to.mass *= by_score.keep;
#pragma unroll
  for (int n = 0; n < kLines; ++n) to.sum[n] *= by_score.keep;
  for (int j = max(s.first - block * 32, 0); j < min(32, s.end - block * 32); ++j) {
    const float w = __shfl_sync(~0u, weight, j), scale = __shfl_sync(~0u, value_scale, j), by = scaled_weight(w, scale);
    const std::byte* value = work.pool + __shfl_sync(~0u, offset, j) + work.values;
    to.mass += w;
#pragma unroll
    for (int n = 0; n < kLines; ++n)
      if (n * 32 + lane < work.head_size) to.sum[n] = __fmaf_rn(by, number_at(work, value, n * 32 + lane), to.sum[n]);
  }
}

template <bool kRules> __global__ void __launch_bounds__(32 * kWarps)
    attend_plain(const __grid_constant__ AttentionWork work) {
  __shared__ float q[32 * kLines], sums[kWarps][32 * kLines], peaks[kWarps], masses[kWarps];
  static_assert(sizeof q + sizeof sums + sizeof peaks + sizeof masses == kPlainBytes);
  const int row = int(blockIdx.x), head = int(blockIdx.y), warp = int(threadIdx.x) / 32, lane = int(threadIdx.x) % 32;
  let_next_kernel_start();
  wait_for_previous_kernels();
  for (int i = int(threadIdx.x); i < work.head_size; i += 32 * kWarps) {
    const float x = load_q(work, row, head * work.head_size + i);
    q[i] = number_bytes(work) < 4 ? __bfloat162float(__float2bfloat16_rn(x)) : x;
  }
  __syncthreads();
  const Sight s = sight_of(work, row);
  PlainSum mine;
  for (int block = warp; block * 32 < s.end; block += kWarps)
    if (block * 32 + 32 > s.first) add_block<kRules>(work, row, head / work.group, s, q, block, mine);
#pragma unroll
  for (int n = 0; n < kLines; ++n) sums[warp][n * 32 + lane] = mine.sum[n];
  if (lane == 0) peaks[warp] = mine.peak, masses[warp] = mine.mass;
  __syncthreads();
  for (int i = int(threadIdx.x); i < work.head_size; i += 32 * kWarps) {
    Total of_row;
    float total = 0;
    for (int w = 0; w < kWarps; ++w) total = folded(total, sums[w][i], of_row.fold(work.rules, peaks[w], masses[w]));
    if constexpr (kRules) total *= of_row.join_sink(work.rules, head);
    store_out(work, (std::int64_t(row) * work.heads + head) * work.head_size + i, total * of_row.inverse());
  }
}

}  // namespace

void launch_plain(const AttentionWork& work, cudaStream_t stream, bool dependent_launch) {
  Grid grid{dim3(unsigned(work.rows), unsigned(work.heads)), 32 * kWarps};
  grid.dependent_launch = dependent_launch;
  launch_kernel("attend", stream, grid, work.rules.any() ? attend_plain<true> : attend_plain<false>, work);
}

}  // namespace foretoken
