// gelu_mul: y[r, i] = gelu(g[r, i]) * g[r, width + i], gelu(v) = v / (1 + exp(-2 sqrt(2 / pi) (v + 0.044715 v^3))). g
// [rows, 2 width] -> y [rows, width], same type. Bytes: rows * width * 3 * (2 or 4).
#include "kernels/cuda/cuda_backend.cuh"
#include "kernels/cuda/elementwise/elementwise.cuh"

namespace foretoken {
namespace {

constexpr int kGeluThreads = 256;

template <class T> __global__ void gelu_kernel(const T* g, std::int64_t stride, T* y, int width) {
  let_next_kernel_start();
  wait_for_previous_kernels();
  const T* const gate = g + std::int64_t(blockIdx.x) * stride;
  const int i = int(blockIdx.y * blockDim.x + threadIdx.x);
  if (i >= width) return;
  const float v = to_float(gate[i]), t = 1.59576912f * (v + 0.044715f * v * v * v);
  from_float(y[std::int64_t(blockIdx.x) * width + i], v / (1.0f + expf(-t)) * to_float(gate[width + i]));
}

}  // namespace

Tensor CudaBackend::gelu_mul(const Tensor& gate_up) {
  enter();
  expect_width("gelu_mul", gate_up, gate_up.dim(1));
  const std::int64_t rows = gate_up.dim(0), width = gate_up.dim(1) / 2;
  const Tensor y = allocate({rows, width}, gate_up.dtype());
  if (rows == 0) return y;
  with_type("gelu_mul", gate_up.dtype(), [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    launch_kernel("gelu_mul", stream_,
                  {dim3(unsigned(rows), blocks_for(width, kGeluThreads)), kGeluThreads, 0, 1, dependent_launch()},
                  gelu_kernel<T>, gate_up.data<T>(), gate_up.row_stride(), y.data<T>(), int(width));
  });
  return y;
}

}  // namespace foretoken
