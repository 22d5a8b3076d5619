// adjust: row i of logits [n, vocab] is adjusted in place at the tokens of adjustments[i]; each thread computes one
// item by adjust_item(). Bytes: 16 for each token count, and 64 of the logits for each adjusted token. The rest of the
// row is not read.
// mask: the logits of tokens that a row's bits do not allow become minus infinity; a block for each row. Bytes: vocab /
// 8 of the row's bits, 4 for each token until one is found that stays, and 4 written for each that does not.
#include <algorithm>

#include "kernels/cuda/cuda_backend.cuh"

namespace foretoken {
namespace {

constexpr int kRowsAtOnce = 64, kThreads = 256, kMaskThreads = 1024;

// The adjustments of a launch are passed as kernel arguments.
struct AdjustTask {
  float* logits;
  std::int64_t stride;
  Adjustment rows[kRowsAtOnce];
};

__global__ void __launch_bounds__(kThreads) adjust_rows(const __grid_constant__ AdjustTask task) {
  wait_for_previous_kernels();
  let_next_kernel_start();
  const Adjustment a = task.rows[blockIdx.y];
  const int k = int(blockIdx.x * blockDim.x + threadIdx.x);
  if (k < a.count + a.length) adjust_item(task.logits + std::int64_t(blockIdx.y) * task.stride, a, k);
}

struct MaskTask {
  float* logits;
  std::int64_t stride;
  int vocab;
  const std::uint32_t* rows[kRowsAtOnce];
};

__global__ void __launch_bounds__(kMaskThreads) mask_rows(const __grid_constant__ MaskTask task) {
  wait_for_previous_kernels();
  let_next_kernel_start();
  const std::uint32_t* const allowed = task.rows[blockIdx.x];
  if (!allowed) return;
  float* const row = task.logits + std::int64_t(blockIdx.x) * task.stride;
  bool some = false;
  for (Token t = int(threadIdx.x); t < task.vocab && !some; t += int(blockDim.x))
    some = masked(row[t], allowed, t) > -INFINITY;
  if (__syncthreads_or(some) == 0) return;
  for (Token t = int(threadIdx.x); t < task.vocab; t += int(blockDim.x))
    if (masked(0.0f, allowed, t) != 0.0f) row[t] = -INFINITY;
}

void expect_one_a_row(const char* operation, const Tensor& logits, std::size_t rows) {
  if (logits.rank() == 2 && logits.dtype() == DType::f32 && logits.dim(0) == std::int64_t(rows)) return;
  throw Error(std::string(operation) + ": expected F32 logits [" + std::to_string(rows) +
              ", vocabulary], one row for each element of the list, got " + name_of(logits.dtype()) + " " +
              logits.shape().text());
}

}  // namespace

void CudaBackend::mask(Tensor logits, std::span<const std::uint32_t* const> allowed) {
  enter();
  expect_one_a_row("mask", logits, allowed.size());
  for (int begin = 0; begin < int(allowed.size()); begin += kRowsAtOnce) {
    const int n = std::min(kRowsAtOnce, int(allowed.size()) - begin);
    MaskTask task{logits.row<float>(begin), logits.row_stride(), int(logits.dim(1)), {}};
    std::copy_n(allowed.begin() + begin, n, task.rows);
    launch_kernel("mask", stream_, {dim3(unsigned(n)), kMaskThreads, 0, 1, dependent_launch()}, mask_rows, task);
  }
}

void CudaBackend::adjust(Tensor logits, std::span<const Adjustment> adjustments) {
  enter();
  expect_one_a_row("adjust", logits, adjustments.size());
  for (int begin = 0; begin < int(adjustments.size()); begin += kRowsAtOnce) {
    const int n = std::min(kRowsAtOnce, int(adjustments.size()) - begin);
    AdjustTask task{logits.row<float>(begin), logits.row_stride(), {}};
    std::copy_n(adjustments.begin() + begin, n, task.rows);
    int items = 0;
    for (int i = 0; i < n; ++i) items = std::max(items, task.rows[i].count + task.rows[i].length);
    if (items > 0)
      launch_kernel("adjust", stream_,
                    {dim3(blocks_for(items, kThreads), unsigned(n)), kThreads, 0, 1, dependent_launch()}, adjust_rows,
                    task);
  }
}

}  // namespace foretoken
