// AMX: products of integers of many rows by tiles. All other operations are those of AVX-512 with bf16 dot products;
// products of bf16 stay there too, since a tile adds inputs in another order than they do, which few rows would pay.
#if defined(__x86_64__)
#include "kernels/cpu/vectors_avx512.h"

static_assert(foretoken::kWidth == 16);  // what follows is made of it

#include "kernels/cpu/product_tiles.h"

namespace foretoken {
namespace {

// Fewer rows are multiplied by VNNI, of whose time tiles take .6 from 64 rows on (experiments/results/cpu). Codes of 4
// bits are stored unpacked first, and tiles wait for these stores: .9 of its time from 128 rows on, more before.
constexpr int kFewRows = 16, kFewRowsOfNibbles = 128;

template <bool kNibbles, Packing kPacking>
void product_of_integers(const Product& p, std::int64_t begin, std::int64_t end) {
  // A group that few quads divide would leave tiles nearly empty.
  if (p.rows < (kNibbles ? kFewRowsOfNibbles : kFewRows) || quads_of_tile((p.codes.group + 3) / 4) < kTileQuads / 2)
    operations_avx512vnni().rounded_product[int(kPacking)](p, begin, end);
  else
    product_by_tiles<kNibbles>(p, begin, end);
}

}  // namespace

const Operations& operations_amx() {
  static const Operations table = [] {
    Operations t = operations_avx512bf16();
    t.name = "amx";
    t.rounded_product[int(Packing::quads8)] = product_of_integers<false, Packing::quads8>;
    t.rounded_product[int(Packing::quads4)] = product_of_integers<true, Packing::quads4>;
    return t;
  }();
  return table;
}

}  // namespace foretoken

#endif
