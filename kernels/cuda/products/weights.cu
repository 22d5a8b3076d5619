// prepare: copies a weight to the device, once. bf16 and f32 stay as they are, f16 becomes f32. Codes are packed for
// tensor cores where they have cells (packed_matrix.cuh), else they become bf16, in the order of the inputs. Bytes on
// the device: out * in * (2 or 4), or those of the cells.
#include <cuda_fp16.h>

#include "kernels/cuda/cuda_backend.cuh"
#include "kernels/cuda/products/dense_matrix.cuh"
#include "kernels/cuda/products/packed_routes.cuh"
#include "kernels/cuda/products/rounded_matrix.cuh"
#include "kernels/formats/format.h"

namespace foretoken {
namespace {

__global__ void widen_kernel(const __half* q, float* w, std::int64_t n) {
  for (std::int64_t i = blockIdx.x * std::int64_t(blockDim.x) + threadIdx.x; i < n;
       i += std::int64_t(gridDim.x) * blockDim.x)
    w[i] = __half2float(q[i]);
}

struct Codes {
  const std::uint8_t* codes;             // [out, in]
  const float* numbers;                  // by code
  const float *scales, *zeros, *minima;  // [out, in / group]; null: 0
  const std::int32_t* order;             // [in]; null: column j is input j
  int group;
  std::int64_t in;
};

// weight_of(); no two operations may become one with a single rounding.
__global__ void dequantize_kernel(Codes c, Bf16* w, std::int64_t n) {
  for (std::int64_t i = blockIdx.x * std::int64_t(blockDim.x) + threadIdx.x; i < n;
       i += std::int64_t(gridDim.x) * blockDim.x) {
    const std::int64_t g = i / c.group, o = i / c.in;
    const float number = __fsub_rn(c.numbers[c.codes[i]], c.zeros != nullptr ? c.zeros[g] : 0.0f);
    const float value = __fsub_rn(__fmul_rn(c.scales[g], number), c.minima != nullptr ? c.minima[g] : 0.0f);
    w[c.order != nullptr ? o * c.in + c.order[i - o * c.in] : i] = __float2bfloat16_rn(value);
  }
}

// The matrix of a weight that is not packed: bf16 or f32.
Tensor dense_values(CudaBackend& backend, const Weight& stored) {
  const Weight weight = stored.kept     ? in_input_order(dequantized(stored))
                        : stored.format ? stored
                                        : in_input_order(stored);
  const std::int64_t n = weight.out * weight.in;
  const Grid grid{dim3(std::min(blocks_for(n, 256), 4096u)), 256};
  const Tensor values = backend.upload(weight.values);
  if (weight.format) {
    const Tensor numbers = backend.upload(Tensor::host_copy(weight.format->numbers(), DType::f32)),
                 scales = backend.upload(weight.scales), zeros = uploaded(backend, weight.zeros),
                 minima = uploaded(backend, weight.minima), order = uploaded(backend, weight.order),
                 matrix = backend.allocate({weight.out, weight.in}, DType::bf16);
    const Codes codes{values.data<std::uint8_t>(),
                      numbers.data<float>(),
                      scales.data<float>(),
                      data_or_null<float>(zeros),
                      data_or_null<float>(minima),
                      data_or_null<std::int32_t>(order),
                      weight.group,
                      weight.in};
    launch_kernel("prepare", backend.cuda_stream(), grid, dequantize_kernel, codes, matrix.data<Bf16>(), n);
    return matrix;
  }
  if (values.dtype() == DType::f16) {
    const Tensor matrix = backend.allocate({weight.out, weight.in}, DType::f32);
    launch_kernel("prepare", backend.cuda_stream(), grid, widen_kernel, values.data<__half>(), matrix.data<float>(), n);
    return matrix;
  }
  if (values.dtype() != DType::f32 && values.dtype() != DType::bf16)
    throw Error(std::string("cuda: a weight of ") + name_of(values.dtype()) +
                " numbers; F32, F16, BF16 and the formats of kernels/formats are supported");
  return values;
}

std::shared_ptr<const CudaMatrix> matrix_for(CudaBackend& backend, const Weight& weight) {
  if (weight.activations) return std::make_shared<const RoundedMatrix>(backend, weight);
  if (weight.format)
    if (const auto cells = packed(backend, weight)) {
      cells->routes = packed_routes(backend, *cells);
      return cells;
    }
  return std::make_shared<const DenseMatrix>(backend, dense_values(backend, weight));
}

}  // namespace

Weight CudaProducts::prepare(Weight weight) {
  auto matrix = matrix_for(backend_, weight);
  if (weight.bias) weight.bias = backend_.upload(weight.bias);
  weight.forget_stored();
  weight.prepared = std::move(matrix);
  return weight;
}

}  // namespace foretoken
