// Codes of 4 bits with AVX2: an output's 16 weights are two tables of 16 bytes, the lower and the upper halves, so that
// one shuffle looks up 32 weights; then 8 outputs x 8 pairs of inputs are transposed. About .4 instructions a weight,
// and .2 more for the tables of a group of 128.
#pragma once
#include <immintrin.h>

#include "kernels/cpu/unpack.h"

namespace foretoken {
namespace {

inline __m256i weights_of_8(const float* numbers, __m256 scale, __m256 zero, __m256 minimum) {
  const __m256 w = _mm256_sub_ps(_mm256_mul_ps(scale, _mm256_sub_ps(_mm256_loadu_ps(numbers), zero)), minimum);
  const __m256i u = _mm256_castps_si256(w);
  const __m256i even = _mm256_and_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(1));
  return _mm256_srli_epi32(_mm256_add_epi32(u, _mm256_add_epi32(even, _mm256_set1_epi32(0x7fff))), 16);
}

// Of every output the lower bytes of its 16 weights, then the upper ones.
inline void tables_of_codes(const Codes& c, std::int64_t panel, std::int64_t group, __m256i* tables) {
  const std::int64_t at = (panel * c.groups + group) * kPanel;
  for (int o = 0; o < kPanel; ++o) {
    const __m256 scale = _mm256_set1_ps(c.scales[at + o]), zero = _mm256_set1_ps(c.zeros ? c.zeros[at + o] : 0),
                 minimum = _mm256_set1_ps(c.minima ? c.minima[at + o] : 0);
    const __m256i halves = _mm256_packus_epi32(weights_of_8(c.numbers, scale, zero, minimum),
                                               weights_of_8(c.numbers + 8, scale, zero, minimum));
    const __m256i words = _mm256_permute4x64_epi64(halves, 0xd8);
    const __m256i bytes =
        _mm256_packus_epi16(_mm256_and_si256(words, _mm256_set1_epi16(0xff)), _mm256_srli_epi16(words, 8));
    tables[o] = _mm256_permute4x64_epi64(bytes, 0xd8);
  }
}

// rows[i] are the pairs of output i; afterwards rows[i] holds pair i of all outputs, where the pairs of the lower and
// of the upper half of a register are transposed apart: rows[0 ... 3] of the lower, rows[4 ... 7] of the upper.
inline void transpose(__m256i (&rows)[8]) {
  __m256i a[8], b[8];
  for (int i = 0; i < 8; i += 2) {
    a[i] = _mm256_unpacklo_epi32(rows[i], rows[i + 1]);
    a[i + 1] = _mm256_unpackhi_epi32(rows[i], rows[i + 1]);
  }
  for (int h = 0; h < 8; h += 4) {
    b[h] = _mm256_unpacklo_epi64(a[h], a[h + 2]);
    b[h + 1] = _mm256_unpackhi_epi64(a[h], a[h + 2]);
    b[h + 2] = _mm256_unpacklo_epi64(a[h + 1], a[h + 3]);
    b[h + 3] = _mm256_unpackhi_epi64(a[h + 1], a[h + 3]);
  }
  for (int i = 0; i < 4; ++i) {
    rows[i] = _mm256_permute2x128_si256(b[i], b[4 + i], 0x20);
    rows[4 + i] = _mm256_permute2x128_si256(b[i], b[4 + i], 0x31);
  }
}

// 8 outputs of a block.
inline void unpack_outputs(const std::byte* codes, const __m256i* tables, std::uint16_t* to) {
  const __m256i shifts = _mm256_set_epi32(4, 4, 4, 4, 0, 0, 0, 0), low = _mm256_set1_epi8(15);
  __m256i first[8], second[8];
  for (int o = 0; o < 8; ++o) {
    const __m256i both = _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(codes + o * 16)));
    const __m256i index = _mm256_and_si256(_mm256_srlv_epi32(both, shifts), low);
    const __m128i* table = reinterpret_cast<const __m128i*>(tables + o);
    const __m256i lower = _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(_mm_load_si128(table)), index),
                  upper = _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(_mm_load_si128(table + 1)), index);
    first[o] = _mm256_unpacklo_epi8(lower, upper);   // pairs 0 ... 3 and 8 ... 11
    second[o] = _mm256_unpackhi_epi8(lower, upper);  // pairs 4 ... 7 and 12 ... 15
  }
  const auto put = [&](const __m256i(&rows)[8], int pair) {
    for (int i = 0; i < 8; ++i)
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + (pair + i % 4 + i / 4 * 8) * kPanel * 2), rows[i]);
  };
  transpose(first);
  put(first, 0);
  transpose(second);
  put(second, 4);
}

void unpack4_avx2(const Codes& c, std::int64_t panel, std::int64_t begin, std::int64_t end, std::uint16_t* pairs) {
  __m256i tables[kPanel];
  std::int64_t group = -1;
  for (std::int64_t k = begin; k < end; k += kBlockInputs) {
    if (k / c.group != group) tables_of_codes(c, panel, group = k / c.group, tables);
    const std::byte* codes = c.codes + (panel * c.inputs + k) * kPanel / 2;
    for (int line = 0; line < kPanel * 16; line += 64) __builtin_prefetch(codes + kCodesAhead + line, 0, 3);
    for (int o = 0; o < kPanel; o += 8)
      unpack_outputs(codes + o * 16, tables + o, pairs + (k - begin) * kPanel + o * 2);
  }
}

}  // namespace
}  // namespace foretoken
