// Rows become numbers by one block each; then a warp computes one output of one row. Bytes: the codes once for each row
// (from L2 mostly). Operations: 2 * rows * out * in, integers by dp4a, FP8 on the f32 units with the same instructions
// for all row counts.
#include <algorithm>
#include <cfloat>

#include "kernels/cuda/products/rounded_product.cuh"
#include "kernels/cuda/shared_memory.h"
#include "kernels/formats/activations/activation_format.h"

namespace foretoken {
namespace {

constexpr int kWarps = 4;  // of a block of products

struct Rounding {
  const std::int32_t* order;  // null: column j is input j
  float greatest, outliers, input_scale;
  int in;
};

// [rows, in] numbers, [rows] scales, and of each row the places and values of its outliers, in ascending order.
template <class T> struct RoundedRows {
  T* numbers;
  float* scales;
  std::int32_t *counts, *places;
  float* values;
};

// float_of_e4m3(e4m3_of(x)): see e4m3_rows.cpp.
__device__ inline float rounded_e4m3(float x) {
  const unsigned bits = __float_as_uint(x), sign = bits & 0x80000000u;
  const float cut = fminf(__uint_as_float(bits ^ sign), 448.0f);
  const unsigned u = __float_as_uint(cut);
  const float large = __uint_as_float((u + 0x7ffffu + (u >> 20 & 1u)) & 0xfff00000u),
              small = __fsub_rn(__fadd_rn(cut, 24576.0f), 24576.0f);
  return __uint_as_float(__float_as_uint(cut < 0x1p-6f ? small : large) | sign);
}
__device__ inline void round_number(float& to, float x) { to = rounded_e4m3(x); }
__device__ inline void round_number(signed char& to, float x) {
  to = static_cast<signed char>(rintf(fminf(fmaxf(x, -128.0f), 127.0f)));
}

// The first warp lists the inputs of at least `least`.
template <class T>
__device__ void list_outliers(const Bf16* row, const Rounding& a, const RoundedRows<T>& to, std::int64_t r) {
  const int lane = int(threadIdx.x);
  int count = 0;
  for (int base = 0; base < a.in; base += 32) {
    const int j = base + lane;
    const float v = j < a.in ? to_float(row[a.order != nullptr ? a.order[j] : j]) : 0.0f;
    const bool apart = fabsf(v) >= a.outliers;
    const unsigned all = __ballot_sync(~0u, apart);
    if (apart) {
      const std::int64_t at = r * a.in + count + __popc(all & ((1u << lane) - 1));
      to.places[at] = j, to.values[at] = v;
    }
    count += __popc(all);
  }
  if (lane == 0) to.counts[r] = count;
}

template <class T> __global__ void __launch_bounds__(256) round_kernel(const Bf16* x, Rounding a, RoundedRows<T> to) {
  __shared__ float most[8];
  static_assert(sizeof most == kRoundBytes);
  const std::int64_t r = blockIdx.x;
  const Bf16* row = x + r * a.in;
  float magnitude = 0;
  bool infinite = false;
  for (int i = int(threadIdx.x); i < a.in; i += 256) {
    const float v = fabsf(to_float(row[i]));
    infinite |= !(v <= FLT_MAX);
    if (a.outliers == 0 || v < a.outliers) magnitude = fmaxf(magnitude, v);
  }
  for (int i = 16; i > 0; i /= 2) magnitude = fmaxf(magnitude, __shfl_xor_sync(~0u, magnitude, i));
  if (threadIdx.x % 32 == 0) most[threadIdx.x / 32] = magnitude;
  const bool nan = __syncthreads_or(infinite) != 0;
  for (int i = 0; i < 8; ++i) magnitude = fmaxf(magnitude, most[i]);
  const float s = a.input_scale > 0 ? a.input_scale : __fdiv_rn(magnitude, a.greatest);
  const bool none = nan || s < FLT_MIN;
  for (int j = int(threadIdx.x); j < a.in; j += 256) {
    const float v = to_float(row[a.order != nullptr ? a.order[j] : j]);
    const bool zero = none || (a.outliers > 0 && fabsf(v) >= a.outliers);
    round_number(to.numbers[r * a.in + j], zero ? 0.0f : __fdiv_rn(v, s));
  }
  if (threadIdx.x == 0) to.scales[r] = nan ? __int_as_float(0x7fc00000) : none ? 0.0f : s;
  if (a.outliers > 0 && threadIdx.x < 32) {
    if (nan)
      to.counts[r] = 0;
    else
      list_outliers(row, a, to, r);
  }
}

struct RoundedCodes {
  const std::uint8_t* codes;    // [out, in]
  const float* numbers;         // by code
  const float *scales, *zeros;  // [out, in / group]; zeros may be null
  const float* bias;            // may be null
  int out, in, group, half;
};

// The sum of a group, in integers: every lane has it.
__device__ inline int sum_of_group(const RoundedCodes& w, const std::uint8_t* codes, const signed char* x, int offset) {
  const int lane = int(threadIdx.x) % 32;
  int sum = 0, inputs = 0;
  if (w.group % 4 == 0) {
    for (int i = lane; i < w.group / 4; i += 32) {
      const int four = reinterpret_cast<const int*>(x)[i];
      sum = __dp4a(reinterpret_cast<const int*>(codes)[i] ^ int(0x80808080u), four, sum);  // codes less 128
      inputs = __dp4a(0x01010101, four, inputs);
    }
    sum += (128 - offset) * inputs;
  } else {
    for (int i = lane; i < w.group; i += 32) sum += (int(codes[i]) - offset) * x[i];
  }
  for (int i = 16; i > 0; i /= 2) sum += __shfl_xor_sync(~0u, sum, i);
  return sum;
}

__device__ inline float product_of(const RoundedCodes& w, int o, const signed char* x, float scale) {
  float y = 0;
  const int groups = w.in / w.group;
  for (int g = 0; g < groups; ++g) {
    const std::int64_t at = std::int64_t(o) * groups + g;
    const int offset = w.half + (w.zeros != nullptr ? int(w.zeros[at]) : 0);
    const int sum = sum_of_group(w, w.codes + std::int64_t(o) * w.in + g * w.group, x + g * w.group, offset);
    y = __fadd_rn(y, __fmul_rn(__int2float_rn(sum), __fmul_rn(scale, w.scales[at])));
  }
  return y;
}

__device__ inline float product_of(const RoundedCodes& w, int o, const float* x, float scale) {
  float y = 0;
  const int groups = w.in / w.group, lane = int(threadIdx.x) % 32;
  const std::uint8_t* codes = w.codes + std::int64_t(o) * w.in;
  for (int g = 0; g < groups; ++g)
    for (int k = 0; k < w.group; k += int(kChunkInputs)) {
      float sum = 0;
      for (int i = k + lane; i < min(k + int(kChunkInputs), w.group); i += 32)
        sum = fmaf(x[g * w.group + i], w.numbers[codes[g * w.group + i]], sum);
      for (int i = 16; i > 0; i /= 2) sum += __shfl_xor_sync(~0u, sum, i);
      y = __fadd_rn(y, __fmul_rn(sum, __fmul_rn(scale, w.scales[std::int64_t(o) * groups + g])));
    }
  return y;
}

// weight_of() times the outliers; formats with outliers have no minima.
template <class T>
__device__ float product_of_outliers(const RoundedCodes& w, int o, const RoundedRows<T>& x, std::int64_t r) {
  float y = 0;
  for (int i = 0; i < x.counts[r]; ++i) {
    const int j = x.places[r * w.in + i];
    const std::int64_t at = std::int64_t(o) * (w.in / w.group) + j / w.group;
    const float number =
        __fsub_rn(w.numbers[w.codes[std::int64_t(o) * w.in + j]], w.zeros != nullptr ? w.zeros[at] : 0);
    const float weight = to_float(__float2bfloat16_rn(__fmul_rn(w.scales[at], number)));
    y = __fadd_rn(y, __fmul_rn(x.values[r * w.in + i], weight));
  }
  return y;
}

template <class T> __global__ void __launch_bounds__(32 * kWarps)
    rounded_kernel(RoundedCodes w, RoundedRows<T> x, float* y, std::int64_t y_stride, bool outliers, bool adds) {
  const int o = int(blockIdx.x) * kWarps + int(threadIdx.x) / 32;
  const std::int64_t r = blockIdx.y;
  if (o >= w.out) return;
  float v = product_of(w, o, x.numbers + r * w.in, x.scales[r]);
  if (threadIdx.x % 32 != 0) return;
  if (outliers) v = __fadd_rn(v, product_of_outliers(w, o, x, r));
  if (w.bias != nullptr) v = __fadd_rn(v, w.bias[o]);
  float* to = y + r * y_stride + o;
  *to = adds ? __fadd_rn(*to, v) : v;
}

template <class T> void multiply(CudaBackend& backend, const Tensor& y, const Tensor& x, const RoundedCodes& codes,
                                 const Rounding& rounding, const Tensor& numbers, bool adds) {
  const std::int64_t rows = x.dim(0), apart = rounding.outliers > 0 ? rows * rounding.in : 0;
  const Tensor scales = backend.allocate({rows}, DType::f32), counts = backend.allocate({rows}, DType::i32);
  const Tensor places = apart > 0 ? backend.allocate({apart}, DType::i32) : Tensor(),
               values = apart > 0 ? backend.allocate({apart}, DType::f32) : Tensor();
  const RoundedRows<T> to{numbers.data<T>(), scales.data<float>(), counts.data<std::int32_t>(),
                          places.data<std::int32_t>(), values.data<float>()};
  launch_kernel("rounding inputs", backend.cuda_stream(), {dim3(unsigned(rows)), 256}, round_kernel<T>, x.data<Bf16>(),
                rounding, to);
  constexpr std::int64_t kMostRows = 65535;  // of a grid
  for (std::int64_t r = 0; r < rows; r += kMostRows) {
    RoundedRows<T> some = to;
    some.numbers += r * rounding.in, some.scales += r, some.counts += r;
    if (apart > 0) some.places += r * rounding.in, some.values += r * rounding.in;
    launch_kernel("a product with rounded inputs", backend.cuda_stream(),
                  {dim3(blocks_for(codes.out, kWarps), unsigned(std::min(kMostRows, rows - r))), 32 * kWarps},
                  rounded_kernel<T>, codes, some, y.data<float>() + r * y.row_stride(), y.row_stride(), apart > 0,
                  adds);
  }
}

const float* numbers_or_null(const Tensor& t) { return t ? t.data<float>() : nullptr; }

}  // namespace

Weight prepare_rounded(CudaBackend& backend, const Weight& weight, const Weight& dense) {
  const auto uploaded = [&](const Tensor& t) { return t ? backend.upload(t) : Tensor(); };
  Weight codes = weight, prepared = dense;
  codes.values = uploaded(weight.values), codes.scales = uploaded(weight.scales), codes.zeros = uploaded(weight.zeros);
  codes.order = uploaded(weight.order), codes.bias = {};  // the prepared weight has it
  prepared.activations = weight.activations, prepared.input_scale = weight.input_scale;
  prepared.prepared = std::make_shared<const PreparedRounded>(
      static_cast<const PreparedMatrix*>(dense.prepared.get())->matrix, std::move(codes),
      backend.upload(Tensor::host_copy(weight.format->numbers(), DType::f32)));
  return prepared;
}

void rounded_product(CudaBackend& backend, const Tensor& y, const Tensor& x, const Weight& w, bool adds) {
  if (y.dtype() != DType::f32)
    throw Error(std::string("cuda: a product with rounded inputs writes f32, not ") + name_of(y.dtype()));
  const auto& prepared = *static_cast<const PreparedRounded*>(w.prepared.get());
  const Weight& c = prepared.weight;
  const RoundedCodes codes{c.values.data<std::uint8_t>(),
                           prepared.numbers.data<float>(),
                           c.scales.data<float>(),
                           numbers_or_null(c.zeros),
                           numbers_or_null(w.bias),
                           int(w.out),
                           int(w.in),
                           c.group,
                           1 << (c.format->bits() - 1)};
  const ActivationFormat& format = *w.activations;
  const Rounding rounding{c.order ? c.order.data<std::int32_t>() : nullptr, format.greatest(), format.outliers(),
                          w.input_scale, int(w.in)};
  if (format.coding() == Coding::integers)
    multiply<signed char>(backend, y, x, codes, rounding, backend.allocate({x.dim(0), w.in}, DType::i8), adds);
  else
    multiply<float>(backend, y, x, codes, rounding, backend.allocate({x.dim(0), w.in}, DType::f32), adds);
}

}  // namespace foretoken
