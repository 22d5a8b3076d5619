// AVX-512 with bf16 dot products: a bf16 weight is multiplied by an activation in bf16, two inputs per instruction and
// lane, with f32 sums. All other operations are those of AVX-512 with
// VNNI.
#if defined(__x86_64__)
#include "kernels/cpu/vectors_avx512.h"

static_assert(foretoken::kWidth == 16);  // what follows is made of it

#include "kernels/cpu/product_rounded.h"
#include "kernels/cpu/unpack_avx512.h"

namespace foretoken {
namespace {

struct DotWeights {
  using X = std::uint32_t;  // two activations in bf16
  static constexpr int kInputs = 2, kBytes = 4;
  static Floats add(const std::byte* w, X x, Floats sum) {
    return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(_mm512_set1_epi32(int(x))),
                            reinterpret_cast<__m512bh>(_mm512_loadu_si512(w)));
  }
};

// The instruction makes subnormal weights 0, as the products take them.
struct ByInstruction {
  static Words pairs(Floats even, Floats odd) {
    static constexpr auto kPlace = [](int i) { return short(i % 2 * kWidth + i / 2); };
    const __m512i places =
        _mm512_set_epi16(kPlace(31), kPlace(30), kPlace(29), kPlace(28), kPlace(27), kPlace(26), kPlace(25), kPlace(24),
                         kPlace(23), kPlace(22), kPlace(21), kPlace(20), kPlace(19), kPlace(18), kPlace(17), kPlace(16),
                         kPlace(15), kPlace(14), kPlace(13), kPlace(12), kPlace(11), kPlace(10), kPlace(9), kPlace(8),
                         kPlace(7), kPlace(6), kPlace(5), kPlace(4), kPlace(3), kPlace(2), kPlace(1), kPlace(0));
    return reinterpret_cast<Words>(
        _mm512_permutexvar_epi16(places, reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(odd, even))));
  }
  static Words exact_pairs(Floats even, Floats odd) { return pairs(even, odd); }
};

void round_row_fast(const float* x, std::uint16_t* y, std::int64_t n) {
  for (std::int64_t i = 0; i < n; i += kWidth) {
    const __mmask16 some = n - i >= kWidth ? 0xffff : __mmask16((1u << (n - i)) - 1);
    const __m256bh rounded = _mm512_cvtneps_pbh(_mm512_maskz_loadu_ps(some, x + i));
    _mm256_mask_storeu_epi16(y + i, some, reinterpret_cast<__m256i>(rounded));
  }
}

constexpr int kChains = 20;

double dot_steps(std::int64_t steps) {
  __m512 sum[kChains];
#pragma GCC unroll 32
  for (int j = 0; j < kChains; ++j) sum[j] = _mm512_set1_ps(float(j));  // equal sums would be computed once
  __m512i a = _mm512_set1_epi32(0x3f803f80), b = a;
  for (std::int64_t i = 0; i < steps; ++i) {
    __asm__ volatile("" : "+m"(a), "+m"(b));  // prevents the compiler from computing the loop in advance
    const __m512bh x = reinterpret_cast<__m512bh>(a), w = reinterpret_cast<__m512bh>(b);
#pragma GCC unroll 32
    for (int j = 0; j < kChains; ++j) sum[j] = _mm512_dpbf16_ps(sum[j], x, w);
  }
  __m512 all = {};
#pragma GCC unroll 32
  for (int j = 0; j < kChains; ++j) all += sum[j];
  return double(total(all));
}

}  // namespace

const Operations& operations_avx512bf16() {
  static const Operations table = [] {
    Operations t = operations_avx512vnni();
    t.name = "avx512bf16";
    t.rounds_to_bf16 = true;
    t.product[int(Packing::bf16)] = product<DotWeights, 10, 2>;
    t.product[int(Packing::codes4)] = product_of_codes<DotWeights, unpack4_avx512<ByInstruction>, 10, 2>;
    t.product[int(Packing::integers8)] = product_of_codes<DotWeights, unpack8<IntegersOf, ByInstruction>, 10, 2>;
    t.product[int(Packing::e4m3)] = product_of_codes<DotWeights, unpack8<E4m3Of, ByInstruction>, 10, 2>;
    t.rounded_product[int(Packing::e4m3)] = rounded_product<DotWeights, E4m3Chunks, 10, 2>;
    t.to_bf16 = round_row_fast;
    t.multiply_add = dot_steps;
    t.operations_per_step = 4.0 * kWidth * kChains;
    return t;
  }();
  return table;
}

}  // namespace foretoken

#endif
