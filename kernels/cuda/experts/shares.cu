// add_shares: x[r] += sum_j shares[r, j] y[r used + j], j ascending: x f32 [rows, width], y f32 [rows used, width].
// Bytes: rows * width * (8 + 4 used). add_gated: x[r] += y[r] / (1 + exp(-logits[r])): rows * width * 12.
#include "kernels/cuda/cuda_backend.cuh"
#include "kernels/cuda/elementwise/elementwise.cuh"

namespace foretoken {
namespace {

constexpr int kThreads = 256;

__global__ void shares_kernel(float* x, std::int64_t x_stride, const float* y, std::int64_t y_stride,
                              const float* shares, const int* chosen, int used, int width) {
  let_next_kernel_start();
  wait_for_previous_kernels();
  const int i = int(blockIdx.y * blockDim.x + threadIdx.x);
  const std::int64_t row = blockIdx.x;
  if (i >= width) return;
  float sum = 0;
  for (int j = 0; j < used; ++j)
    if (__ldcg(chosen + row * used + j) >= 0)
      sum = fmaf(__ldcg(shares + row * used + j), __ldcg(y + (row * used + j) * y_stride + i), sum);
  x[row * x_stride + i] = __ldcg(x + row * x_stride + i) + sum;
}

__global__ void gated_kernel(float* x, std::int64_t x_stride, const float* y, std::int64_t y_stride,
                             const float* logits, std::int64_t logits_stride, int width) {
  let_next_kernel_start();
  wait_for_previous_kernels();
  const int i = int(blockIdx.y * blockDim.x + threadIdx.x);
  const std::int64_t row = blockIdx.x;
  if (i >= width) return;
  const float gate = 1.0f / (1.0f + expf(-__ldcg(logits + row * logits_stride)));
  x[row * x_stride + i] = fmaf(gate, __ldcg(y + row * y_stride + i), __ldcg(x + row * x_stride + i));
}

}  // namespace

void CudaBackend::add_shares(Tensor x, const Tensor& y, const Routing& routing) {
  enter();
  expect_shares(x, y, routing);
  expect_width("add_shares", x, x.dim(1));
  expect_width("add_shares", y, y.dim(1));
  launch_kernel("add_shares", stream_,
                {dim3(unsigned(x.dim(0)), blocks_for(x.dim(1), kThreads)), kThreads, 0, 1, dependent_launch()},
                shares_kernel, x.data<float>(), x.row_stride(), y.data<float>(), y.row_stride(),
                routing.shares.data<float>(), routing.chosen.data<int>(), routing.used, int(x.dim(1)));
}

void CudaBackend::add_gated(Tensor x, const Tensor& y, const Tensor& logits) {
  enter();
  expect_gated(x, y, logits);
  expect_width("add_gated", x, x.dim(1));
  expect_width("add_gated", y, y.dim(1));
  launch_kernel("add_gated", stream_,
                {dim3(unsigned(x.dim(0)), blocks_for(x.dim(1), kThreads)), kThreads, 0, 1, dependent_launch()},
                gated_kernel, x.data<float>(), x.row_stride(), y.data<float>(), y.row_stride(), logits.data<float>(),
                logits.row_stride(), int(x.dim(1)));
}

}  // namespace foretoken
