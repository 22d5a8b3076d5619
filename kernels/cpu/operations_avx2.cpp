// The operations with AVX2 and FMA: eight floats at a time.
#if defined(__x86_64__)
#include <cstddef>
#include <cstdint>

#include <immintrin.h>

namespace foretoken {
namespace {

constexpr int kWidth = 8;
typedef float Floats __attribute__((vector_size(4 * kWidth)));
inline Floats fused(Floats a, Floats b, Floats c) { return _mm256_fmadd_ps(a, b, c); }
inline Floats widen(const std::uint16_t* p) {
  return _mm256_castsi256_ps(
      _mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))), 16));
}
inline Floats bytes(const std::byte* p) {  // 8 numbers from 0 to 255
  return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
}
inline Floats integers(const std::byte* p) {  // 8 numbers from -128 to 127
  return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
}
// 8 numbers in e4m3, times 2^-8. Shifted by 7 a code is that in 16 bits, subnormal numbers included.
inline Floats e4m3(const std::byte* p) {
  const __m128i code = _mm_cvtepi8_epi16(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
  return _mm256_cvtph_ps(_mm_and_si128(_mm_slli_epi16(code, 7), _mm_set1_epi16(std::int16_t(0xbfff))));
}

}  // namespace
}  // namespace foretoken

#include "kernels/cpu/attend_rows.h"
#include "kernels/cpu/elementwise.h"
#include "kernels/cpu/product_integers.h"
#include "kernels/cpu/product_rounded.h"
#include "kernels/cpu/round_integers.h"
#include "kernels/cpu/unpack_avx2.h"
#include "kernels/cpu/vocabulary.h"

namespace foretoken {
namespace {

// Four inputs of an output: those of even and of odd places, in 16 bits each.
struct Quads {
  struct X {
    std::uint32_t even, odd;
  };
  static Ints add(Ints codes, X x, Ints sum) {
    const __m256i four = reinterpret_cast<__m256i>(codes), even = _mm256_and_si256(four, _mm256_set1_epi16(255)),
                  odd = _mm256_srli_epi16(four, 8);
    sum += reinterpret_cast<Ints>(_mm256_madd_epi16(even, _mm256_set1_epi32(int(x.even))));
    return sum + reinterpret_cast<Ints>(_mm256_madd_epi16(odd, _mm256_set1_epi32(int(x.odd))));
  }
};

}  // namespace

const Operations& operations_avx2() {
  static constexpr Operations kTable = {
      "avx2",
      false,
      {product<FloatWeights, 4, 2>, product<PairWeights, 4, 2>, product_of_codes<PairWeights, unpack4_avx2, 4, 2>,
       product_of_codes<PairWeights, unpack8<IntegersOf>, 4, 2>, nullptr,
       product_of_codes<PairWeights, unpack8<E4m3Of>, 4, 2>, product_of_codes<PairWeights, unpack_sparse, 4, 2>},
      false,
      {nullptr, nullptr, nullptr, nullptr, integer_product<Quads, false, 4, 2>, rounded_product<PairWeights, 4, 2>,
       nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, integer_product<Quads, true, 4, 2>},
      nullptr,
      widen_row,
      narrow_row,
      normalize_row,
      silu_mul_row,
      gelu_mul_row,
      clamped_mul_row,
      softcap_row,
      silu_add_row,
      add_row,
      integers_of_row,
      rotate_head,
      attend_rows,
      distribution_of_row,
      distribution_of_tile,
      read_all,
      multiply_add_steps,
      2.0 * kWidth * kChains};
  return kTable;
}

}  // namespace foretoken

#endif
