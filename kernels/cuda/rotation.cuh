// How one pair of a head turns by its position: one text, so that whoever turns it gives the same bits.
// This room must not know rows, pages or attention.
#pragma once
#include "kernels/cuda/device.cuh"

namespace foretoken {

struct Turn {
  float cosine, sine;
};

__device__ inline Turn turn_of(std::int32_t position, float frequency) {
  Turn t;
  sincosf(float(position) * frequency, &t.sine, &t.cosine);
  return t;
}

// Numbers i and i + head_size / 2 of a head.
__device__ inline float2 turned(float first, float second, Turn by) {
  return {__fmaf_rn(first, by.cosine, -__fmul_rn(second, by.sine)), __fmaf_rn(second, by.cosine, __fmul_rn(first, by.sine))};
}

}  // namespace foretoken
