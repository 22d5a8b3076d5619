// What vectors.h and unpack.h need of AVX-512: sixteen floats at a time.
#pragma once
#include <cstddef>
#include <cstdint>

#include <immintrin.h>

namespace foretoken {
namespace {

constexpr int kWidth = 16;
typedef float Floats __attribute__((vector_size(4 * kWidth)));
inline Floats fused(Floats a, Floats b, Floats c) { return _mm512_fmadd_ps(a, b, c); }
inline Floats widen(const std::uint16_t* p) {
  return _mm512_castsi512_ps(
      _mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))), 16));
}
inline Floats bytes(const std::byte* p) {  // 16 numbers from 0 to 255
  return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
}
inline Floats integers(const std::byte* p) {  // 16 numbers from -128 to 127
  return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
}
// 16 numbers in e4m3, times 2^-8. Shifted by 7 a code is that in 16 bits, subnormal numbers included.
inline Floats e4m3(const std::byte* p) {
  const __m256i code = _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  return _mm512_cvtph_ps(_mm256_and_si256(_mm256_slli_epi16(code, 7), _mm256_set1_epi16(std::int16_t(0xbfff))));
}

}  // namespace
}  // namespace foretoken
