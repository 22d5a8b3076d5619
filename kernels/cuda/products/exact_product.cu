// y = x W^T + b, sums in f32: every output is one chain of fused multiply-adds over k = 0, 1, ..., in - 1. Bytes: the
// matrix once per 64 rows. Operations: 2 * rows * out * in, on the plain f32 units.
#include "kernels/cuda/products/exact_product.cuh"
#include "kernels/cuda/shared_memory.h"

namespace foretoken {
namespace {

constexpr int kSide = 64, kDepth = 16;  // outputs and rows of a block; inputs at once

// What a block multiplies and where the results go.
template <class T> struct ExactWork {
  const T *w, *x;
  const float* bias;
  void* y;
  std::int64_t y_stride;
  bool y_bf16;
  int rows, out, in;
  bool adds;
};

struct ExactInputs {
  float w[kDepth][kSide + 4], x[kDepth][kSide + 4];

  // Inputs from k0 on of the block's outputs and rows, zeros behind the last of each.
  template <class T> __device__ void load(const ExactWork<T>& a, int o0, int r0, int k0) {
    for (int n = int(threadIdx.x); n < kSide * kDepth; n += 256) {
      const int k = n % kDepth, i = n / kDepth;
      const bool inside = k0 + k < a.in;
      w[k][i] = inside && o0 + i < a.out ? to_float(a.w[std::int64_t(o0 + i) * a.in + k0 + k]) : 0.0f;
      x[k][i] = inside && r0 + i < a.rows ? to_float(a.x[std::int64_t(r0 + i) * a.in + k0 + k]) : 0.0f;
    }
  }
};

template <class T> __device__ void write_exact(const ExactWork<T>& a, const float (&sum)[4][4], int r0, int o0) {
  for (int i = 0; i < 4; ++i)
    for (int j = 0; j < 4; ++j) {
      const int r = r0 + i, o = o0 + j;
      if (r >= a.rows || o >= a.out) continue;
      const float v = a.bias != nullptr ? sum[i][j] + a.bias[o] : sum[i][j];
      const std::int64_t at = r * a.y_stride + o;
      if (a.y_bf16)
        from_float(static_cast<Bf16*>(a.y)[at], v);
      else
        static_cast<float*>(a.y)[at] = a.adds ? static_cast<float*>(a.y)[at] + v : v;
    }
}

// 256 threads, each 4 rows x 4 outputs.
template <class T> __global__ void __launch_bounds__(256) exact_kernel(const __grid_constant__ ExactWork<T> a) {
  __shared__ ExactInputs inputs;
  static_assert(sizeof inputs == kExactBytes);
  wait_for_earlier();
  let_later_start();
  const int o0 = int(blockIdx.x) * kSide, r0 = int(blockIdx.y) * kSide, column = int(threadIdx.x) % 16,
            line = int(threadIdx.x) / 16;
  float sum[4][4] = {};
  for (int k0 = 0; k0 < a.in; k0 += kDepth) {
    inputs.load(a, o0, r0, k0);
    __syncthreads();
    const int depth = min(kDepth, a.in - k0);
    for (int k = 0; k < depth; ++k) {
      const float4 x = *reinterpret_cast<const float4*>(&inputs.x[k][4 * line]),
                   w = *reinterpret_cast<const float4*>(&inputs.w[k][4 * column]);
      const float p[4] = {x.x, x.y, x.z, x.w}, q[4] = {w.x, w.y, w.z, w.w};
#pragma unroll
      for (int i = 0; i < 4; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j) sum[i][j] = fmaf(p[i], q[j], sum[i][j]);
    }
    __syncthreads();
  }
  write_exact(a, sum, r0 + 4 * line, o0 + 4 * column);
}

}  // namespace

void exact_product(CudaBackend& backend, const Tensor& y, const Tensor& x, const Tensor& matrix, const Tensor& bias,
                   bool adds) {
  with_type("a product", matrix.dtype(), [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    const ExactWork<T> work{matrix.data<T>(),
                            x.data<T>(),
                            bias ? bias.data<float>() : nullptr,
                            y.raw(),
                            y.row_stride(),
                            y.dtype() == DType::bf16,
                            int(y.dim(0)),
                            int(matrix.dim(0)),
                            int(matrix.dim(1)),
                            adds};
    launch_kernel("a product in f32", backend.cuda_stream(),
                  {dim3(blocks_for(matrix.dim(0), kSide), blocks_for(y.dim(0), kSide)), 256, 0, 1, backend.overlaps()},
                  exact_kernel<T>, work);
  });
}

}  // namespace foretoken
