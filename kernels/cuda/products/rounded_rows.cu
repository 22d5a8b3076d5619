// One block for each row. Bytes: rows * in * (2 or 4 read, 1 written). Operations: an exact division for each number.
// Rows of up to 16,384 numbers whose columns are in order stay in registers between the search for the greatest
// magnitude and the rounding, and are normed on the way; others are read twice.
#include <cfloat>

#include <cuda_fp8.h>

#include "kernels/cuda/elementwise/elementwise.cuh"
#include "kernels/cuda/elementwise/row_norm.cuh"
#include "kernels/cuda/products/rounded_rows.cuh"
#include "kernels/cuda/shared_memory.h"
#include "kernels/formats/activations/activation_format.h"

namespace foretoken {
namespace {

constexpr int kThreads = kNormThreads;  // so that a norm has the bits of rms_norm

struct Rounding {
  float greatest, outliers, input_scale;  // of the format; input_scale: 0: each row has its own
  int in;
  const std::int32_t* order;  // null: column j is input j
  std::int8_t* numbers;
  float* scales;
  std::int32_t *counts, *places;
  float* values;
};

// The scale of a row, and what its numbers are divided by.
struct RowScale {
  float scale;
  bool nan, none;  // none: all numbers are 0
};
// Called by all threads; `most` is shared memory for a float of each warp.
__device__ RowScale scale_of(const Rounding& a, float magnitude, bool infinite, float* most) {
  for (int i = 16; i > 0; i /= 2) magnitude = fmaxf(magnitude, __shfl_xor_sync(~0u, magnitude, i));
  if (threadIdx.x % 32 == 0) most[threadIdx.x / 32] = magnitude;
  const bool nan = __syncthreads_or(infinite) != 0;
  for (int i = 0; i < kThreads / 32; ++i) magnitude = fmaxf(magnitude, most[i]);
  const float s = a.input_scale > 0 ? a.input_scale : __fdiv_rn(magnitude, a.greatest);
  const bool none = nan || s < FLT_MIN;
  if (threadIdx.x == 0) a.scales[blockIdx.x] = nan ? __int_as_float(0x7fc00000) : none ? 0.0f : s;
  return {s, nan, none};
}

// The nearest number, ties to even; beyond the greatest, the greatest.
template <Coding kCoding> __device__ std::int8_t rounded(float x) {
  if constexpr (kCoding == Coding::integers)
    return static_cast<std::int8_t>(rintf(fminf(fmaxf(x, -128.0f), 127.0f)));
  else
    return static_cast<std::int8_t>(__nv_cvt_float_to_fp8(x, __NV_SATFINITE, __NV_E4M3));
}

// kGroups groups of four numbers for each thread; gain: null where x is not normed.
template <Coding kCoding, class X, int kGroups> __global__ void __launch_bounds__(kThreads)
    round_registers(const X* x, std::int64_t stride, const float* gain, float epsilon, Rounding a) {
  __shared__ float partial[8], most[8];
  static_assert(sizeof partial + sizeof most == 2 * kRoundBytes);
  let_next_kernel_start();
  const auto at = [](int k) { return 4 * (int(threadIdx.x) + kThreads * k); };
  wait_for_previous_kernels();
  float4 v[kGroups] = {};
  const X* const row = x + blockIdx.x * stride;
#pragma unroll
  for (int k = 0; k < kGroups; ++k)
    if (at(k) < a.in) v[k] = load_four(row + at(k));
  if (gain != nullptr) {
    const float s = inverse_length(v, a.in, epsilon, partial);
#pragma unroll
    for (int k = 0; k < kGroups; ++k)
      if (at(k) < a.in) {
        const float4 g = load_four(gain + at(k));
        v[k] = {normalized(v[k].x, s, g.x), normalized(v[k].y, s, g.y), normalized(v[k].z, s, g.z),
                normalized(v[k].w, s, g.w)};
      }
  }
  float magnitude = 0;
  bool infinite = false;
#pragma unroll
  for (int k = 0; k < kGroups; ++k) {
    v[k] = {as_bf16(v[k].x), as_bf16(v[k].y), as_bf16(v[k].z), as_bf16(v[k].w)};
    for (const float n : {v[k].x, v[k].y, v[k].z, v[k].w})
      infinite |= !(fabsf(n) <= FLT_MAX), magnitude = fmaxf(magnitude, fabsf(n));
  }
  const auto [s, nan, none] = scale_of(a, magnitude, infinite, most);
  const auto number = [s = s, none = none](float n) {
    return none ? std::int8_t(0) : rounded<kCoding>(__fdiv_rn(n, s));
  };
#pragma unroll
  for (int k = 0; k < kGroups; ++k)
    if (at(k) < a.in)
      *reinterpret_cast<char4*>(a.numbers + std::int64_t(blockIdx.x) * a.in + at(k)) = {number(v[k].x), number(v[k].y),
                                                                                        number(v[k].z), number(v[k].w)};
}

// The first warp lists the inputs of at least `outliers`.
__device__ void list_outliers(const Bf16* row, const Rounding& a, std::int64_t r) {
  const int lane = int(threadIdx.x);
  int count = 0;
  for (int base = 0; base < a.in; base += 32) {
    const int j = base + lane;
    const float v = j < a.in ? to_float(row[a.order != nullptr ? a.order[j] : j]) : 0.0f;
    const bool apart = fabsf(v) >= a.outliers;
    const unsigned all = __ballot_sync(~0u, apart);
    if (apart) {
      const std::int64_t at = r * a.in + count + __popc(all & ((1u << lane) - 1));
      a.places[at] = j, a.values[at] = v;
    }
    count += __popc(all);
  }
  if (lane == 0) a.counts[r] = count;
}

template <Coding kCoding> __global__ void __launch_bounds__(kThreads) round_memory(const Bf16* x, Rounding a) {
  __shared__ float most[8];
  static_assert(sizeof most == kRoundBytes);
  const std::int64_t r = blockIdx.x;
  const Bf16* const row = x + r * a.in;
  float magnitude = 0;
  bool infinite = false;
  for (int i = int(threadIdx.x); i < a.in; i += kThreads) {
    const float v = fabsf(to_float(row[i]));
    infinite |= !(v <= FLT_MAX);
    if (a.outliers == 0 || v < a.outliers) magnitude = fmaxf(magnitude, v);
  }
  const auto [s, nan, none] = scale_of(a, magnitude, infinite, most);
  for (int j = int(threadIdx.x); j < a.in; j += kThreads) {
    const float v = to_float(row[a.order != nullptr ? a.order[j] : j]);
    const bool zero = none || (a.outliers > 0 && fabsf(v) >= a.outliers);
    a.numbers[r * a.in + j] = zero ? std::int8_t(0) : rounded<kCoding>(__fdiv_rn(v, s));
  }
  if (a.outliers <= 0 || threadIdx.x >= 32) return;
  if (nan)
    a.counts[r] = 0;
  else
    list_outliers(row, a, r);
}

template <Coding kCoding, class X> auto registers_kernel(int in) {
  return in <= 2048   ? round_registers<kCoding, X, 2>
         : in <= 4096 ? round_registers<kCoding, X, 4>
         : in <= 8192 ? round_registers<kCoding, X, 8>
                      : round_registers<kCoding, X, 16>;
}

template <Coding kCoding> void launch(CudaBackend& backend, const ProductInput& input, const Rounding& a) {
  const Tensor& x = input.x;
  constexpr int kMost = 16 * 4 * kThreads;
  const bool normed = input.kind == ProductInput::Kind::norm;
  const Grid grid{dim3(unsigned(x.dim(0))), kThreads, 0, 1, backend.dependent_launch()};
  if (a.order == nullptr && a.outliers == 0 && a.in <= kMost && in_fours(x))
    return with_type("rounding inputs", x.dtype(), [&](auto* type) {
      using X = std::remove_pointer_t<decltype(type)>;
      launch_kernel("rounding inputs", backend.cuda_stream(), grid, registers_kernel<kCoding, X>(a.in), x.data<X>(),
                    x.row_stride(), normed ? input.gain.data<float>() : nullptr, input.epsilon, a);
    });
  const Tensor dense =
      normed ? rms_norm_as(backend, x, input.gain, input.epsilon, DType::bf16) : converted(backend, x, DType::bf16);
  launch_kernel("rounding inputs", backend.cuda_stream(), {grid.blocks, kThreads}, round_memory<kCoding>,
                dense.data<Bf16>(), a);
}

}  // namespace

RoundedRows rounded_rows(CudaBackend& backend, const ProductInput& input, const Weight& w) {
  const ActivationFormat& format = *w.activations;
  const std::int64_t rows = input.rows();
  const bool integers = format.coding() == Coding::integers;
  RoundedRows to{.numbers = backend.allocate({rows, w.in}, integers ? DType::i8 : DType::u8),
                 .scales = backend.allocate({rows}, DType::f32)};
  Rounding a{format.greatest(),
             format.outliers(),
             w.input_scale,
             int(w.in),
             w.order ? w.order.data<std::int32_t>() : nullptr,
             static_cast<std::int8_t*>(to.numbers.raw()),
             to.scales.data<float>(),
             nullptr,
             nullptr,
             nullptr};
  if (a.outliers > 0) {
    to.counts = backend.allocate({rows}, DType::i32);
    to.places = backend.allocate({rows, w.in}, DType::i32), to.values = backend.allocate({rows, w.in}, DType::f32);
    a.counts = to.counts.data<std::int32_t>(), a.places = to.places.data<std::int32_t>();
    a.values = to.values.data<float>();
  }
  if (integers)
    launch<Coding::integers>(backend, input, a);
  else
    launch<Coding::e4m3>(backend, input, a);
  return to;
}

}  // namespace foretoken
