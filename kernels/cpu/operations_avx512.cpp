// The operations with AVX-512: sixteen floats at a time.
#if defined(__x86_64__)
#include "kernels/cpu/vectors_avx512.h"

static_assert(foretoken::kWidth == 16);  // what follows is made of it

#include "kernels/cpu/attend_rows.h"
#include "kernels/cpu/elementwise.h"
#include "kernels/cpu/product_codes.h"
#include "kernels/cpu/unpack_avx2.h"
#include "kernels/cpu/vocabulary.h"

namespace foretoken {

const Operations& operations_avx512() {
  static constexpr Operations kTable = {
      "avx512",
      false,
      {product<FloatWeights, 10, 2>, product<PairWeights, 10, 2>, product_of_codes<PairWeights, unpack4_avx2, 10, 2>,
       product_of_codes<PairWeights, unpack8<IntegersOf>, 10, 2>,
       product_of_codes<PairWeights, unpack8<E4m3Of>, 10, 2>},
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
