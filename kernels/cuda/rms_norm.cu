// rms_norm: y = x / sqrt(mean x^2 + epsilon) * gain. x f32 [rows, width], gain f32 [width] -> y [rows, width].
// Bytes: rows * width * (4 read + 4 or 2 written); the second reading of a row comes from the cache.
#include "kernels/cuda/cuda_backend.cuh"
#include "kernels/cuda/elementwise.cuh"
#include "kernels/cuda/products.cuh"
#include "kernels/cuda/row_norm.cuh"

namespace foretoken {
namespace {

template <class T, bool kWide>
__global__ void __launch_bounds__(kNormThreads) norm_kernel(const float* x, std::int64_t stride, const float* gain, float epsilon, T* y, int width) {
  __shared__ float partial[8], inverse[1];
  wait_for_earlier();
  let_later_start();
  const float* const row = x + std::int64_t(blockIdx.x) * stride;
  T* const to = y + std::int64_t(blockIdx.x) * width;
  inverse_lengths<kWide>(row, stride, width, 1, epsilon, partial, inverse);
  const float scale = inverse[0];
  if constexpr (kWide) {
    for (int i = 4 * int(threadIdx.x); i < width; i += 4 * kNormThreads) {
      const float4 v = load_four(row + i), g = load_four(gain + i);
      store_four(to + i, {normalized(v.x, scale, g.x), normalized(v.y, scale, g.y), normalized(v.z, scale, g.z), normalized(v.w, scale, g.w)});
    }
  } else {
    for (int i = int(threadIdx.x); i < width; i += kNormThreads) from_float(to[i], normalized(row[i], scale, gain[i]));
  }
}

}  // namespace

Tensor rms_norm_as(CudaBackend& backend, const Tensor& x, const Tensor& gain, float epsilon, DType type) {
  const int width = int(gain.dim(0));
  expect_width("rms_norm", x, width);
  const Tensor y = backend.allocate(x.shape(), type);
  with_type("rms_norm", type, [&](auto* t) {
    using T = std::remove_pointer_t<decltype(t)>;
    launch_kernel("rms_norm", backend.cuda_stream(), {dim3(unsigned(x.dim(0))), kNormThreads, 0, 1, backend.overlaps()},
                  in_fours(x) ? norm_kernel<T, true> : norm_kernel<T, false>, x.data<float>(), x.row_stride(), gain.data<float>(), epsilon, y.data<T>(), width);
  });
  return y;
}

Tensor CudaBackend::rms_norm(const Tensor& x, const Tensor& gain, float epsilon) { return rms_norm_as(*this, x, gain, epsilon, DType::f32); }

}  // namespace foretoken
