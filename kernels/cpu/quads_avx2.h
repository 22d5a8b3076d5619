// Quads of codes with AVX2: see product_rounded.h. About .1 instructions a code.
#pragma once
#include <immintrin.h>

#include "kernels/cpu/product_rounded.h"

namespace foretoken {
namespace {

inline __m256i load_256(const std::byte* p) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)); }
inline void save_256(std::byte* p, __m256i v) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), v); }

// Four inputs of 32 outputs are four rows of bytes; they become columns.
void quads8_avx2(const Codes& c, std::int64_t panel, std::int64_t begin, std::int64_t n, std::byte* quads) {
  const std::byte* codes = c.codes + (panel * c.inputs + begin) * kPanel;
  for (std::int64_t k = 0; k < n; k += 4, codes += 4 * kPanel, quads += 4 * kPanel) {
    __builtin_prefetch(codes + kCodesAhead, 0, 3);
    __builtin_prefetch(codes + kCodesAhead + 64, 0, 3);
    __m256i row[4];
    for (int i = 0; i < 4; ++i) row[i] = k + i < n ? load_256(codes + i * kPanel) : _mm256_setzero_si256();
    const __m256i lower01 = _mm256_unpacklo_epi8(row[0], row[1]), upper01 = _mm256_unpackhi_epi8(row[0], row[1]),
                  lower23 = _mm256_unpacklo_epi8(row[2], row[3]), upper23 = _mm256_unpackhi_epi8(row[2], row[3]);
    // Outputs 0 ... 3 and 16 ... 19, and so on.
    const __m256i a = _mm256_unpacklo_epi16(lower01, lower23), b = _mm256_unpackhi_epi16(lower01, lower23),
                  d = _mm256_unpacklo_epi16(upper01, upper23), e = _mm256_unpackhi_epi16(upper01, upper23);
    save_256(quads, _mm256_permute2x128_si256(a, b, 0x20));
    save_256(quads + 32, _mm256_permute2x128_si256(d, e, 0x20));
    save_256(quads + 64, _mm256_permute2x128_si256(a, b, 0x31));
    save_256(quads + 96, _mm256_permute2x128_si256(d, e, 0x31));
  }
}

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
