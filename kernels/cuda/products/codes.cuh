// Codes of few bits as the operand of a tensor-core product: from a word of codes, as packed_matrix.cu writes them, to
// bf16 numbers, bf16(scale * (number - zero) - minimum) with each operation rounded to f32 (kernels/formats/format.h).
// This header must not know where the words lie.
//
// Scales that are bf16 numbers take one bf16 fma for two weights. The bits of a code in the last places of a bf16
// number are that number times 2^-133, exactly (they are subnormal, and 128 is the first normal number): so
//     fma(code 2^-133, scale 2^133, -offset scale) = scale * (code - offset)
// rounded once, to bf16. In f32 the product is exact, so rounding it first changes nothing.
//
// 2:4 weights are stored like codes of 8 bits whose scale belongs to 16 inputs: the two bf16 numbers of four inputs are
// a word, and in the place of the scale are bits that name the inputs that have one.
#pragma once
#include <cstdint>

#include "kernels/cuda/instructions/tensor_core.cuh"

namespace foretoken {

// How a code becomes a number. int4: code - 8; int8: code - 128 (codes of fewer bits are moved there); table: by a
// table of 16 numbers; sparse: two of each four inputs are bf16 numbers, the others 0.
enum class Code : std::uint8_t { int4, int8, e4m3, table, sparse };
// The parts of a scale, as they are stored. bf16_zero: the negative of the zero point and kRaisedOffset behind it; also
// for scales that are too large for bf16.
enum class ScaleForm : std::uint8_t { bf16, bf16_zero, f32, f32_all };

constexpr int bits_of(Code code) { return code == Code::int4 || code == Code::table ? 4 : 8; }
constexpr int bytes_of(ScaleForm form) { return form == ScaleForm::bf16 ? 2 : form == ScaleForm::f32_all ? 12 : 4; }
constexpr float kRaisedOffset = 136;  // of 128 + code, for int4

// ---- pairs: two bf16 numbers in a register ----

using Pair = unsigned;
constexpr Pair both(unsigned bf16_bits) { return bf16_bits | bf16_bits << 16; }
// Both numbers times 2^exponent, where neither is 0 and no result is too large.
constexpr Pair lifted(Pair p, unsigned exponent) { return p + both(exponent << 7); }

__device__ inline Pair multiply_add_pair(Pair a, Pair b, Pair c) {
  Pair d;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
  return d;
}
// Negative zero is added: it changes no number, and no sign of a zero.
__device__ inline Pair multiply_pair(Pair a, Pair b) { return multiply_add_pair(a, b, 0x80008000u); }
__device__ inline Pair rounded_pair(float low, float high) {
  Pair p;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(p) : "f"(high), "f"(low));
  return p;
}
__device__ inline float2 widened_pair(Pair p) { return {__uint_as_float(p << 16), __uint_as_float(p & 0xffff0000u)}; }

// (v & mask) | bits in one instruction, of which the compiler makes two.
__device__ inline unsigned masked(unsigned v, unsigned mask, unsigned bits) {
  unsigned d;
  asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(d) : "r"(v), "r"(mask), "r"(bits));
  return d;
}

// ---- scales ----

// Reads of scales and tables: from global memory, or from shared memory by address.
struct GlobalBytes {
  const void* from;
  __device__ unsigned word(int at) const { return static_cast<const unsigned*>(from)[at / 4]; }
  __device__ unsigned half(int at) const { return static_cast<const std::uint16_t*>(from)[at / 2]; }
};
struct SharedBytes {
  unsigned from;
  __device__ unsigned word(int at) const {
    unsigned v;
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(v) : "r"(from + unsigned(at)) : "memory");
    return v;
  }
  __device__ unsigned half(int at) const {
    std::uint16_t v;
    asm volatile("ld.shared.u16 %0, [%1];" : "=h"(v) : "r"(from + unsigned(at)) : "memory");
    return v;
  }
};

// The scale of one output and group; times(n): two weights from two numbers.
template <ScaleForm kForm> struct Scale;
template <> struct Scale<ScaleForm::bf16> {
  Pair scale = 0;
  Scale() = default;
  template <class B> __device__ explicit Scale(B bytes) : scale(both(bytes.half(0))) {}
  __device__ Pair times(float2 n) const {
    const float s = widened_pair(scale).x;
    return rounded_pair(__fmul_rn(s, n.x), __fmul_rn(s, n.y));
  }
};
template <> struct Scale<ScaleForm::bf16_zero> {
  Pair scale = 0, offset = 0;
  Scale() = default;
  template <class B> __device__ explicit Scale(B bytes) {
    const unsigned parts = bytes.word(0);
    scale = __byte_perm(parts, 0, 0x1010), offset = __byte_perm(parts, 0, 0x3232);
  }
};
template <> struct Scale<ScaleForm::f32> {
  float scale = 0;
  Scale() = default;
  template <class B> __device__ explicit Scale(B bytes) : scale(__uint_as_float(bytes.word(0))) {}
  __device__ Pair times(float2 n) const { return rounded_pair(__fmul_rn(scale, n.x), __fmul_rn(scale, n.y)); }
};
template <> struct Scale<ScaleForm::f32_all> {
  float scale = 0, zero = 0, minimum = 0;
  Scale() = default;
  template <class B> __device__ explicit Scale(B bytes)
      : scale(__uint_as_float(bytes.word(0))),
        zero(__uint_as_float(bytes.word(4))),
        minimum(__uint_as_float(bytes.word(8))) {}
  __device__ float of(float n) const { return __fsub_rn(__fmul_rn(scale, __fsub_rn(n, zero)), minimum); }
  __device__ Pair times(float2 n) const { return rounded_pair(of(n.x), of(n.y)); }
};

// ---- words ----

// The weights of a word: kPairs pairs of neighbouring inputs of one output. `table`: of Code::table, f32 [16].
template <Code kCodeOf, ScaleForm kFormOf> struct Unpack {
  static constexpr Code kCode = kCodeOf;
  static constexpr ScaleForm kForm = kFormOf;
  static constexpr int kPairs = bits_of(kCode) == 4 ? 4 : 2;

  template <class B> static __device__ void word(Pair (&to)[kPairs], unsigned w, const Scale<kForm>& s, B table) {
#pragma unroll
    for (int i = 0; i < kPairs; ++i) {
      if constexpr (kCode == Code::table) {
        const auto number = [&](int at) { return __uint_as_float(table.word(int((w >> at & 15) * 4))); };
        to[i] = s.times(float2{number(4 * i), number(4 * i + 16)});
      } else if constexpr (kForm == ScaleForm::bf16) {
        to[i] = kCode == Code::int4 ? by_places(i < 2 ? w : w >> 8, i % 2, s.scale) : weights(codes(w, i), s.scale);
      } else if constexpr (kForm == ScaleForm::bf16_zero) {
        to[i] = multiply_pair(multiply_add_pair(raised(w, i), both(0x3f80), s.offset), s.scale);
      } else {
        to[i] = s.times(widened_pair(numbers(w, i)));
      }
    }
  }

 private:
  // The codes of pair i in the last places; of e4m3, exponent and mantissa where bf16 has them: the number times
  // 2^-120.
  static __device__ Pair codes(unsigned w, int i) {
    if constexpr (kCode == Code::int4) return w >> (4 * i) & 0x000f000fu;
    if constexpr (kCode == Code::int8) return i == 0 ? w & 0x00ff00ffu : __byte_perm(w, 0, 0x4341);
    const unsigned v = i == 0 ? w << 8 : w;
    return masked(v, 0x80008000u, v >> 4 & 0x07f007f0u);
  }
  static __device__ Pair weights(Pair codes, Pair scale) {
    if constexpr (kCode == Code::e4m3) return multiply_pair(codes, lifted(scale, 120));
    const Pair offset = lifted(scale, kCode == Code::int4 ? 3 : 7) ^ 0x80008000u;
    return multiply_add_pair(codes, lifted(scale, 133), offset);
  }
  // Of int4, without a shift for the codes that lie four places higher: those are 16 times as much.
  static __device__ Pair by_places(unsigned w, int place, Pair scale) {
    const Pair offset = lifted(scale, 3) ^ 0x80008000u;
    return place == 0 ? multiply_add_pair(w & 0x000f000fu, lifted(scale, 133), offset)
                      : multiply_add_pair(w & 0x00f000f0u, lifted(scale, 129), offset);
  }
  static __device__ Pair raised(unsigned w, int i) { return masked(w >> (4 * i), 0x000f000fu, 0x43004300u); }
  // The numbers themselves: both are bf16 numbers.
  static __device__ Pair numbers(unsigned w, int i) {
    if constexpr (kCode == Code::int4) return multiply_add_pair(raised(w, i), both(0x3f80), both(0xc308));
    if constexpr (kCode == Code::int8) {
      // Seven bits above 128, less 256 or 128: the eighth bit is worth 128.
      const unsigned v = w >> (8 * i);
      return multiply_add_pair(masked(~v, 0x00800080u, 0x43004300u), both(0xbf80), masked(v, 0x007f007fu, 0x43004300u));
    }
    return multiply_pair(codes(w, i), both(0x7b80));
  }
};

// Of 16 inputs of an output four neighbouring lanes hold a word of four inputs each: the first, third, second and
// fourth four. So a lane and its neighbour have the numbers of the pairs of both. The scale is a bit for each of the 16
// inputs.
template <> struct Unpack<Code::sparse, ScaleForm::bf16> {
  static constexpr Code kCode = Code::sparse;
  static constexpr ScaleForm kForm = ScaleForm::bf16;
  static constexpr int kPairs = 2;

  // Called by all lanes of a warp.
  template <class B> static __device__ void word(Pair (&to)[kPairs], unsigned w, const Scale<kForm>& s, B) {
    const int lane = int(threadIdx.x) % 4;
    const unsigned other = __shfl_xor_sync(0xffffffffu, w, 1);
    pairs(to, lane % 2 == 0 ? w : other, lane % 2 == 0 ? other : w, s, lane);
  }
  // `even`, `odd`: the words of the even and of the odd one of two neighbours, of which this is lane `lane` of four.
  static __device__ void pairs(Pair (&to)[kPairs], unsigned even, unsigned odd, const Scale<kForm>& s, int lane) {
    to[0] = pair(even, s.scale >> (2 * lane), lane % 2 != 0),
    to[1] = pair(odd, s.scale >> (8 + 2 * lane), lane % 2 != 0);
  }

 private:
  // Half of four inputs: the last two bits say which of them have a number. One that is alone in its half is the first
  // number of the four in the first half, the second in the second.
  static __device__ Pair pair(unsigned four, unsigned bits, bool second) {
    const unsigned alone = __byte_perm(four, 0, second ? 0x3232 : 0x1010),
                   mask = (bits & 1 ? 0x0000ffffu : 0) | (bits & 2 ? 0xffff0000u : 0);
    return ((bits & 3) == 3 ? four : alone) & mask;
  }
};

}  // namespace foretoken
