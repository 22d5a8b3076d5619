// prepare: copies a weight to the device, once. bf16 and f32 stay as they are, f16 becomes f32, int8 groups become
// bf16: w = scale * (q - zero). Bytes on the device: out * in * (2 or 4).
#include <cuda_fp16.h>

#include "kernels/cuda/cuda_backend.cuh"
#include "kernels/cuda/products/products.cuh"

namespace foretoken {
namespace {

__global__ void widen_kernel(const __half* q, float* w, std::int64_t n) {
  for (std::int64_t i = blockIdx.x * std::int64_t(blockDim.x) + threadIdx.x; i < n;
       i += std::int64_t(gridDim.x) * blockDim.x)
    w[i] = __half2float(q[i]);
}

__global__ void dequantize_kernel(const std::int8_t* q, const float* scales, const float* zeros, int group, Bf16* w,
                                  std::int64_t n) {
  for (std::int64_t i = blockIdx.x * std::int64_t(blockDim.x) + threadIdx.x; i < n;
       i += std::int64_t(gridDim.x) * blockDim.x) {
    const std::int64_t g = i / group;
    w[i] = __float2bfloat16_rn(scales[g] * (float(q[i]) - (zeros != nullptr ? zeros[g] : 0.0f)));
  }
}

}  // namespace

Weight CudaProducts::prepare(Weight weight) {
  const std::int64_t n = weight.out * weight.in;
  const unsigned blocks = std::min(blocks_for(n, 256), 4096u);
  const Tensor values = backend_.upload(weight.values);
  Tensor matrix = values;
  if (weight.format == Weight::Format::int8_groups) {
    const Tensor scales = backend_.upload(weight.scales),
                 zeros = weight.zeros ? backend_.upload(weight.zeros) : Tensor();
    matrix = backend_.allocate({weight.out, weight.in}, DType::bf16);
    launch_kernel("prepare", backend_.cuda_stream(), {dim3(blocks), 256}, dequantize_kernel, values.data<std::int8_t>(),
                  scales.data<float>(), zeros ? zeros.data<float>() : nullptr, weight.group, matrix.data<Bf16>(), n);
  } else if (values.dtype() == DType::f16) {
    matrix = backend_.allocate({weight.out, weight.in}, DType::f32);
    launch_kernel("prepare", backend_.cuda_stream(), {dim3(blocks), 256}, widen_kernel, values.data<__half>(),
                  matrix.data<float>(), n);
  } else if (values.dtype() != DType::f32 && values.dtype() != DType::bf16) {
    throw Error(std::string("cuda: a weight of ") + name_of(values.dtype()) +
                " numbers; F32, F16, BF16 and int8 groups are supported");
  }
  if (weight.bias) weight.bias = backend_.upload(weight.bias);
  weight.values = {}, weight.scales = {}, weight.zeros = {};
  weight.prepared = std::make_shared<const PreparedMatrix>(matrix);
  return weight;
}

}  // namespace foretoken
