// One order of sums for the square of a row's length, whoever asks: the norm alone and the norm inside a product must agree bit
// for bit. 256 threads; group g of four numbers goes to thread g mod 256, then trees. This room must not know products.
#pragma once
#include "kernels/cuda/device.cuh"

namespace foretoken {

constexpr int kNormThreads = 256;

// sum + x[i]^2 + ... + x[i + 3]^2, up to width.
template <bool kWide> __device__ inline float add_squares(float sum, const float* x, int i, int width) {
  if constexpr (kWide) {
    const float4 v = __ldcg(reinterpret_cast<const float4*>(x + i));
    return fmaf(v.w, v.w, fmaf(v.z, v.z, fmaf(v.y, v.y, fmaf(v.x, v.x, sum))));
  } else {
    for (int j = i; j < min(i + 4, width); ++j) sum = fmaf(x[j], x[j], sum);
    return sum;
  }
}

// inverse[r] (shared memory) = 1 / sqrt(mean x_r^2 + epsilon) for the `rows` rows of x, `stride` apart. Called by all threads of a
// block, whole warps; `partial` is shared memory for 8 * rows floats. `kWide`: width and stride are multiples of 4. Ends with a barrier.
template <bool kWide>
__device__ inline void inverse_lengths(const float* x, std::int64_t stride, int width, int rows, float epsilon, float* partial, float* inverse) {
  constexpr int kAtOnce = 4, kNormWarps = kNormThreads / 32;  // rows whose loads are under way together
  const int lane = int(threadIdx.x) % 32, warps = int(blockDim.x) / 32;
  for (int warp = int(threadIdx.x) / 32; warp < kNormWarps; warp += warps) {
    for (int r = 0; r < rows; r += kAtOnce) {
      float sum[kAtOnce] = {};
#pragma unroll 4
      for (int i = 4 * (32 * warp + lane); i < width; i += 4 * kNormThreads) {
#pragma unroll
        for (int j = 0; j < kAtOnce; ++j)
          if (r + j < rows) sum[j] = add_squares<kWide>(sum[j], x + (r + j) * stride, i, width);
      }
#pragma unroll
      for (int j = 0; j < kAtOnce; ++j) {
        if (r + j >= rows) break;
        for (int step = 16; step > 0; step /= 2) sum[j] += __shfl_xor_sync(0xffffffffu, sum[j], step);
        if (lane == 0) partial[kNormWarps * (r + j) + warp] = sum[j];
      }
    }
  }
  __syncthreads();
  for (int r = int(threadIdx.x); r < rows; r += int(blockDim.x)) {
    float sum = partial[kNormWarps * r];
    for (int w = 1; w < kNormWarps; ++w) sum += partial[kNormWarps * r + w];
    inverse[r] = 1.0f / sqrtf(sum / float(width) + epsilon);
  }
  __syncthreads();
}

__device__ inline float normalized(float x, float inverse, float gain) { return x * inverse * gain; }

}  // namespace foretoken
