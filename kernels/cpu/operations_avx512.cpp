// The operations with AVX-512: sixteen floats at a time.
#if defined(__x86_64__)
#include "kernels/cpu/vectors_avx512.h"

static_assert(foretoken::kWidth == 16);  // what follows is made of it

#include "kernels/cpu/attend_rows.h"
#include "kernels/cpu/elementwise.h"
#include "kernels/cpu/product_integers.h"
#include "kernels/cpu/product_rounded.h"
#include "kernels/cpu/round_integers.h"
#include "kernels/cpu/unpack_avx512.h"
#include "kernels/cpu/vocabulary.h"

namespace foretoken {
namespace {

// Four inputs of an output: those of even and of odd places, in 16 bits each.
struct Quads {
  struct X {
    std::uint32_t even, odd;
  };
  static Ints add(Ints codes, X x, Ints sum) {
    const __m512i four = reinterpret_cast<__m512i>(codes), even = _mm512_and_si512(four, _mm512_set1_epi16(255)),
                  odd = _mm512_srli_epi16(four, 8);
    sum += reinterpret_cast<Ints>(_mm512_madd_epi16(even, _mm512_set1_epi32(int(x.even))));
    return sum + reinterpret_cast<Ints>(_mm512_madd_epi16(odd, _mm512_set1_epi32(int(x.odd))));
  }
};

}  // namespace

const Operations& operations_avx512() {
  static constexpr Operations kTable = {
      "avx512",
      false,
      {product<FloatWeights, 10, 2>, product<PairWeights, 10, 2>, product_of_codes<PairWeights, unpack4_avx512, 10, 2>,
       product_of_codes<PairWeights, unpack8<IntegersOf>, 10, 2>, nullptr,
       product_of_codes<PairWeights, unpack8<E4m3Of>, 10, 2>, product_of_codes<PairWeights, unpack_sparse, 10, 2>},
      false,
      {nullptr, nullptr, nullptr, nullptr, integer_product<Quads, false, 10, 2>, rounded_product<PairWeights, 10, 2>,
       nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, integer_product<Quads, true, 10, 2>},
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
