// y = x W^T + b, sums in f32: every output is one chain of fused multiply-adds over k = 0, 1, ..., in - 1. Bytes: the
// matrix once per 64 rows. Operations: 2 * rows * out * in, on the f32 units, not on tensor cores.
#include "kernels/cuda/products/exact_product.cuh"
#include "kernels/cuda/shared_memory.h"

namespace foretoken {
namespace {

constexpr int kSide = 64, kDepth = 16;  // outputs and rows of a block; inputs at once

// The inputs of one step: [k][i] is input k of row i or of output i of the block. The padding keeps four neighbours
// aligned and reduces the bank conflicts of the writes, where neighbouring threads have successive k.
using Inputs = float[kDepth][kSide + 4];

// Multiplies the first `depth` inputs, k ascending: sum[i][j] is of row `row` + i and output `output` + j of the block.
__device__ __forceinline__ void add_products(float (&sum)[4][4], const Inputs& xs, const Inputs& ws, int row,
                                             int output, int depth) {
  for (int k = 0; k < depth; ++k) {
    const float4 a = *reinterpret_cast<const float4*>(&xs[k][row]),
                 b = *reinterpret_cast<const float4*>(&ws[k][output]);
    const float p[4] = {a.x, a.y, a.z, a.w}, q[4] = {b.x, b.y, b.z, b.w};
#pragma unroll
    for (int i = 0; i < 4; ++i)
#pragma unroll
      for (int j = 0; j < 4; ++j) sum[i][j] = fmaf(p[i], q[j], sum[i][j]);
  }
}

// 256 threads, each 4 rows x 4 outputs.
template <class T> __global__ void __launch_bounds__(256) exact_kernel(const T* w, const T* x, Epilogue to, int in) {
  __shared__ Inputs ws, xs;
  static_assert(sizeof ws + sizeof xs == kExactBytes);
  wait_for_previous_kernels();
  let_next_kernel_start();
  const int o0 = int(blockIdx.x) * kSide, r0 = int(blockIdx.y) * kSide, thread = int(threadIdx.x);
  const int column = thread % 16, line = thread / 16;
  const int rows = to.rows, out = to.out;
  float sum[4][4] = {};
  for (int k0 = 0; k0 < in; k0 += kDepth) {
    for (int n = thread; n < kSide * kDepth; n += 256) {
      const int k = n % kDepth, i = n / kDepth;
      const bool inside = k0 + k < in;
      ws[k][i] = inside && o0 + i < out ? to_float(w[std::int64_t(o0 + i) * in + k0 + k]) : 0.0f;
      xs[k][i] = inside && r0 + i < rows ? to_float(x[std::int64_t(r0 + i) * in + k0 + k]) : 0.0f;
    }
    __syncthreads();
    add_products(sum, xs, ws, 4 * line, 4 * column, min(kDepth, in - k0));
    __syncthreads();
  }
  for (int i = 0; i < 4; ++i)
    for (int j = 0; j < 4; ++j) {
      const int r = r0 + 4 * line + i, o = o0 + 4 * column + j;
      if (r < rows && o < out) to.write(r, o, sum[i][j], to.previous(r, o));
    }
}

}  // namespace

void exact_product(CudaBackend& backend, const Epilogue& to, const Tensor& x, const Tensor& matrix) {
  with_type("a product", matrix.dtype(), [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    launch_kernel("a product in f32", backend.cuda_stream(),
                  {dim3(blocks_for(to.out, kSide), blocks_for(to.rows, kSide)), 256, 0, 1, backend.dependent_launch()},
                  exact_kernel<T>, matrix.data<T>(), x.data<T>(), to, int(matrix.dim(1)));
  });
}

}  // namespace foretoken
