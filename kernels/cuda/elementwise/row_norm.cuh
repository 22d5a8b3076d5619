// The sum of squares of a row in one fixed order, so that the separate norm and the norm fused into a product have the
// same bits. 256 threads; group g of four numbers goes to thread g mod 256, then trees. This header must not know
// products.
#pragma once
#include "kernels/cuda/device.cuh"

namespace foretoken {

constexpr int kNormThreads = 256;

// inverse = 1 / sqrt(mean x^2 + epsilon) of a row of `width` numbers; four(i) gives x[i] ... x[i + 3], zeros after the
// row. Called by all threads of a block, whole warps; `partial` is shared memory for 8 floats.
template <class Four> __device__ inline float inverse_length(Four four, int width, float epsilon, float* partial) {
  constexpr int kNormWarps = kNormThreads / 32;
  const int lane = int(threadIdx.x) % 32, warps = int(blockDim.x) / 32;
  for (int warp = int(threadIdx.x) / 32; warp < kNormWarps; warp += warps) {
    float sum = 0;
#pragma unroll 4
    for (int i = 4 * (32 * warp + lane); i < width; i += 4 * kNormThreads) {
      const float4 v = four(i);
      sum = fmaf(v.w, v.w, fmaf(v.z, v.z, fmaf(v.y, v.y, fmaf(v.x, v.x, sum))));
    }
    for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
    if (lane == 0) partial[warp] = sum;
  }
  __syncthreads();
  float sum = partial[0];
  for (int w = 1; w < kNormWarps; ++w) sum += partial[w];
  return 1.0f / sqrtf(sum / float(width) + epsilon);
}

// The same of a row of which each of the first kNormThreads threads holds its groups: v[k] is group threadIdx.x + 256
// k. Called by all threads of a block.
template <int kGroups>
__device__ inline float inverse_length(const float4 (&v)[kGroups], int width, float epsilon, float* partial) {
  float sum = 0;
#pragma unroll
  for (int k = 0; k < kGroups; ++k) {
    if (4 * kNormThreads * k >= width) break;
    if (4 * (int(threadIdx.x) + kNormThreads * k) < width)
      sum = fmaf(v[k].w, v[k].w, fmaf(v[k].z, v[k].z, fmaf(v[k].y, v[k].y, fmaf(v[k].x, v[k].x, sum))));
  }
  for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
  if (threadIdx.x % 32 == 0 && threadIdx.x < kNormThreads) partial[threadIdx.x / 32] = sum;
  __syncthreads();
  sum = partial[0];
  for (int w = 1; w < kNormThreads / 32; ++w) sum += partial[w];
  return 1.0f / sqrtf(sum / float(width) + epsilon);
}

__device__ inline float normalized(float x, float inverse, float gain) { return x * inverse * gain; }

}  // namespace foretoken
