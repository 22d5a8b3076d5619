// silu_add: x[r, i] = silu(x[r, i]) + y[r, i mod width], silu(v) = v / (1 + exp(-v)). x f32 [rows, n width], y f32
// [rows, width]. Bytes: rows * width * (n * 8 + 4).
#include "kernels/cuda/cuda_backend.cuh"
#include "kernels/cuda/elementwise/elementwise.cuh"

namespace foretoken {
namespace {

constexpr int kThreads = 256;

// Block z has repetition z of y.
__global__ void silu_add_kernel(float* x, std::int64_t x_stride, const float* y, std::int64_t y_stride, int width) {
  let_next_kernel_start();
  wait_for_previous_kernels();
  const int i = int(blockIdx.y * blockDim.x + threadIdx.x);
  if (i >= width) return;
  float& v = x[blockIdx.x * x_stride + std::int64_t(blockIdx.z) * width + i];
  v = silu(v) + y[blockIdx.x * y_stride + i];
}

}  // namespace

void CudaBackend::silu_add(Tensor x, const Tensor& y) {
  enter();
  expect_silu_add(x, y);
  expect_width("silu_add", x, x.dim(1)), expect_width("silu_add", y, y.dim(1));
  const dim3 blocks(unsigned(x.dim(0)), blocks_for(y.dim(1), kThreads), unsigned(x.dim(1) / y.dim(1)));
  launch_kernel("silu_add", stream_, {blocks, kThreads, 0, 1, dependent_launch()}, silu_add_kernel, x.data<float>(),
                x.row_stride(), y.data<float>(), y.row_stride(), int(y.dim(1)));
}

}  // namespace foretoken
