// AVX-512 with VNNI: products of integers take four inputs per instruction and lane, with sums of 32 bits that do not
// saturate. All other operations are those of AVX-512.
#if defined(__x86_64__)
#include "kernels/cpu/vectors_avx512.h"

static_assert(foretoken::kWidth == 16);  // what follows is made of it

#include "kernels/cpu/product_integers.h"

namespace foretoken {
namespace {

struct Quads {
  using X = std::uint32_t;  // four activations of 8 bits
  static Ints add(Ints codes, X x, Ints sum) {
    return reinterpret_cast<Ints>(_mm512_dpbusd_epi32(reinterpret_cast<__m512i>(sum), reinterpret_cast<__m512i>(codes),
                                                      _mm512_set1_epi32(int(x))));
  }
};

}  // namespace

const Operations& operations_avx512vnni() {
  static const Operations table = [] {
    Operations t = operations_avx512();
    t.name = "avx512vnni";
    t.byte_quads = true;
    t.rounded_product[int(Packing::quads8)] = integer_product<Quads, false, 10, 2>;
    t.rounded_product[int(Packing::quads4)] = integer_product<Quads, true, 10, 2>;
    return t;
  }();
  return table;
}

}  // namespace foretoken

#endif
