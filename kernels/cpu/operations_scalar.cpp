// The operations for any machine: the compiler lowers vectors of four floats to the available instructions. No fused
// multiply-add.
#include <cstddef>
#include <cstdint>

namespace foretoken {
namespace {

constexpr int kWidth = 4;
typedef float Floats __attribute__((vector_size(4 * kWidth)));
inline Floats fused(Floats a, Floats b, Floats c) { return a * b + c; }
inline Floats widen(const std::uint16_t* p) {
  float v[kWidth];
  for (int i = 0; i < kWidth; ++i) {
    const std::uint32_t u = std::uint32_t(p[i]) << 16;
    __builtin_memcpy(&v[i], &u, 4);
  }
  Floats f;
  __builtin_memcpy(&f, v, sizeof(f));
  return f;
}
inline Floats bytes(const std::byte* p) {  // 4 numbers from 0 to 255
  Floats f;
  for (int i = 0; i < kWidth; ++i) f[i] = float(std::to_integer<int>(p[i]));
  return f;
}
inline Floats integers(const std::byte* p) {  // 4 numbers from -128 to 127
  Floats f;
  for (int i = 0; i < kWidth; ++i) f[i] = float(std::int8_t(p[i]));
  return f;
}
// 4 numbers in e4m3, times 2^-8. Without its sign, a code is m << 20 in f32 but for the bias of the exponent, which a
// product adds, subnormal numbers included.
inline Floats e4m3(const std::byte* p) {
  Floats f;
  for (int i = 0; i < kWidth; ++i) {
    const std::uint32_t code = std::uint32_t(p[i]), magnitude = (code & 0x7fu) << 20;
    float x;
    __builtin_memcpy(&x, &magnitude, 4);
    f[i] = (code & 0x80u ? -x : x) * 0x1p112f;
  }
  return f;
}

}  // namespace
}  // namespace foretoken

#include "kernels/cpu/attend_rows.h"
#include "kernels/cpu/elementwise.h"
#include "kernels/cpu/product_integers.h"
#include "kernels/cpu/product_rounded.h"
#include "kernels/cpu/round_integers.h"
#include "kernels/cpu/vocabulary.h"

namespace foretoken {
namespace {

// Four inputs of an output: those of even and of odd places, in 16 bits each.
struct Quads {
  struct X {
    std::int16_t x0, x2, x1, x3;
  };
  static Ints add(Ints codes, X x, Ints sum) {
    return sum + (codes & 255) * x.x0 + (codes >> 8 & 255) * x.x1 + (codes >> 16 & 255) * x.x2 +
           (codes >> 24 & 255) * x.x3;
  }
};

}  // namespace

const Operations& operations_scalar() {
  static constexpr Operations kTable = {
      "scalar",
      false,
      {product<FloatWeights, 4, 2>, product<PairWeights, 4, 2>, product_of_codes<PairWeights, unpack4, 4, 2>,
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
