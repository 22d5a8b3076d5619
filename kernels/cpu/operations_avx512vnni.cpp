// AVX-512 with VNNI: products of integers take four inputs per instruction and lane, with sums of 32 bits that do not
// saturate. All other operations are those of AVX-512.
#if defined(__x86_64__)
#include "kernels/cpu/vectors_avx512.h"

static_assert(foretoken::kWidth == 16);  // what follows is made of it

#include "kernels/cpu/quads_avx2.h"

namespace foretoken {
namespace {

struct Quads {
  using X = std::uint32_t;  // four activations of 8 bits
  static constexpr int kInputs = 4, kBytes = 4;
  static Floats add(const std::byte* w, X x, Floats sum) {
    return _mm512_castsi512_ps(
        _mm512_dpbusd_epi32(_mm512_castps_si512(sum), _mm512_loadu_si512(w), _mm512_set1_epi32(int(x))));
  }
};

}  // namespace

const Operations& operations_avx512vnni() {
  static const Operations table = [] {
    Operations t = operations_avx512();
    t.name = "avx512vnni";
    t.byte_quads = true;
    t.rounded_product[int(Packing::codes4)] = rounded_product<Quads, IntegerChunks<quads4_avx2>, 10, 2>;
    t.rounded_product[int(Packing::quads8)] = rounded_product<Quads, IntegerChunks<nullptr>, 10, 2>;
    return t;
  }();
  return table;
}

}  // namespace foretoken

#endif
