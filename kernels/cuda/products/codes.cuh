// Codes of few bits as the operand of a tensor-core product: from a word of codes, as packed_matrix.cu writes them, to
// bf16 numbers, bf16(scale * (number - zero) - minimum) with each operation rounded to f32 (kernels/formats/format.h).
// This header must not know where the words lie.
//
// Integers: the bits of a code in the last places of a bf16 number are that number times 2^-133, exactly (they are
// subnormal, and 128 is the first normal number). So with a scale that is a bf16 number, two weights take one fma,
//     fma(code 2^-133, scale 2^133, -offset scale) = scale * (code - offset)
// rounded once, to bf16. In f32 the product is exact, so rounding it first changes nothing. Other scales first make the
// number itself, fma(code 2^-133, 2^127, -offset 2^-6), and then one or two products (scale_parts.h).
//
// FP8 and FP4: exponent and mantissa where bf16 has them are the number times 2^-120 or 2^-126.
//
// Instructions for two weights beside those of a scale: int4 2.25, with zero points 3.25, with pairs 4.25; FP4 3.25;
// FP8 3.5, with pairs 4.5; int8 2, with f32 scales 7; with minima int4 7.25.
//
// 2:4 weights are stored like codes of 8 bits whose scale belongs to 16 inputs: the two bf16 numbers of four inputs are
// a word, and in the place of the scale are bits that name the inputs that have one.
#pragma once
#include <cstdint>

#include "kernels/cuda/instructions/tensor_core.cuh"
#include "kernels/cuda/products/scale_parts.h"

namespace foretoken {

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
// Negative zero: adding it changes no number, and no sign of a zero. Eight codes of int4: -8 2^-6.
constexpr Pair kNothing = both(0x8000), kEight = both(0xbe00);
__device__ inline Pair multiply_pair(Pair a, Pair b) { return multiply_add_pair(a, b, kNothing); }
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

// The scale of one output and group, times 2^lift_of(); times(n): two weights from two numbers times 2^-lift. Of one or
// two bf16 numbers, with the negative of a zero point of codes.
template <ScaleForm kForm> struct Scale {
  static constexpr bool kIsPair = kForm == ScaleForm::pair || kForm == ScaleForm::pair_zero;
  Pair high = 0, low = 0, offset = kEight;
  Scale() = default;
  template <class B> __device__ explicit Scale(B bytes) {
    if constexpr (kForm == ScaleForm::bf16) {
      high = both(bytes.half(0));
    } else {
      const unsigned parts = bytes.word(0);
      high = __byte_perm(parts, 0, 0x1010), low = __byte_perm(parts, 0, 0x3232);
    }
    if (kForm == ScaleForm::bf16_zero) offset = low;
    if (kForm == ScaleForm::pair_zero) {
      offset = multiply_pair(low & both(0x1f), both(0xff00));  // -2^127
      low &= both(0xffe0);
    }
  }
  __device__ Pair times(Pair n) const { return multiply_add_pair(n, high, kIsPair ? multiply_pair(n, low) : kNothing); }
};
template <> struct Scale<ScaleForm::f32> {
  float scale = 0;
  Scale() = default;
  template <class B> __device__ explicit Scale(B bytes) : scale(__uint_as_float(bytes.word(0))) {}
  __device__ Pair times(float2 n) const { return rounded_pair(__fmul_rn(scale, n.x), __fmul_rn(scale, n.y)); }
};
template <> struct Scale<ScaleForm::affine> {
  float scale = 0, minimum = 0;
  Pair offset = 0;
  Scale() = default;
  template <class B> __device__ explicit Scale(B bytes) : minimum(__uint_as_float(bytes.word(4))) {
    const unsigned parts = bytes.word(0);
    scale = __uint_as_float(parts & ~31u);
    offset = multiply_pair(both(parts & 31), both(0xff00));  // -2^127
  }
  __device__ float of(float n) const { return __fmaf_rn(scale, n, minimum); }
  __device__ Pair times(Pair p) const {
    const float2 n = widened_pair(p);
    return rounded_pair(of(n.x), of(n.y));
  }
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
  __device__ Pair times(Pair n) const { return times(widened_pair(n)); }
};

// ---- words ----

// The numbers of a table by code, of which only the last four bits count. A lane has one of them, and all lanes of a
// warp look up at once: as fast as from shared memory, without an address to compute. Nothing for other codes.
template <Code kCode> struct LaneNumbers {
  template <class B> __device__ explicit LaneNumbers(B) {}
};
template <> struct LaneNumbers<Code::table> {
  float mine;
  template <class B> __device__ explicit LaneNumbers(B table)
      : mine(__uint_as_float(table.word(int(threadIdx.x) % 16 * 4))) {}
  __device__ float operator()(unsigned code) const { return __shfl_sync(0xffffffffu, mine, int(code), 16); }
};
// The same for lanes that are alone.
struct GlobalNumbers {
  const float* table;
  __device__ float operator()(unsigned code) const { return table[code & 15]; }
};

// The weights of a word: kPairs pairs of neighbouring inputs of one output. kGroup: inputs that share a scale in all
// matrices of this kind; 0: they differ.
template <Code kCodeOf, ScaleForm kFormOf> struct Unpack {
  static constexpr Code kCode = kCodeOf;
  static constexpr ScaleForm kForm = kFormOf;
  static constexpr int kPairs = bits_of(kCode) == 4 ? 4 : 2, kGroup = kCode == Code::e2m1 ? 32 : 0;

  template <class Numbers>
  static __device__ void word(Pair (&to)[kPairs], unsigned w, const Scale<kForm>& s, const Numbers& table) {
#pragma unroll
    for (int i = 0; i < kPairs; ++i) {
      if constexpr (kCode == Code::table) {
        to[i] = s.times(float2{table(w >> (4 * i)), table(w >> (4 * i + 16))});
      } else if constexpr (kCode == Code::int8) {
        if constexpr (kForm == ScaleForm::bf16)
          to[i] = from_bytes(i == 0 ? w & 0x00ff00ffu : __byte_perm(w, 0, 0x4341), s.high);
        else
          to[i] = s.times(float2{of_byte(w, i), of_byte(w, i + 2)});
      } else if constexpr (kCode == Code::int4 && kForm == ScaleForm::bf16) {
        to[i] = from_places(w, i, s.high);
      } else {
        to[i] = s.times(numbers(w, i, s));
      }
    }
  }

 private:
  // The codes of pair i of int4, and how many places higher than the last they are: those of every other pair need no
  // shift.
  static __device__ Pair places(unsigned w, int i) {
    return (i < 2 ? w : w >> 8) & (i % 2 == 0 ? 0x000f000fu : 0x00f000f0u);
  }
  static constexpr unsigned higher(int i) { return i % 2 == 0 ? 0 : 4; }
  // Of FP8 and FP4: the numbers times 2^-lift.
  static __device__ Pair codes(unsigned w, int i) {
    if constexpr (kCode == Code::e4m3)
      return i == 0 ? w & 0x87f087f0u : masked(w << 4, 0x80f080f0u, w >> 4 & 0x07000700u);
    if (i == 3) return masked(turned(w, 30), 0x81808180u, w << 6 & 0x00400040u);
    return (i == 0 ? w : i == 1 ? w << 4 : turned(w, 26)) & 0x81c081c0u;
  }
  static __device__ Pair from_places(unsigned w, int i, Pair scale) {
    return multiply_add_pair(places(w, i), lifted(scale, 133 - higher(i)), lifted(scale, 3) ^ 0x80008000u);
  }
  static __device__ Pair from_bytes(Pair codes, Pair scale) {
    return multiply_add_pair(codes, lifted(scale, 133), lifted(scale, 7) ^ 0x80008000u);
  }
  // The number of a code of int8 in f32: 2^15 + code, less 2^15 + 128.
  static __device__ float of_byte(unsigned w, int i) {
    return __fsub_rn(__uint_as_float(__byte_perm(w, 0x4700, unsigned(0x5404 | i << 4))), 32896);
  }
  // The numbers times 2^-lift: both are bf16 numbers.
  static __device__ Pair numbers(unsigned w, int i, const Scale<kForm>& s) {
    if constexpr (kCode == Code::int4) {
      constexpr bool kAll = kForm == ScaleForm::f32_all;
      Pair offset = kEight;
      if constexpr (!kAll) offset = s.offset;
      const Pair n = multiply_add_pair(places(w, i), lifted(both(0x7d00), 4 - higher(i)), offset);  // times 2^127
      return kAll ? multiply_pair(n, both(0x4280)) : n;
    }
    return codes(w, i);
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
  template <class Numbers>
  static __device__ void word(Pair (&to)[kPairs], unsigned w, const Scale<kForm>& s, const Numbers&) {
    const int lane = int(threadIdx.x) % 4;
    const unsigned other = __shfl_xor_sync(0xffffffffu, w, 1);
    pairs(to, lane % 2 == 0 ? w : other, lane % 2 == 0 ? other : w, s, lane);
  }
  // `even`, `odd`: the words of the even and of the odd one of two neighbours, of which this is lane `lane` of four.
  static __device__ void pairs(Pair (&to)[kPairs], unsigned even, unsigned odd, const Scale<kForm>& s, int lane) {
    to[0] = pair(even, s.high >> (2 * lane), lane % 2 != 0), to[1] = pair(odd, s.high >> (8 + 2 * lane), lane % 2 != 0);
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
