// Codes of a quantized cache on the device: kernels/cache_codes.h says what they are. This header must not know pages
// or how attention divides its work.
#pragma once
#include <cfloat>

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/products/codes.cuh"
#include "kernels/cuda/products/row_rounding.cuh"

namespace foretoken {

// What the numbers of a cache are.
enum class CacheCodes : std::uint8_t { none, int8, e4m3 };
inline CacheCodes codes_of(DType cache) {
  return cache == DType::i8 ? CacheCodes::int8 : cache == DType::e4m3 ? CacheCodes::e4m3 : CacheCodes::none;
}

// ---- writing ----

// Of the greatest magnitude of a head, whose numbers are bf16; not below 0.
template <Coding kCoding> __device__ inline float scale_of_head(float magnitude) {
  if (!(magnitude <= FLT_MAX)) return __int_as_float(0x7fc00000);
  const float scale = __fdiv_rn(magnitude, kCoding == Coding::integers ? 127.0f : 448.0f);
  return scale < FLT_MIN ? 0.0f : scale;
}
template <Coding kCoding> __device__ inline RowDivider<kCoding> divider_of_head(float scale) {
  return RowDivider<kCoding>(scale, !(scale > 0));
}

// ---- reading ----

__device__ inline float number_of_code(CacheCodes kind, std::uint8_t code) {
  if (kind == CacheCodes::int8) return float(std::int8_t(code));
  // Exponent and mantissa where a float has them, but for the bias of the exponent.
  const float magnitude = __uint_as_float((code & 0x7fu) << 20) * 0x1p120f;
  return code & 0x80u ? -magnitude : magnitude;
}

// Bytes 2 i and 2 i + 1 of a word, as bf16 numbers.
__device__ inline Pair pair_of_codes(CacheCodes kind, std::uint32_t word, int i) {
  if (kind == CacheCodes::e4m3) {  // exponent and mantissa where bf16 has them: the number times 2^-120
    const unsigned v = __byte_perm(word, 0, i == 0 ? 0x1404 : 0x3424);
    return multiply_pair(masked(v, 0x80008000u, v >> 4 & 0x07f007f0u), both(0x7b80));
  }
  // 128 and seven bits, less 128, or 256 where the eighth bit is set.
  const unsigned v = __byte_perm(word, 0, i == 0 ? 0x4140 : 0x4342);
  return multiply_add_pair(masked(v, 0x00800080u, 0x43004300u), both(0xbf80), masked(v, 0x007f007fu, 0x43004300u));
}
// Eight of them.
__device__ inline uint4 eight_of_codes(CacheCodes kind, uint2 codes) {
  return {pair_of_codes(kind, codes.x, 0), pair_of_codes(kind, codes.x, 1), pair_of_codes(kind, codes.y, 0),
          pair_of_codes(kind, codes.y, 1)};
}

// A softmax weight times the scale of its value. A weight of 0 belongs to a key that is not attended to, whatever its
// scale.
__device__ inline float scaled_weight(float weight, float scale) {
  return weight == 0 ? 0.0f : __fmul_rn(weight, scale);
}

}  // namespace foretoken
