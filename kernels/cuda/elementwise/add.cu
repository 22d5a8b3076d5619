// add: x += y. x f32 [rows, width], y f32 or bf16 [rows, width]. Bytes: rows * width * (8 + 4 or 2).
#include "kernels/cuda/cuda_backend.cuh"
#include "kernels/cuda/elementwise/elementwise.cuh"

namespace foretoken {
namespace {

template <class T>
__global__ void add_kernel(float* x, std::int64_t x_stride, const T* y, std::int64_t y_stride, int width) {
  let_next_kernel_start();
  wait_for_previous_kernels();
  for (int i = int(threadIdx.x); i < width; i += int(blockDim.x))
    x[blockIdx.x * x_stride + i] += to_float(y[blockIdx.x * y_stride + i]);
}

}  // namespace

void CudaBackend::add(Tensor x, const Tensor& y) {
  enter();
  expect_width("add", x, y.dim(1));
  with_type("add", y.dtype(), [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    launch_kernel("add", stream_, {dim3(unsigned(x.dim(0))), 256, 0, 1, dependent_launch()}, add_kernel<T>,
                  x.data<float>(), x.row_stride(), y.data<T>(), y.row_stride(), int(x.dim(1)));
  });
}

}  // namespace foretoken
