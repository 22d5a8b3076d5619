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

// Bytes i and i + 2 of a word, i = 0 or 1, as bf16 numbers.
template <CacheCodes kKind> __device__ inline Pair alternate_codes(std::uint32_t word, int i) {
  if constexpr (kKind == CacheCodes::e4m3) {  // exponent and mantissa where bf16 has them: the number times 2^-120
    const unsigned v = i == 0 ? word << 8 : word;
    return multiply_pair(masked(v, 0x80008000u, v >> 4 & 0x07f007f0u), both(0x7b80));
  } else {  // 128 and seven bits, less 128, or 256 where the eighth bit is set
    const unsigned v = word >> (8 * i);
    return multiply_add_pair(masked(v, 0x00800080u, 0x43004300u), both(0xbf80), masked(v, 0x007f007fu, 0x43004300u));
  }
}
// Eight codes, as bf16 numbers in their order.
template <CacheCodes kKind> __device__ inline uint4 eight_of_codes(uint2 codes) {
  const auto in_order = [](std::uint32_t word) { return __byte_perm(word, 0, 0x3120); };
  const std::uint32_t x = in_order(codes.x), y = in_order(codes.y);
  return {alternate_codes<kKind>(x, 0), alternate_codes<kKind>(x, 1), alternate_codes<kKind>(y, 0),
          alternate_codes<kKind>(y, 1)};
}

// Scores of codes are summed in an order in which codes need not be moved. Of each four numbers of a head, those of the
// lane l % 4 of a product of sixteen, the first and third are its first factors, the second and fourth its last: in
// shared memory the first and third of each four are in the first eight, the others in the last eight. Products with
// tensor cores of architecture 90 sum sixteen numbers at once, in any order.
struct Sixteen {
  uint4 low, high;
};
template <CacheCodes kKind> __device__ inline Sixteen sixteen_of_codes(uint4 codes) {
  return {{alternate_codes<kKind>(codes.x, 0), alternate_codes<kKind>(codes.y, 0), alternate_codes<kKind>(codes.z, 0),
           alternate_codes<kKind>(codes.w, 0)},
          {alternate_codes<kKind>(codes.x, 1), alternate_codes<kKind>(codes.y, 1), alternate_codes<kKind>(codes.z, 1),
           alternate_codes<kKind>(codes.w, 1)}};
}
// Pairs (n, n + 1) and (n + 2, n + 3) of bf16 numbers become (n, n + 2), for i = 0, or (n + 1, n + 3).
__device__ inline Pair alternate_numbers(Pair first, Pair second, int i) {
  return __byte_perm(first, second, i == 0 ? 0x5410 : 0x7632);
}
__device__ inline Sixteen alternated(const Sixteen& s) {
  const auto of = [&](int i) {
    return uint4{alternate_numbers(s.low.x, s.low.y, i), alternate_numbers(s.low.z, s.low.w, i),
                 alternate_numbers(s.high.x, s.high.y, i), alternate_numbers(s.high.z, s.high.w, i)};
  };
  return {of(0), of(1)};
}

// A softmax weight times the scale of its value. A weight of 0 belongs to a key that is not attended to, whatever its
// scale.
__device__ inline float scaled_weight(float weight, float scale) {
  return weight == 0 ? 0.0f : __fmul_rn(weight, scale);
}

}  // namespace foretoken
