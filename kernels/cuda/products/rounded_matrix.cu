// Products with rounded inputs: rows are rounded (rounded_rows.cu), and multiplied by boxes (rounded_boxes.cu) or,
// where those do not support the matrix, by a warp for each output of each row: the codes once for each row, mostly
// from L2, integers by dp4a, FP8 on the f32 units. Both give the host's bits for integers.
#include <algorithm>

#include <cuda_fp8.h>

#include "kernels/cuda/products/product_maps.cuh"
#include "kernels/cuda/products/rounded_boxes.cuh"
#include "kernels/cuda/products/rounded_matrix.cuh"
#include "kernels/formats/activations/activation_format.h"

namespace foretoken {
namespace {

constexpr int kWarps = 4;  // of a block of products

struct RoundedCodes {
  const std::int8_t* codes;     // [out, in]
  const float *scales, *zeros;  // [groups, out]; [out, groups] or null
  const std::int32_t* order;    // null: column j is input j
  int out, in, group;

  __device__ float scale(int o, int g) const { return scales[std::int64_t(g) * out + o]; }
  __device__ float zero(int o, int g) const { return zeros != nullptr ? zeros[std::int64_t(o) * (in / group) + g] : 0; }
};

template <Coding kCoding> __device__ float number_of(std::int8_t code) {
  if constexpr (kCoding == Coding::integers) return float(code);
  const __half_raw h = __nv_cvt_fp8_to_halfraw(__nv_fp8_storage_t(code), __NV_E4M3);
  return __half2float(__half(h));
}

// The bf16 weight of column j: see kernels/formats/format.h.
template <Coding kCoding> __device__ float weight_of(const RoundedCodes& w, int o, int j) {
  const int g = j / w.group;
  const float number = __fsub_rn(number_of<kCoding>(w.codes[std::int64_t(o) * w.in + j]), w.zero(o, g));
  return as_bf16(__fmul_rn(w.scale(o, g), number));
}

// The sum of a group, in integers: every lane has it.
__device__ inline int sum_of_group(const RoundedCodes& w, const std::int8_t* codes, const std::int8_t* x, int zero) {
  const int lane = int(threadIdx.x) % 32;
  int sum = 0, inputs = 0;
  if (w.group % 4 == 0) {
    for (int i = lane; i < w.group / 4; i += 32) {
      const int four = reinterpret_cast<const int*>(x)[i];
      sum = __dp4a(reinterpret_cast<const int*>(codes)[i], four, sum);
      inputs = __dp4a(0x01010101, four, inputs);
    }
    sum -= zero * inputs;
  } else {
    for (int i = lane; i < w.group; i += 32) sum += (int(codes[i]) - zero) * x[i];
  }
  for (int i = 16; i > 0; i /= 2) sum += __shfl_xor_sync(~0u, sum, i);
  return sum;
}

template <Coding kCoding> __device__ float product_of(const RoundedCodes& w, int o, const std::int8_t* x, float scale) {
  float y = 0;
  const int groups = w.in / w.group, lane = int(threadIdx.x) % 32;
  const std::int8_t* const codes = w.codes + std::int64_t(o) * w.in;
  for (int g = 0; g < groups; ++g) {
    const float scaled = __fmul_rn(scale, w.scale(o, g));
    const int begin = g * w.group;
    if constexpr (kCoding == Coding::integers) {
      const int sum = sum_of_group(w, codes + begin, x + begin, int(w.zero(o, g)));
      y = __fadd_rn(y, __fmul_rn(__int2float_rn(sum), scaled));
    } else {
      for (int k = 0; k < w.group; k += int(kChunkInputs)) {
        float sum = 0;
        for (int i = begin + k + lane; i < begin + min(k + int(kChunkInputs), w.group); i += 32)
          sum = fmaf(number_of<kCoding>(x[i]), number_of<kCoding>(codes[i]), sum);
        for (int i = 16; i > 0; i /= 2) sum += __shfl_xor_sync(~0u, sum, i);
        y = __fadd_rn(y, __fmul_rn(sum, scaled));
      }
    }
  }
  return y;
}

struct Inputs {
  const std::int8_t* numbers;
  const float* scales;
  const std::int32_t *counts, *places;  // of outliers; null: none are apart
  const float* values;
};

// v and the products of outliers, in ascending order.
template <Coding kCoding>
__device__ float with_outliers(float v, const RoundedCodes& w, const Inputs& x, int r, int o) {
  if (x.counts == nullptr) return v;
  float apart = 0;
  for (int i = 0; i < x.counts[r]; ++i) {
    const std::int64_t at = std::int64_t(r) * w.in + i;
    apart = __fadd_rn(apart, __fmul_rn(x.values[at], weight_of<kCoding>(w, o, x.places[at])));
  }
  return __fadd_rn(v, apart);
}

template <Coding kCoding> __global__ void __launch_bounds__(32 * kWarps)
    warp_kernel(RoundedCodes w, Inputs x, Epilogue to, std::int64_t first) {
  const int o = int(blockIdx.x) * kWarps + int(threadIdx.x) / 32, r = int(first + blockIdx.y);
  if (o >= w.out) return;
  const float v = product_of<kCoding>(w, o, x.numbers + std::int64_t(r) * w.in, x.scales[r]);
  if (threadIdx.x % 32 != 0) return;
  to.write(r, o, with_outliers<kCoding>(v, w, x, r, o), to.previous(r, o));
}

// y = products of numbers + those of outliers: a thread for each output of a row.
template <Coding kCoding> __global__ void __launch_bounds__(256)
    outliers_kernel(const float* products, RoundedCodes w, Inputs x, Epilogue to, std::int64_t first) {
  const int o = int(blockIdx.x * 256 + threadIdx.x), r = int(first + blockIdx.y);
  if (o >= w.out) return;
  const float v = products[std::int64_t(r) * w.out + o];
  to.write(r, o, with_outliers<kCoding>(v, w, x, r, o), to.previous(r, o));
}

template <Coding kCoding> __global__ void __launch_bounds__(256)
    embed_kernel(RoundedCodes w, const int* tokens, float* x) {
  wait_for_previous_kernels();
  let_next_kernel_start();  // not before: see CudaBackend::reads_early
  const int token = tokens[blockIdx.x];
  for (int j = int(threadIdx.x); j < w.in; j += 256)
    x[std::int64_t(blockIdx.x) * w.in + (w.order != nullptr ? w.order[j] : j)] =
        token < 0 ? 0.0f : weight_of<kCoding>(w, token, j);
}

__global__ void centre_kernel(const std::uint8_t* codes, int middle, std::int8_t* to, std::int64_t n) {
  for (std::int64_t i = blockIdx.x * std::int64_t(256) + threadIdx.x; i < n; i += std::int64_t(gridDim.x) * 256)
    to[i] = static_cast<std::int8_t>(int(codes[i]) - middle);
}
__global__ void transpose_kernel(const float* scales, float* to, int out, int groups) {
  const int o = int(blockIdx.x * 256 + threadIdx.x);
  for (int g = 0; o < out && g < groups; ++g) to[std::int64_t(g) * out + o] = scales[std::int64_t(o) * groups + g];
}

RoundedCodes codes_of(const RoundedMatrix& m) {
  const Weight& w = m.weight();
  return {static_cast<const std::int8_t*>(m.codes().raw()),
          m.scales().data<float>(),
          data_or_null<float>(w.zeros),
          data_or_null<std::int32_t>(w.order),
          int(w.out),
          int(w.in),
          w.group};
}

Inputs inputs_of(const RoundedRows& x) {
  return {static_cast<const std::int8_t*>(x.numbers.raw()), x.scales.data<float>(),
          data_or_null<std::int32_t>(x.counts), data_or_null<std::int32_t>(x.places), data_or_null<float>(x.values)};
}

// Calls f with a value that has the coding as its type.
template <class F> void with_coding(const RoundedMatrix& m, F f) {
  if (m.weight().activations->coding() == Coding::integers)
    f(std::integral_constant<Coding, Coding::integers>());
  else
    f(std::integral_constant<Coding, Coding::e4m3>());
}

// Calls launch(first row, rows) for as many rows as a grid has room for.
template <class F> void in_grids(std::int64_t rows, F launch) {
  constexpr std::int64_t kMostRows = 65535;
  for (std::int64_t r = 0; r < rows; r += kMostRows) launch(r, unsigned(std::min(kMostRows, rows - r)));
}

}  // namespace

RoundedMatrix::RoundedMatrix(CudaBackend& backend, const Weight& weight) : weight_(weight) {
  const std::int64_t n = weight.out * weight.in;
  const bool integers = weight.format->coding() == Coding::integers;
  const Tensor values = backend.upload(weight.values), scales = backend.upload(weight.scales);
  codes_ = values;
  if (integers) {
    codes_ = backend.allocate({weight.out, weight.in}, DType::i8);
    launch_kernel("prepare", backend.cuda_stream(), {dim3(std::min(blocks_for(n, 256), 4096u)), 256}, centre_kernel,
                  values.data<std::uint8_t>(), 1 << (weight.format->bits() - 1),
                  static_cast<std::int8_t*>(codes_.raw()), n);
  }
  scales_ = backend.allocate({groups(), weight.out}, DType::f32);
  launch_kernel("prepare", backend.cuda_stream(), {dim3(blocks_for(weight.out, 256)), 256}, transpose_kernel,
                scales.data<float>(), scales_.data<float>(), int(weight.out), int(groups()));
  weight_.values = {}, weight_.scales = {}, weight_.bias = {};
  weight_.zeros = uploaded(backend, weight.zeros), weight_.order = uploaded(backend, weight.order);
  boxes_ = can_multiply_boxes(backend, *this);
}

std::int64_t RoundedMatrix::bytes() const {
  return codes_.bytes() + scales_.bytes() + (weight_.zeros ? weight_.zeros.bytes() : 0);
}

// FP8 of several slices is added in a cluster, which does not gate.
bool RoundedMatrix::gates(CudaProducts&, const ProductInput& input) const {
  const bool sliced =
      weight_.activations->coding() == Coding::e4m3 && groups() == 1 && splits_of(weight_.out, weight_.in) > 1;
  return boxes_ && !sliced && weight_.activations->outliers() == 0 && weight_.out % 16 == 0 && input.rows() > 0;
}

void RoundedMatrix::multiply(CudaProducts& products, const ProductResult& result, const ProductInput& input) const {
  CudaBackend& backend = products.backend();
  const RoundedRows x = rounded_rows(backend, input, weight_);
  const std::int64_t rows = input.rows();
  const cudaStream_t stream = backend.cuda_stream();
  const Epilogue to = result.epilogue();
  if (!boxes_)
    return with_coding(*this, [&](auto coding) {
      in_grids(rows, [&](std::int64_t r, unsigned n) {
        launch_kernel("a product with rounded inputs", stream, {dim3(blocks_for(weight_.out, kWarps), n), 32 * kWarps},
                      warp_kernel<coding.value>, codes_of(*this), inputs_of(x), to, r);
      });
    });
  const bool direct = !x.counts && aligned(result.y, 4 * size_of(result.y.dtype()));
  if (direct) return multiply_boxes(backend, result, x, *this);
  const Tensor sums = backend.allocate({rows, weight_.out}, DType::f32);
  multiply_boxes(backend, {sums}, x, *this);
  with_coding(*this, [&](auto coding) {
    in_grids(rows, [&](std::int64_t r, unsigned n) {
      launch_kernel("adding outliers", stream, {dim3(blocks_for(weight_.out, 256), n), 256},
                    outliers_kernel<coding.value>, sums.data<float>(), codes_of(*this), inputs_of(x), to, r);
    });
  });
}

void RoundedMatrix::embed(CudaBackend& backend, const Tensor& tokens, const Tensor& x) const {
  with_coding(*this, [&](auto coding) {
    launch_kernel("embed", backend.cuda_stream(),
                  {dim3(unsigned(tokens.dim(0))), 256, 0, 1, backend.dependent_launch()}, embed_kernel<coding.value>,
                  codes_of(*this), tokens.data<int>(), x.data<float>());
  });
}

}  // namespace foretoken
