// Quads of codes of 4 bits with AVX2: see product_rounded.h. About .1 instructions a code.
#pragma once
#include <immintrin.h>

#include "kernels/cpu/product_rounded.h"

namespace foretoken {
namespace {

inline void save_256(std::byte* p, __m256i v) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), v); }

// A block of 32 inputs: 16 bytes of 8 outputs are four words each, which are transposed and split into nibbles.
void quads4_avx2(const Codes& c, std::int64_t panel, std::int64_t begin, std::int64_t n, std::byte* quads) {
  const std::byte* codes = c.codes + (panel * c.inputs + begin) * kPanel / 2;
  const __m256i nibble = _mm256_set1_epi8(15);
  for (std::int64_t k = 0; k < n; k += kBlockInputs, codes += kBlockInputs * kPanel / 2, quads += kBlockInputs * kPanel)
    for (int o = 0; o < kPanel; o += 8) {
      __builtin_prefetch(codes + o * 16 + kCodesAhead, 0, 3);
      __builtin_prefetch(codes + o * 16 + kCodesAhead + 64, 0, 3);
      __m256i row[4];  // outputs o + i and o + 4 + i
      for (int i = 0; i < 4; ++i) {
        const auto* from = reinterpret_cast<const __m128i*>(codes + (o + i) * 16);
        row[i] = _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128(from)), _mm_loadu_si128(from + 4), 1);
      }
      const __m256i a = _mm256_unpacklo_epi32(row[0], row[1]), b = _mm256_unpackhi_epi32(row[0], row[1]),
                    d = _mm256_unpacklo_epi32(row[2], row[3]), e = _mm256_unpackhi_epi32(row[2], row[3]);
      const __m256i quad[4] = {_mm256_unpacklo_epi64(a, d), _mm256_unpackhi_epi64(a, d), _mm256_unpacklo_epi64(b, e),
                               _mm256_unpackhi_epi64(b, e)};
      for (int i = 0; i < 4; ++i) {
        save_256(quads + (i * kPanel + o) * 4, _mm256_and_si256(quad[i], nibble));
        save_256(quads + ((4 + i) * kPanel + o) * 4, _mm256_and_si256(_mm256_srli_epi16(quad[i], 4), nibble));
      }
    }
}

}  // namespace
}  // namespace foretoken
