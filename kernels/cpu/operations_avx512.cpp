// The operations with AVX-512: sixteen floats at a time.
#if defined(__x86_64__)
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

}  // namespace
}  // namespace foretoken

#include "kernels/cpu/attend_rows.h"
#include "kernels/cpu/elementwise.h"
#include "kernels/cpu/product_rows.h"
#include "kernels/cpu/vocabulary.h"

namespace foretoken {

const Operations& operations_avx512() {
  static constexpr Operations kTable = {
      "avx512",
      false,
      {product<FloatWeights, 10, 2>, product<PairWeights, 10, 2>, product<ByteWeights, 6, 2>},
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
