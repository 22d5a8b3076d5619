// clamped_mul: y[r, i] = g / (1 + exp(-slope g)) * (u + 1), g = min(x[r, i], limit), u = x[r, width + i] within
// +-limit. x [rows, 2 width] -> y [rows, width], same type. Bytes: rows * width * 3 * (2 or 4).
#include "kernels/cuda/cuda_backend.cuh"
#include "kernels/cuda/elementwise/elementwise.cuh"

namespace foretoken {
namespace {

constexpr int kClampedThreads = 256;

template <class T>
__global__ void clamped_kernel(const T* x, std::int64_t stride, T* y, int width, float slope, float limit) {
  let_next_kernel_start();
  wait_for_previous_kernels();
  const T* const row = x + std::int64_t(blockIdx.x) * stride;
  const int i = int(blockIdx.y * blockDim.x + threadIdx.x);
  if (i >= width) return;
  const float gate = to_float(row[i]), up = to_float(row[width + i]);
  const float g = gate > limit ? limit : gate, u = up > limit ? limit : up < -limit ? -limit : up;
  from_float(y[std::int64_t(blockIdx.x) * width + i], g / (1.0f + expf(-slope * g)) * (u + 1.0f));
}

}  // namespace

Tensor CudaBackend::clamped_mul(const Tensor& gate_up, float slope, float limit) {
  enter();
  expect_width("clamped_mul", gate_up, gate_up.dim(1));
  const std::int64_t rows = gate_up.dim(0), width = gate_up.dim(1) / 2;
  const Tensor y = allocate({rows, width}, gate_up.dtype());
  if (rows == 0) return y;
  with_type("clamped_mul", gate_up.dtype(), [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    launch_kernel("clamped_mul", stream_,
                  {dim3(unsigned(rows), blocks_for(width, kClampedThreads)), kClampedThreads, 0, 1, dependent_launch()},
                  clamped_kernel<T>, gate_up.data<T>(), gate_up.row_stride(), y.data<T>(), int(width), slope, limit);
  });
  return y;
}

}  // namespace foretoken
