// The operations with AVX2 and FMA: eight floats at a time.
#if defined(__x86_64__)
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

}  // namespace
}  // namespace foretoken

#include "kernels/cpu/attend_rows.h"
#include "kernels/cpu/elementwise.h"
#include "kernels/cpu/product_rows.h"
#include "kernels/cpu/vocabulary.h"

namespace foretoken {

const Operations& operations_avx2() {
  static constexpr Operations kTable = {
      "avx2",
      false,
      {product<FloatWeights, 4, 2>, product<PairWeights, 4, 2>, product<ByteWeights, 2, 2>},
      nullptr,
      widen_row,
      narrow_row,
      normalize_row,
      silu_mul_row,
      add_row,
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
