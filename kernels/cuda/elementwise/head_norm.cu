// head_norm: x[r, h, i] = x[r, h, i] / sqrt(mean_i x[r, h, i]^2 + epsilon) * gain[i], in place. x [rows, heads *
// head_size] f32 or bf16, gain f32 [head_size]. Bytes: rows * heads * head_size * 2 * (2 or 4).
#include "kernels/cuda/cuda_backend.cuh"
#include "kernels/cuda/elementwise/elementwise.cuh"
#include "kernels/cuda/elementwise/row_norm.cuh"

namespace foretoken {
namespace {

constexpr int kHeads = 8;  // of a block, a warp each

template <class T> __global__ void __launch_bounds__(kHeads * 32)
    head_norm_kernel(T* x, std::int64_t stride, const float* gain, float epsilon, int heads, int head_size) {
  let_next_kernel_start();
  wait_for_previous_kernels();
  const int head = int(blockIdx.y) * kHeads + int(threadIdx.x) / 32, lane = int(threadIdx.x) % 32;
  if (head >= heads) return;
  T* const at = x + std::int64_t(blockIdx.x) * stride + std::int64_t(head) * head_size;
  float sum = 0;
  for (int i = lane; i < head_size; i += 32) {
    const float v = to_float(at[i]);
    sum = fmaf(v, v, sum);
  }
  for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
  const float inverse = 1.0f / sqrtf(sum / float(head_size) + epsilon);
  for (int i = lane; i < head_size; i += 32) from_float(at[i], normalized(to_float(at[i]), inverse, gain[i]));
}

}  // namespace

void CudaBackend::head_norm(Tensor x, const Tensor& gain, float epsilon) {
  enter();
  const int head_size = int(gain.dim(0)), heads = int(x.dim(1)) / head_size;
  expect_width("head_norm", x, std::int64_t(heads) * head_size);
  with_type("head_norm", x.dtype(), [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    launch_kernel("head_norm", stream_,
                  {dim3(unsigned(x.dim(0)), blocks_for(heads, kHeads)), kHeads * 32, 0, 1, dependent_launch()},
                  head_norm_kernel<T>, x.data<T>(), x.row_stride(), gain.data<float>(), epsilon, heads, head_size);
  });
}

}  // namespace foretoken
