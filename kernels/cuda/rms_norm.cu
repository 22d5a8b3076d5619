// rms_norm: y = x / sqrt(mean x^2 + epsilon) * gain. x f32 [rows, width], gain f32 [width] -> y [rows, width].
// Bytes: rows * width * (4 read + 4 or 2 written); the second reading of a row comes from the cache.
#include "kernels/cuda/cuda_backend.cuh"
#include "kernels/cuda/elementwise.cuh"
#include "kernels/cuda/products.cuh"
#include "kernels/cuda/row_norm.cuh"

namespace foretoken {
namespace {

constexpr int kKept = 8192;  // the widest row that is kept in shared memory, with its gain, between its two uses

template <class T, bool kWide>
__global__ void __launch_bounds__(kNormThreads) norm_kernel(const float* x, std::int64_t stride, const float* gain, float epsilon, T* y, int width) {
  extern __shared__ __align__(16) float kept[];  // gain, x
  __shared__ float partial[8];
  const bool keeps = kWide && width <= kKept;
  for (int i = 4 * int(threadIdx.x); keeps && i < width; i += 4 * kNormThreads) store_four(kept + i, load_four(gain + i));
  let_later_start();
  wait_for_earlier();
  const float* const row = x + std::int64_t(blockIdx.x) * stride;
  T* const to = y + std::int64_t(blockIdx.x) * width;
  const auto four = [&](int i) -> float4 {
    if constexpr (!kWide) return {row[i], i + 1 < width ? row[i + 1] : 0, i + 2 < width ? row[i + 2] : 0, i + 3 < width ? row[i + 3] : 0};
    const float4 v = __ldcg(reinterpret_cast<const float4*>(row + i));
    if (keeps) store_four(kept + width + i, v);
    return v;
  };
  const float scale = inverse_length(four, width, epsilon, partial);
  if constexpr (kWide) {
    for (int i = 4 * int(threadIdx.x); i < width; i += 4 * kNormThreads) {  // each thread meets its own numbers again
      const float4 v = keeps ? load_four(kept + width + i) : load_four(row + i), g = keeps ? load_four(kept + i) : load_four(gain + i);
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
    const std::size_t kept = in_fours(x) && width <= kKept ? std::size_t(width) * 8 : 0;
    launch_kernel("rms_norm", backend.cuda_stream(), {dim3(unsigned(x.dim(0))), kNormThreads, kept, 1, backend.overlaps()},
                  in_fours(x) ? norm_kernel<T, true> : norm_kernel<T, false>, x.data<float>(), x.row_stride(), gain.data<float>(), epsilon, y.data<T>(), width);
  });
  return y;
}

Tensor CudaBackend::rms_norm(const Tensor& x, const Tensor& gain, float epsilon) { return rms_norm_as(*this, x, gain, epsilon, DType::f32); }

}  // namespace foretoken
