// rms_norm (Zhang and Sennrich 2019, arXiv 1910.07467): y = x / sqrt(mean x^2 + epsilon) * gain. x f32 [rows, width],
// gain f32 [width] -> y [rows, width]. Bytes: rows * width * (4 read + 4 or 2 written). A row of up to 8192 numbers is
// kept in registers between its two uses, as is its gain, so that shared memory stays free for the product that still
// runs.
#include <algorithm>

#include "kernels/cuda/cuda_backend.cuh"
#include "kernels/cuda/elementwise/elementwise.cuh"
#include "kernels/cuda/elementwise/row_norm.cuh"
#include "kernels/cuda/products/products.cuh"
#include "kernels/cuda/shared_memory.h"

namespace foretoken {
namespace {

// Any width, any alignment.
template <class T> __global__ void __launch_bounds__(kNormThreads)
    norm_kernel(const float* x, std::int64_t stride, const float* gain, float epsilon, T* y, int width, int) {
  __shared__ float partial[8];
  static_assert(sizeof partial == kNormBytes);
  let_next_kernel_start();
  wait_for_previous_kernels();
  const float* const row = x + std::int64_t(blockIdx.x) * stride;
  T* const to = y + std::int64_t(blockIdx.x) * width;
  const auto four = [&](int i) -> float4 {
    return {row[i], i + 1 < width ? row[i + 1] : 0, i + 2 < width ? row[i + 2] : 0, i + 3 < width ? row[i + 3] : 0};
  };
  const float scale = inverse_length(four, width, epsilon, partial);
  for (int i = int(threadIdx.x); i < width; i += kNormThreads) from_float(to[i], normalized(row[i], scale, gain[i]));
}

// Rows in fours, width up to 4 kNormThreads kGroups. A block computes every gridDim-th row and loads the next row
// before it norms the current one.
template <class T, int kGroups> __global__ void __launch_bounds__(kNormThreads)
    norm_rows(const float* x, std::int64_t stride, const float* gain, float epsilon, T* y, int width, int rows) {
  __shared__ float partial[2][kNormThreads / 32];
  static_assert(sizeof partial == kNormRowsBytes);
  let_next_kernel_start();
  const auto at = [](int k) { return 4 * (int(threadIdx.x) + kNormThreads * k); };
  const auto load = [&](const float* from, float4(&to)[kGroups]) {
#pragma unroll
    for (int k = 0; k < kGroups; ++k)
      if (at(k) < width) to[k] = __ldcg(reinterpret_cast<const float4*>(from + at(k)));
  };
  float4 g[kGroups], next[kGroups];
  load(gain, g);
  wait_for_previous_kernels();
  load(x + blockIdx.x * stride, next);
  for (int row = int(blockIdx.x), buffer = 0; row < rows; row += int(gridDim.x), buffer ^= 1) {
    float4 v[kGroups];
#pragma unroll
    for (int k = 0; k < kGroups; ++k) v[k] = next[k];
    if (row + int(gridDim.x) < rows) load(x + std::int64_t(row + int(gridDim.x)) * stride, next);
    const float s = inverse_length(v, width, epsilon, partial[buffer]);
    T* const to = y + std::int64_t(row) * width;
#pragma unroll
    for (int k = 0; k < kGroups; ++k)
      if (at(k) < width)
        store_four(to + at(k), {normalized(v[k].x, s, g[k].x), normalized(v[k].y, s, g[k].y),
                                normalized(v[k].z, s, g[k].z), normalized(v[k].w, s, g[k].w)});
  }
}

template <class T> auto kernel_for(const Tensor& x, int width) {
  if (!in_fours(x) || width > 8192) return norm_kernel<T>;
  return width <= 2048 ? norm_rows<T, 2> : width <= 4096 ? norm_rows<T, 4> : norm_rows<T, 8>;
}

}  // namespace

Tensor rms_norm_as(CudaBackend& backend, const Tensor& x, const Tensor& gain, float epsilon, DType type) {
  const int width = int(gain.dim(0));
  expect_width("rms_norm", x, width);
  const Tensor y = backend.allocate(x.shape(), type);
  with_type("rms_norm", type, [&](auto* t) {
    using T = std::remove_pointer_t<decltype(t)>;
    const auto kernel = kernel_for<T>(x, width);
    // Four blocks on each multiprocessor are one wave.
    const int rows = int(x.dim(0)), most = kernel == norm_kernel<T> ? rows : 4 * backend.multiprocessors();
    launch_kernel("rms_norm", backend.cuda_stream(),
                  {dim3(unsigned(std::min(rows, most))), kNormThreads, 0, 1, backend.dependent_launch()}, kernel,
                  x.data<float>(), x.row_stride(), gain.data<float>(), epsilon, y.data<T>(), width, rows);
  });
  return y;
}

Tensor CudaBackend::rms_norm(const Tensor& x, const Tensor& gain, float epsilon) {
  enter();
  return rms_norm_as(*this, x, gain, epsilon, DType::f32);
}

Tensor CudaBackend::rms_norm_for(const Tensor& x, const Tensor& gain, float epsilon, const Weight& w) {
  enter();
  return rms_norm_as(*this, x, gain, epsilon, activation_type(w));
}

}  // namespace foretoken
