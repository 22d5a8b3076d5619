// silu_mul: y[r, i] = silu(g[r, i]) * g[r, width + i], silu(v) = v / (1 + exp(-v)). g [rows, 2 width] -> y [rows,
// width], same type. Bytes: rows * width * 3 * (2 or 4).
#include "kernels/cuda/cuda_backend.cuh"
#include "kernels/cuda/elementwise/elementwise.cuh"

namespace foretoken {
namespace {

constexpr int kThreads = 256, kRowsAtOnce = 2;

__device__ inline float4 gated(float4 a, float4 b) {
  return {silu(a.x) * b.x, silu(a.y) * b.y, silu(a.z) * b.z, silu(a.w) * b.w};
}

template <class T> __global__ void silu_kernel(const T* g, std::int64_t stride, T* y, int width, int) {
  let_next_kernel_start();
  wait_for_previous_kernels();
  const T* const gate = g + std::int64_t(blockIdx.y) * stride;
  const int i = int(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < width)
    from_float(y[std::int64_t(blockIdx.y) * width + i], silu(to_float(gate[i])) * to_float(gate[width + i]));
}

// bf16, eight columns of each of kRowsAtOnce rows.
__global__ void __launch_bounds__(kThreads)
    silu_eights(const Bf16* g, std::int64_t stride, Bf16* y, int width, int rows) {
  let_next_kernel_start();
  wait_for_previous_kernels();
  const int i = 8 * int(blockIdx.x * blockDim.x + threadIdx.x), first = kRowsAtOnce * int(blockIdx.y);
  if (i >= width) return;
  Eight gate[kRowsAtOnce], up[kRowsAtOnce];
#pragma unroll
  for (int r = 0; r < kRowsAtOnce; ++r)
    if (first + r < rows)
      gate[r] = load_eight(g + (first + r) * stride + i), up[r] = load_eight(g + (first + r) * stride + width + i);
#pragma unroll
  for (int r = 0; r < kRowsAtOnce; ++r)
    if (first + r < rows)
      store_eight(y + std::int64_t(first + r) * width + i,
                  {gated(gate[r].low, up[r].low), gated(gate[r].high, up[r].high)});
}

}  // namespace

Tensor CudaBackend::silu_mul(const Tensor& gate_up) {
  enter();
  const std::int64_t rows = gate_up.dim(0), width = gate_up.dim(1) / 2;
  const Tensor y = allocate({rows, width}, gate_up.dtype());
  const bool eights = gate_up.dtype() == DType::bf16 && width % 8 == 0 && gate_up.row_stride() % 8 == 0 &&
                      reinterpret_cast<std::uintptr_t>(gate_up.raw()) % 16 == 0;
  with_type("silu_mul", gate_up.dtype(), [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    for (std::int64_t r = 0; r < rows; r += 32768) {  // a grid has at most 65535 rows of blocks
      const std::int64_t here = std::min<std::int64_t>(rows - r, 32768);
      const T* const from = gate_up.data<T>() + r * gate_up.row_stride();
      T* const to = y.data<T>() + r * width;
      const dim3 blocks = eights ? dim3(blocks_for(width, 8 * kThreads), blocks_for(here, kRowsAtOnce))
                                 : dim3(blocks_for(width, kThreads), unsigned(here));
      void (*kernel)(const T*, std::int64_t, T*, int, int) = silu_kernel<T>;
      if constexpr (std::is_same_v<T, Bf16>)
        if (eights) kernel = silu_eights;
      launch_kernel("silu_mul", stream_, {blocks, kThreads, 0, 1, dependent_launch()}, kernel, from,
                    gate_up.row_stride(), to, int(width), int(here));
    }
  });
  return y;
}

}  // namespace foretoken
