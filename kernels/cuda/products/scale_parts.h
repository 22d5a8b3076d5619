// How codes and scales of packed matrices are stored. No CUDA headers: a test on any machine compares what kernels make
// of the parts (codes.cuh) with the definition of a weight, for all scales of fp16.
//
// Two bf16 numbers. A scale that is no bf16 number becomes two, high + low, and a weight fma(n, high, n * low) in bf16:
// two instructions for two weights. Of fp16 scales, low has three bits of a mantissa, so n * low is exact where n has
// five, and the sum is rounded once. Of f32 scales there is a rounding before the last one, and the definition has one
// too. But only eight mantissas of n exist, in FP8 as in integers of -16 to 16, and for each of the 2^23 mantissas of a
// scale one of five neighbours of the nearest low gives all eight.
#pragma once
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <optional>

#include "kernels/tensor.h"

namespace foretoken {

// How a code becomes a number. int4: code - 8; int8: code - 128 (codes of fewer bits are moved there); e2m1: FP4;
// table: by a table of 16 numbers; sparse: two of each four inputs are bf16 numbers, the others 0.
enum class Code : std::uint8_t { int4, int8, e4m3, e2m1, table, sparse };
// The parts of a scale, as they are stored.
//   bf16       the scale
//   bf16_zero  the scale, the negative of the zero point
//   pair       high, low
//   pair_zero  high, low with the zero point in its last five bits, which are 0
//   f32        the scale
//   affine     the scale with the zero point in its last five bits, which are 0, so that products are exact; the
//              negative of the minimum
//   f32_all    the scale, the zero point, the minimum
enum class ScaleForm : std::uint8_t { bf16, bf16_zero, pair, pair_zero, f32, affine, f32_all };

constexpr int bits_of(Code code) { return code == Code::int4 || code == Code::e2m1 || code == Code::table ? 4 : 8; }
constexpr int bytes_of(ScaleForm form) {
  return form == ScaleForm::bf16 ? 2 : form == ScaleForm::affine ? 8 : form == ScaleForm::f32_all ? 12 : 4;
}

// Codes become bf16 numbers that are the number times 2^-lift, and scales are stored times 2^lift. Of int4 and int8
// with a bf16 scale alone, the kernel multiplies the scale.
constexpr int lift_of(Code code, ScaleForm form) {
  if (code == Code::e4m3) return 120;
  if (code == Code::e2m1) return 126;
  return code == Code::int4 && form != ScaleForm::bf16 && form != ScaleForm::f32_all ? 6 : 0;
}
// Stored in place of a scale of 0, which cannot be multiplied by adding to its exponent; all its codes mean 0.
constexpr float kNoScale = 0x1p-101f;

// Bits of the number of a code where a bf16 number has them.
constexpr unsigned spread(Code kind, unsigned code) {
  if (kind == Code::e4m3) return (code & 0x80) << 8 | (code & 0x7f) << 4;
  if (kind == Code::e2m1) return (code & 8) << 12 | (code & 7) << 6;
  return code;
}
constexpr unsigned turned(unsigned v, int left) { return v << left | v >> (32 - left) % 32; }
// Where the spread codes of pair i are in a word. Those of FP8 and FP4 have gaps, in which the others are.
constexpr unsigned placed(Code kind, unsigned pair, int i) {
  if (kind == Code::e4m3) return i == 0 ? pair : (pair & 0x80f080f0u) >> 4 | (pair & 0x07000700u) << 4;
  if (kind == Code::e2m1)
    return i == 0   ? pair
           : i == 1 ? pair >> 4
           : i == 2 ? turned(pair, 6)
                    : turned(pair & 0x81808180u, 2) | (pair & 0x00400040u) >> 6;
  return pair << (bits_of(kind) * i);
}

struct ScalePair {
  float high = 0, low = 0;
};

// Rounds to 8 bits, to nearest even. Neither the number nor the result is subnormal or too large.
inline double rounded_to_bf16(double x) {
  const std::uint64_t bits = std::bit_cast<std::uint64_t>(x), kept = std::uint64_t(1) << 45;
  return std::bit_cast<double>((bits + (kept / 2 - 1) + (bits / kept & 1)) & ~(kept - 1));
}
// fma(n, high, n * low), each rounded to bf16, is the weight of every n with four bits.
inline bool gives_weights(float scale, ScalePair pair) {
  for (int n = 8; n < 16; ++n) {
    const double low = rounded_to_bf16(double(n) * pair.low);
    if (rounded_to_bf16(double(n) * pair.high + low) != double(float(bf16(scale * float(n))))) return false;
  }
  return true;
}
// Of a scale of magnitude 2^-80 or more, 0 or NaN. Both parts have the scale's sign, so that a weight of 0 has it too.
// `short_low`: with five zeros at the end of `low`.
inline std::optional<ScalePair> pair_of(float scale, bool short_low = false) {
  if (std::isnan(scale)) return ScalePair{scale, scale};
  const float high = std::bit_cast<float>(std::bit_cast<std::uint32_t>(scale) & 0xffff0000u);
  const float rest = std::copysign(scale - high, scale);
  const bf16 nearest(rest);
  const bool is_short = (nearest.bits & 31) == 0;
  if (is_short && float(nearest) == rest) return ScalePair{high, rest};
  if (short_low && !is_short) return {};
  for (const int away : {0, 1, -1, 2, -2}) {
    bf16 low;
    low.bits = std::uint16_t(nearest.bits + away);
    if (const ScalePair pair{high, float(low)}; gives_weights(scale, pair)) return pair;
    if (short_low) break;
  }
  return {};
}

using ScaleParts = std::array<std::uint32_t, 3>;  // as many as the form has; of bf16 the lower half of the first

// nullopt: the scale has no such parts. The caller checks magnitudes, and that parts of bf16 forms are bf16 numbers.
inline std::optional<ScaleParts> scale_parts(Code code, ScaleForm form, float scale, float zero, float minimum) {
  const int lift = lift_of(code, form);
  const auto lifted = [&](float v) { return std::ldexp(v, lift); };
  const auto half = [](float v) { return std::uint32_t(bf16(v).bits); };
  const auto word = [](float v) { return std::bit_cast<std::uint32_t>(v); };
  const bool no_scale = scale == 0 && lift == 0 && code != Code::sparse;
  switch (form) {
    case ScaleForm::bf16:
      return ScaleParts{half(no_scale ? kNoScale : lifted(scale))};
    case ScaleForm::bf16_zero:
      return ScaleParts{half(lifted(scale)) | half(std::ldexp(-(8 + zero), -lift)) << 16};
    case ScaleForm::pair:
    case ScaleForm::pair_zero: {
      const bool zeros = form == ScaleForm::pair_zero;
      const auto pair = pair_of(scale, zeros);
      if (!pair || (zeros && !(8 + zero >= 0 && 8 + zero <= 16))) return {};
      return ScaleParts{half(lifted(pair->high)) | (half(lifted(pair->low)) | (zeros ? std::uint32_t(8 + zero) : 0))
                                                       << 16};
    }
    case ScaleForm::f32:
      return ScaleParts{word(lifted(scale))};
    case ScaleForm::affine:
      return ScaleParts{word(lifted(scale)) | std::uint32_t(8 + zero), word(-minimum)};
    case ScaleForm::f32_all:
      return ScaleParts{word(scale), word(zero), word(minimum)};
  }
  return {};
}

// Of matrices that are read together: the form that has the scales of both, f32_all where no other has.
constexpr ScaleForm common_form(ScaleForm a, ScaleForm b) {
  using enum ScaleForm;
  const auto either = [&](ScaleForm form) { return a == form || b == form; };
  if (a == b) return a;
  if (either(bf16) && either(f32)) return f32;
  if (either(f32) || either(affine) || either(f32_all)) return f32_all;
  const bool pairs = either(pair) || either(pair_zero), zeros = either(bf16_zero) || either(pair_zero);
  return pairs ? zeros ? pair_zero : pair : bf16_zero;
}
// The parts of a scale in a common form with others. `fits`: it has some.
struct ReformedParts {
  std::uint32_t parts = 0;
  bool fits = true;
};
constexpr ReformedParts reformed(Code code, ScaleForm from, ScaleForm to, std::uint32_t parts) {
  using enum ScaleForm;
  const float offset = std::bit_cast<float>(parts & 0xffff0000u) * -64;  // of bf16_zero: 8 + zero
  const std::uint32_t zero = from == bf16_zero && offset >= 0 && offset <= 16 ? std::uint32_t(offset) : 8,
                      low = from == pair ? parts >> 16 : parts & 0x8000u,
                      high = (parts & 0xffffu) + (std::uint32_t(lift_of(code, to) - lift_of(code, from)) << 7);
  if (to == f32) return {(parts << 16) + (std::uint32_t(lift_of(code, to) - lift_of(code, from)) << 23), from == bf16};
  if (to == bf16_zero) return {high | 0xbe00u << 16, from == bf16};
  if (to == pair) return {high | low << 16, from == bf16};
  return {high | (low | zero) << 16,
          to == pair_zero && (low & 31) == 0 && (from != bf16_zero || offset == float(zero)) && from != f32_all};
}

}  // namespace foretoken
