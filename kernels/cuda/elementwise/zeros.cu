// zeros: f32. Bytes: 4 for each.
#include <algorithm>

#include "kernels/cuda/cuda_backend.cuh"

namespace foretoken {
namespace {

__global__ void zeros_kernel(float* x, std::int64_t n) {
  let_next_kernel_start();
  wait_for_previous_kernels();
  for (std::int64_t i = blockIdx.x * std::int64_t(blockDim.x) + threadIdx.x; i < n;
       i += std::int64_t(gridDim.x) * blockDim.x)
    x[i] = 0;
}

}  // namespace

Tensor CudaBackend::zeros(Shape shape) {
  enter();
  const Tensor x = allocate(shape, DType::f32);
  if (x.elements() == 0) return x;
  launch_kernel("zeros", stream_,
                {dim3(std::min(blocks_for(x.elements(), 1024), 1024u)), 256, 0, 1, dependent_launch()}, zeros_kernel,
                x.data<float>(), x.elements());
  return x;
}

}  // namespace foretoken
