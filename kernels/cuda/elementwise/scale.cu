// scale: x *= by; softcap: x = cap * tanh(x / cap), but -inf stays. x f32 [rows, width]. Bytes: rows * width * 8.
#include "kernels/cuda/cuda_backend.cuh"
#include "kernels/cuda/elementwise/elementwise.cuh"

namespace foretoken {
namespace {

constexpr int kScaleThreads = 256;

struct Scaled {
  float by;
  __device__ float operator()(float v) const { return v * by; }
};
struct Capped {
  float cap;
  __device__ float operator()(float v) const { return v == -INFINITY ? v : cap * tanhf(v / cap); }
};

template <class F> __global__ void change_kernel(float* x, std::int64_t stride, int width, F f) {
  let_next_kernel_start();
  wait_for_previous_kernels();
  const int i = int(blockIdx.y * blockDim.x + threadIdx.x);
  if (i >= width) return;
  float& v = x[std::int64_t(blockIdx.x) * stride + i];
  v = f(v);
}

template <class F> void change(const CudaBackend& b, const char* operation, const Tensor& x, F f) {
  expect_width(operation, x, x.dim(1));
  if (x.dim(0) == 0) return;
  const dim3 blocks(unsigned(x.dim(0)), blocks_for(x.dim(1), kScaleThreads));
  launch_kernel(operation, b.cuda_stream(), {blocks, kScaleThreads, 0, 1, b.dependent_launch()}, change_kernel<F>,
                x.data<float>(), x.row_stride(), int(x.dim(1)), f);
}

}  // namespace

void CudaBackend::scale(Tensor x, float by) {
  enter();
  change(*this, "scale", x, Scaled{by});
}

void CudaBackend::softcap(Tensor x, float cap) {
  enter();
  change(*this, "softcap", x, Capped{cap});
}

}  // namespace foretoken
