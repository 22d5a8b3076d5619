// AVX-512 with bf16 dot products: a bf16 weight is multiplied by an activation in bf16, two inputs per instruction and
// lane, with f32 sums. All other operations are those of AVX-512 with VNNI.
#if defined(__x86_64__)
#include "kernels/cpu/vectors_avx512.h"

static_assert(foretoken::kWidth == 16);  // what follows is made of it

#include "kernels/cpu/product_octets.h"
#include "kernels/cpu/product_rounded.h"

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

void round_row_fast(const float* x, std::uint16_t* y, std::int64_t n) {
  for (std::int64_t i = 0; i < n; i += kWidth) {
    const __mmask16 some = n - i >= kWidth ? 0xffff : __mmask16((1u << (n - i)) - 1);
    const __m256bh rounded = _mm512_cvtneps_pbh(_mm512_maskz_loadu_ps(some, x + i));
    _mm256_mask_storeu_epi16(y + i, some, reinterpret_cast<__m256i>(rounded));
  }
}

void product_of_integers(const Product& p, std::int64_t begin, std::int64_t end) {
  if (p.codes.exact && !p.codes.zeros)
    product_of_octets<IntegerOctets<true>>(p, begin, end);
  else
    product_of_octets<IntegerOctets<false>>(p, begin, end);
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
    t.product[int(Packing::bf16_octets)] = product_of_octets<DenseOctets>;
    t.product[int(Packing::codes4_octets)] = product_of_octets<NibbleOctets>;
    t.product[int(Packing::integers8_octets)] = product_of_integers;
    t.product[int(Packing::e4m3_octets)] = product_of_octets<E4m3Octets>;
    t.product[int(Packing::sparse_octets)] = product_of_octets<SparseOctets>;
    t.rounded_product[int(Packing::e4m3)] = rounded_product<DotWeights, 10, 2>;
    t.to_bf16 = round_row_fast;
    t.multiply_add = dot_steps;
    t.operations_per_step = 4.0 * kWidth * kChains;
    return t;
  }();
  return table;
}

}  // namespace foretoken

#endif
