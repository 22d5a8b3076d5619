// Codes of 4 bits with AVX-512: sixteen outputs at a time, so that their scales are a vector. A number is a lookup
// among sixteen, which takes the lowest four bits of a lane: of a word of eight codes, shifted. About .6 instructions a
// weight.
#pragma once
#include <immintrin.h>

#include "kernels/cpu/unpack.h"

namespace foretoken {
namespace {

// 16 bytes of each of 16 outputs: word d of all of them.
inline void words_of_outputs(const std::byte* codes, __m512i (&words)[4]) {
  const __m512i first = _mm512_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28, 1, 5, 9, 13, 17, 21, 25, 29),
                second = _mm512_add_epi32(first, _mm512_set1_epi32(2));
  __m512i four[4];  // outputs
  for (int i = 0; i < 4; ++i) four[i] = _mm512_loadu_si512(codes + i * 64);
  const __m512i a = _mm512_permutex2var_epi32(four[0], first, four[1]),
                b = _mm512_permutex2var_epi32(four[2], first, four[3]),
                d = _mm512_permutex2var_epi32(four[0], second, four[1]),
                e = _mm512_permutex2var_epi32(four[2], second, four[3]);
  words[0] = _mm512_shuffle_i64x2(a, b, 0x44), words[1] = _mm512_shuffle_i64x2(a, b, 0xee);
  words[2] = _mm512_shuffle_i64x2(d, e, 0x44), words[3] = _mm512_shuffle_i64x2(d, e, 0xee);
}

// Blocks of kBlockInputs.
template <bool kZeros, bool kMinima> inline void unpack_blocks(const Codes& c, std::int64_t panel, std::int64_t begin,
                                                               std::int64_t end, std::uint16_t* pairs) {
  const __m512 numbers = _mm512_loadu_ps(c.numbers);
  for (std::int64_t k = begin; k < end; k += kBlockInputs) {
    const std::int64_t at = (panel * c.groups + k / c.group) * kPanel;
    const std::byte* codes = c.codes + (panel * c.inputs + k) * kPanel / 2;
    for (int line = 0; line < kPanel * 16; line += 64) __builtin_prefetch(codes + kCodesAhead + line, 0, 3);
    for (int o = 0; o < kPanel; o += kWidth) {
      const __m512 scale = _mm512_loadu_ps(c.scales + at + o),
                   zero = kZeros ? _mm512_loadu_ps(c.zeros + at + o) : _mm512_setzero_ps(),
                   minimum = kMinima ? _mm512_loadu_ps(c.minima + at + o) : _mm512_setzero_ps();
      const auto weights = [&](__m512i code) {
        __m512 n = _mm512_permutexvar_ps(code, numbers);
        if (kZeros) n = _mm512_sub_ps(n, zero);
        n = _mm512_mul_ps(scale, n);
        return kMinima ? _mm512_sub_ps(n, minimum) : n;
      };
      __m512i words[4];
      words_of_outputs(codes + o * 16, words);
      std::uint16_t* to = pairs + (k - begin) * kPanel + o * 2;
      for (int half = 0; half < 2; ++half)  // inputs 0 ... 15 are in the lower four bits of bytes, the others above
        for (int d = 0; d < 4; ++d)
          for (int i = 0; i < 4; i += 2)
            save(to + (half * 16 + d * 4 + i) * kPanel,
                 pairs_of(weights(_mm512_srli_epi32(words[d], unsigned(8 * i + 4 * half))),
                          weights(_mm512_srli_epi32(words[d], unsigned(8 * i + 8 + 4 * half)))));
    }
  }
}

void unpack4_avx512(const Codes& c, std::int64_t panel, std::int64_t begin, std::int64_t end, std::uint16_t* pairs) {
  if (c.minima)
    c.zeros ? unpack_blocks<true, true>(c, panel, begin, end, pairs)
            : unpack_blocks<false, true>(c, panel, begin, end, pairs);
  else
    c.zeros ? unpack_blocks<true, false>(c, panel, begin, end, pairs)
            : unpack_blocks<false, false>(c, panel, begin, end, pairs);
}

}  // namespace
}  // namespace foretoken
