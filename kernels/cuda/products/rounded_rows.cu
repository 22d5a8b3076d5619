// One block for each row. Bytes: rows * in * (2 or 4 read, 1 written). Operations: about 12 instructions for each
// number (see RowDivider). Rows of up to 16,384 numbers whose columns are in order stay in registers between the search
// for the greatest magnitude and the rounding, and are normed on the way; others are read twice.
#include "kernels/cuda/elementwise/elementwise.cuh"
#include "kernels/cuda/elementwise/row_norm.cuh"
#include "kernels/cuda/products/rounded_rows.cuh"
#include "kernels/cuda/products/row_rounding.cuh"
#include "kernels/cuda/shared_memory.h"

namespace foretoken {
namespace {

// A norm has the bits of rms_norm by as many threads. Rows that are not normed take more: the code of many groups for
// each thread is long, and runs but once.
constexpr int kMostThreads = 1024;

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
// magnitude: the greatest of this thread's numbers; NaN or infinite where one is. Called by all threads; `most` is
// shared memory for a float of each warp.
template <int kThreads> __device__ RowScale scale_of(const Rounding& a, float magnitude, float (&most)[kThreads / 32]) {
  for (int i = 16; i > 0; i /= 2) magnitude = greater_magnitude(magnitude, __shfl_xor_sync(~0u, magnitude, i));
  if (threadIdx.x % 32 == 0) most[threadIdx.x / 32] = magnitude;
  __syncthreads();
#pragma unroll
  for (int i = 0; i < kThreads / 32; ++i) magnitude = greater_magnitude(magnitude, most[i]);
  const bool nan = !(magnitude <= FLT_MAX);
  const float s = a.input_scale > 0 ? a.input_scale : __fdiv_rn(magnitude, a.greatest);
  const bool none = nan || s < FLT_MIN;
  if (threadIdx.x == 0) a.scales[blockIdx.x] = nan ? __int_as_float(0x7fc00000) : none ? 0.0f : s;
  return {s, nan, none};
}

// Four numbers that another kernel may have written while this one's blocks began: not from L1.
__device__ float4 written_four(const float* p) { return __ldcg(reinterpret_cast<const float4*>(p)); }
__device__ float4 written_four(const Bf16* p) { return widened(__ldcg(reinterpret_cast<const uint2*>(p))); }

// kGroups groups of four numbers for each thread; gain: of rows that are normed.
template <Coding kCoding, class X, bool kNormed, int kThreads, int kGroups> __global__ void __launch_bounds__(kThreads)
    round_registers(const X* x, std::int64_t stride, const float* gain, float epsilon, Rounding a) {
  __shared__ float partial[8], most[kThreads / 32];
  static_assert(sizeof partial + sizeof most <= kRoundBytes && (!kNormed || kThreads == kNormThreads));
  let_next_kernel_start();
  const auto at = [](int k) { return 4 * (int(threadIdx.x) + kThreads * k); };
  float4 g[kNormed ? kGroups : 1], v[kGroups] = {};
  if constexpr (kNormed)
#pragma unroll
    for (int k = 0; k < kGroups; ++k)
      if (at(k) < a.in) g[k] = load_four(gain + at(k));
  wait_for_previous_kernels();
  const X* const row = x + blockIdx.x * stride;
#pragma unroll
  for (int k = 0; k < kGroups; ++k)
    if (at(k) < a.in) v[k] = written_four(row + at(k));
  if constexpr (kNormed) {
    const float s = inverse_length(v, a.in, epsilon, partial);
#pragma unroll
    for (int k = 0; k < kGroups; ++k)
      if (at(k) < a.in)
        v[k] = {normalized(v[k].x, s, g[k].x), normalized(v[k].y, s, g[k].y), normalized(v[k].z, s, g[k].z),
                normalized(v[k].w, s, g[k].w)};
  }
  float magnitude = 0;
#pragma unroll
  for (int k = 0; k < kGroups; ++k) {
    if constexpr (!std::is_same_v<X, Bf16>) v[k] = {as_bf16(v[k].x), as_bf16(v[k].y), as_bf16(v[k].z), as_bf16(v[k].w)};
    for (const float n : {v[k].x, v[k].y, v[k].z, v[k].w}) magnitude = greater_magnitude(magnitude, n);
  }
  const RowScale s = scale_of<kThreads>(a, magnitude, most);
  const RowDivider<kCoding> divider(s.scale, s.none);
#pragma unroll
  for (int k = 0; k < kGroups; ++k)
    if (at(k) < a.in)
      *reinterpret_cast<unsigned*>(a.numbers + std::int64_t(blockIdx.x) * a.in + at(k)) = divider.four(v[k]);
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

template <Coding kCoding> __global__ void __launch_bounds__(kMostThreads) round_memory(const Bf16* x, Rounding a) {
  __shared__ float most[kMostThreads / 32];
  static_assert(sizeof most <= kRoundBytes);
  const std::int64_t r = blockIdx.x;
  const Bf16* const row = x + r * a.in;
  // An outlier counts where it is not finite alone.
  float magnitude = 0;
  for (int i = int(threadIdx.x); i < a.in; i += kMostThreads) {
    const float v = fabsf(to_float(row[i]));
    if (a.outliers == 0 || !(v >= a.outliers && v <= FLT_MAX)) magnitude = greater_magnitude(magnitude, v);
  }
  const RowScale s = scale_of<kMostThreads>(a, magnitude, most);
  const RowDivider<kCoding> divider(s.scale, s.none);
  for (int j = int(threadIdx.x); j < a.in; j += kMostThreads) {
    const float v = to_float(row[a.order != nullptr ? a.order[j] : j]);
    const bool apart = a.outliers > 0 && fabsf(v) >= a.outliers;
    a.numbers[r * a.in + j] = std::int8_t(apart ? 0 : divider.one(v));
  }
  if (a.outliers <= 0 || threadIdx.x >= 32) return;
  if (s.nan)
    a.counts[r] = 0;
  else
    list_outliers(row, a, r);
}

// A kernel, and the threads of its blocks.
template <class X> struct RowsKernel {
  void (*kernel)(const X*, std::int64_t, const float*, float, Rounding);
  int threads;
};
template <Coding kCoding> RowsKernel<float> normed_kernel(int in) {
  constexpr int k = kNormThreads;
  return {in <= 2048   ? round_registers<kCoding, float, true, k, 2>
          : in <= 4096 ? round_registers<kCoding, float, true, k, 4>
          : in <= 8192 ? round_registers<kCoding, float, true, k, 8>
                       : round_registers<kCoding, float, true, k, 16>,
          k};
}
template <Coding kCoding, class X> RowsKernel<X> plain_kernel(int in) {
  constexpr int k = kMostThreads;
  return {in <= 4096   ? round_registers<kCoding, X, false, k, 1>
          : in <= 8192 ? round_registers<kCoding, X, false, k, 2>
                       : round_registers<kCoding, X, false, k, 4>,
          k};
}

template <Coding kCoding> void launch(CudaBackend& backend, const ProductInput& input, const Rounding& a) {
  const Tensor& x = input.x;
  constexpr int kMost = 4 * 4 * kMostThreads;
  const bool normed = input.kind == ProductInput::Kind::norm;
  const auto grid = [&](int threads) {
    return Grid{dim3(unsigned(x.dim(0))), threads, 0, 1, backend.dependent_launch()};
  };
  if (a.order == nullptr && a.outliers == 0 && a.in <= kMost && in_fours(x)) {
    const auto round = [&]<class X>(const RowsKernel<X>& by) {
      launch_kernel("rounding inputs", backend.cuda_stream(), grid(by.threads), by.kernel,
                    static_cast<const X*>(x.data<X>()), x.row_stride(), normed ? input.gain.data<float>() : nullptr,
                    input.epsilon, a);
    };
    if (normed) return round(normed_kernel<kCoding>(a.in));
    return with_type("rounding inputs", x.dtype(),
                     [&](auto* type) { round(plain_kernel<kCoding, std::remove_pointer_t<decltype(type)>>(a.in)); });
  }
  const Tensor dense =
      normed ? rms_norm_as(backend, x, input.gain, input.epsilon, DType::bf16) : converted(backend, x, DType::bf16);
  launch_kernel("rounding inputs", backend.cuda_stream(), {dim3(unsigned(x.dim(0))), kMostThreads},
                round_memory<kCoding>, dense.data<Bf16>(), a);
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
