// The rotary embedding (Su et al. 2021, arXiv 2104.09864) of one pair of a head, defined once so that all kernels give
// the same bits. This header must not know rows, pages or attention.
#pragma once
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/instructions/matrix_tiles.cuh"

namespace foretoken {

struct Rotation {
  float cosine, sine;
};

__device__ inline Rotation rotation_of(std::int32_t position, float frequency) {
  Rotation t;
  sincosf(float(position) * frequency, &t.sine, &t.cosine);
  return t;
}

// Rotates the pair of numbers i and i + head_size / 2 of a head.
__device__ inline float2 rotated(float first, float second, Rotation by) {
  return {__fmaf_rn(first, by.cosine, -__fmul_rn(second, by.sine)),
          __fmaf_rn(second, by.cosine, __fmul_rn(first, by.sine))};
}

// Two pairs at once: x and y hold the first and second numbers, and are rotated in place.
__device__ inline void rotate_two(std::uint32_t& x, std::uint32_t& y, const Rotation* by) {
  const float2 left = rotated(__uint_as_float(x << 16), __uint_as_float(y << 16), by[0]);
  const float2 right = rotated(__uint_as_float(x & 0xffff0000u), __uint_as_float(y & 0xffff0000u), by[1]);
  x = pack_bf16(left.x, right.x), y = pack_bf16(left.y, right.y);
}

// The same of eight.
__device__ inline void rotate_eight(uint4& low, uint4& high, const Rotation* by) {
  std::uint32_t *const x = &low.x, *const y = &high.x;
#pragma unroll
  for (int j = 0; j < 4; ++j) rotate_two(x[j], y[j], by + 2 * j);
}

}  // namespace foretoken
