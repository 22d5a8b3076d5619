// silu_mul: y[r, i] = silu(g[r, i]) * g[r, width + i], silu(v) = v / (1 + exp(-v)). g [rows, 2 width] -> y [rows, width], same type.
// Bytes: rows * width * 3 * (2 or 4).
#include "kernels/cuda/cuda_backend.cuh"
#include "kernels/cuda/elementwise.cuh"

namespace foretoken {
namespace {

template <class T, bool kWide> __global__ void silu_kernel(const T* g, std::int64_t stride, T* y, int width) {
  let_later_start();
  wait_for_earlier();
  const T* const gate = g + std::int64_t(blockIdx.y) * stride;
  const T* const up = gate + width;
  T* const to = y + std::int64_t(blockIdx.y) * width;
  const int i = int(blockIdx.x * blockDim.x + threadIdx.x) * (kWide ? 4 : 1);
  if (i >= width) return;
  if constexpr (kWide) {
    const float4 a = load_four(gate + i), b = load_four(up + i);
    store_four(to + i, {silu(a.x) * b.x, silu(a.y) * b.y, silu(a.z) * b.z, silu(a.w) * b.w});
  } else {
    from_float(to[i], silu(to_float(gate[i])) * to_float(up[i]));
  }
}

}  // namespace

Tensor CudaBackend::silu_mul(const Tensor& gate_up) {
  const std::int64_t rows = gate_up.dim(0), width = gate_up.dim(1) / 2;
  const Tensor y = allocate({rows, width}, gate_up.dtype());
  const bool wide = in_fours(gate_up) && width % 4 == 0;
  with_type("silu_mul", gate_up.dtype(), [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    for (std::int64_t r = 0; r < rows; r += 32768) {  // a grid has at most 65535 rows of blocks
      const std::int64_t here = std::min<std::int64_t>(rows - r, 32768);
      launch_kernel("silu_mul", stream_, {dim3(blocks_for(width, wide ? 1024 : 256), unsigned(here)), 256, 0, 1, overlaps()},
                    wide ? silu_kernel<T, true> : silu_kernel<T, false>, gate_up.data<T>() + r * gate_up.row_stride(), gate_up.row_stride(),
                    y.data<T>() + r * width, int(width));
    }
  });
  return y;
}

}  // namespace foretoken
