// attention_mass: how much of the softmax the rows of each block table put on each page. Correct, not fast, since pages
// are chosen once in many rounds. mass_peaks: one block for each row and head finds the greatest score and the mass.
// mass_pages: one block for each block table and page adds the weights of all rows and heads on its slots, in an order
// that depends on the table's own rows alone. Keys are read twice for each row and head, 2 * rows * heads * slots *
// head_size numbers, most of them from the L2 cache.
#include "kernels/cuda/attention/attention.cuh"
#include "kernels/cuda/cuda_backend.cuh"

namespace foretoken {
namespace {

constexpr int kMassThreads = 128;

__device__ inline float key_number(const AttentionWork& work, const std::byte* key, int i) {
  if (work.codes != CacheCodes::none) return number_of_code(work.codes, std::uint8_t(key[i]));
  return work.kv_bf16 ? to_float(reinterpret_cast<const Bf16*>(key)[i]) : reinterpret_cast<const float*>(key)[i];
}

// The score of one row, query head and slot.
template <bool kRules> __device__ float score_of(const AttentionWork& work, int row, int head, int slot) {
  const std::int32_t* const table = work.tables + std::int64_t(work.owner[row]) * work.table_width;
  const int kv_head = head / work.group, bytes_each = work.codes != CacheCodes::none ? 1 : work.kv_bf16 ? 2 : 4;
  const std::byte* const key = work.pool + slot_offset(work, table, kv_head, slot, bytes_each) + work.keys;
  float product[1] = {};
  float& dot = product[0];
  for (int i = 0; i < work.head_size; ++i) {
    const float x = load_q(work, row, head * work.head_size + i);
    dot = __fmaf_rn(bytes_each < 4 ? __bfloat162float(__float2bfloat16_rn(x)) : x, key_number(work, key, i), dot);
  }
  if (work.codes != CacheCodes::none)
    dot *= scale_at(work, work.key_scales, table[slot / work.page_rows], kv_head, slot % work.page_rows);
  work.rules.apply<kRules>(product);
  return dot;
}

// Whether a row attends to a slot.
__device__ bool attends_to(const AttentionWork& work, int row, int slot) {
  if (work.first && slot < work.first[row]) return false;
  const int behind = slot - work.visible[row];
  if (behind < 0) return true;
  return behind < 64 * work.words &&
         (work.ancestors[std::int64_t(row) * work.words + behind / 64] >> (behind % 64) & 1u) != 0;
}

// Peak and mass of one row and head: peaks float2 [rows, heads].
template <bool kRules> __global__ void __launch_bounds__(kMassThreads)
    mass_peaks(const __grid_constant__ AttentionWork work, float2* peaks) {
  __shared__ float peak_of[kMassThreads], mass_of[kMassThreads];
  const int row = int(blockIdx.x), head = int(blockIdx.y), t = int(threadIdx.x);
  let_next_kernel_start();
  wait_for_previous_kernels();
  const int end = work.visible[row] + 64 * work.words;
  float peak = kUnseen, mass = 0;
  for (int slot = t; slot < end; slot += kMassThreads) {
    if (!attends_to(work, row, slot)) continue;
    const float score = score_of<kRules>(work, row, head, slot);
    const Weigher by = weigher_of(work.rules, peak, score);
    mass = mass * by.keep + by(score);
  }
  peak_of[t] = peak, mass_of[t] = mass;
  __syncthreads();
  if (t > 0) return;
  Total all;
  for (int i = 0; i < kMassThreads; ++i) all.fold(work.rules, peak_of[i], mass_of[i]);
  if constexpr (kRules) (void)all.join_sink(work.rules, head);
  peaks[std::int64_t(row) * work.heads + head] = {all.peak, all.mass};
}

// One page of one block table: to f32 [sequences, table_width].
template <bool kRules> __global__ void __launch_bounds__(kMassThreads)
    mass_pages(const __grid_constant__ AttentionWork work, const float2* peaks, float* to) {
  __shared__ float sums[kMassThreads];
  const int page = int(blockIdx.x), table = int(blockIdx.y), t = int(threadIdx.x);
  let_next_kernel_start();
  wait_for_previous_kernels();
  const int begin = work.begins[table], vectors = (work.begins[table + 1] - begin) * work.heads;
  float sum = 0;
  for (int v = t; v < vectors; v += kMassThreads) {
    const int row = begin + v / work.heads, head = v % work.heads;
    const float2 of_row = peaks[std::int64_t(row) * work.heads + head];
    float mass = 0;
    for (int slot = page * work.page_rows; slot < (page + 1) * work.page_rows; ++slot)
      if (attends_to(work, row, slot)) mass += work.rules.rescale(score_of<kRules>(work, row, head, slot), of_row.x);
    sum += mass * inverse_mass(of_row.y);
  }
  sums[t] = sum;
  __syncthreads();
  for (int step = kMassThreads / 2; step > 0; step /= 2) {
    if (t < step) sums[t] += sums[t + step];
    __syncthreads();
  }
  if (t == 0) to[std::int64_t(table) * work.table_width + page] = sums[0];
}

}  // namespace

Tensor CudaBackend::attention_mass(const Tensor& q, const KvLayer& kv, const Layout& layout,
                                   const AttentionRules& rules) {
  enter();
  const AttentionWork work = attention_work(q, kv, layout, rules);
  const Tensor all = allocate({layout.sequences, layout.table_width}, DType::f32);
  if (layout.rows == 0 || layout.sequences == 0 || layout.table_width == 0) return all;
  const Tensor peaks = allocate({std::int64_t(layout.rows) * work.heads, 2}, DType::f32);
  launch_kernel("attention_mass", stream_,
                {dim3(unsigned(work.rows), unsigned(work.heads)), kMassThreads, 0, 1, dependent_launch()},
                work.rules.any() ? mass_peaks<true> : mass_peaks<false>, work, peaks.data<float2>());
  launch_kernel(
      "attention_mass", stream_,
      {dim3(unsigned(layout.table_width), unsigned(layout.sequences)), kMassThreads, 0, 1, dependent_launch()},
      work.rules.any() ? mass_pages<true> : mass_pages<false>, work, peaks.data<const float2>(), all.data<float>());
  return all;
}

}  // namespace foretoken
