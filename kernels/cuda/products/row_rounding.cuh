// Numbers of a row divided by its scale and rounded to 8 bits, with the bits of an exact division. This header must not
// know where rows lie.
#pragma once
#include <cfloat>
#include <cstdint>

#include <cuda_fp8.h>

#include "kernels/cuda/device.cuh"
#include "kernels/formats/activations/activation_format.h"

namespace foretoken {

#ifdef __CUDACC__

// The greater magnitude; NaN where either is.
__device__ inline float greater_magnitude(float a, float b) {
  float d;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(d) : "f"(fabsf(a)), "f"(fabsf(b)));
  return d;
}

// The nearest code of a quotient, ties to even; beyond the greatest, the greatest.
template <Coding kCoding> __device__ std::uint8_t rounded(float x) {
  if constexpr (kCoding == Coding::integers)
    return std::uint8_t(std::int8_t(rintf(fminf(fmaxf(x, -128.0f), 127.0f))));
  else
    return __nv_cvt_float_to_fp8(x, __NV_SATFINITE, __NV_E4M3);
}

// Codes of four numbers divided by a scale. An exact division takes some 40 instructions, so quotients are first made
// by the reciprocal. These differ from the exact ones by less than 3.1 * 2^-24 of them, and rounding is monotonic:
// where no rounding boundary is that near, the codes are the same. Else, seldom, the four are divided.
template <Coding kCoding> class RowDivider {
 public:
  // zero: all codes are 0. Else the scale is at least FLT_MIN; from 2^126 on its reciprocal is not exact enough.
  __device__ RowDivider(float scale, bool zero)
      : scale_(scale), inverse_(1.0f / scale), zero_(zero), divides_(scale >= 0x1p126f) {}

  __device__ unsigned four(const float4& v) const {
    if (zero_) return 0;
    bool doubt = divides_;
    const unsigned quick = near({v.x * inverse_, v.y * inverse_, v.z * inverse_, v.w * inverse_}, doubt);
    return doubt ? divided(v) : quick;
  }
  __device__ std::uint8_t one(float v) const { return zero_ ? 0 : rounded<kCoding>(__fdiv_rn(v, scale_)); }

 private:
  static __device__ unsigned together(unsigned a, unsigned b, unsigned c, unsigned d) {
    return __byte_perm(__byte_perm(a, b, 0x0040), __byte_perm(c, d, 0x0040), 0x5410);
  }
  __device__ unsigned divided(const float4& v) const { return together(one(v.x), one(v.y), one(v.z), one(v.w)); }

  // doubt: set where a quotient is near a boundary.
  static __device__ unsigned near(const float4& q, bool& doubt) {
    if constexpr (kCoding == Coding::integers) {
      // The last byte of a sum with 1.5 * 2^23 is the nearest integer, ties to even.
      const auto code = [&](float x) {
        constexpr float kIntegers = 12582912, kTie = 0.5f - 0x1p-15f;  // |x| <= 128, of which 3.1 * 2^-24 is less
        const float t = fminf(fmaxf(x, -128.0f), 127.0f), sum = __fadd_rn(t, kIntegers);
        doubt |= fabsf(__fsub_rn(t, __fsub_rn(sum, kIntegers))) > kTie;
        return __float_as_uint(sum);
      };
      const unsigned a = code(q.x), b = code(q.y), c = code(q.z), d = code(q.w);
      return together(a, b, c, d);
    } else {
      const auto codes = [&q](float by) {
        const auto two = [by](float a, float b) {
          return unsigned(__nv_cvt_float2_to_fp8x2(float2{a * by, b * by}, __NV_SATFINITE, __NV_E4M3));
        };
        return two(q.x, q.y) | two(q.z, q.w) << 16;
      };
      const unsigned low = codes(1 - 0x1p-21f), high = codes(1 + 0x1p-21f);
      doubt |= low != high;
      return low;
    }
  }

  float scale_, inverse_;
  bool zero_, divides_;
};

#endif

}  // namespace foretoken
