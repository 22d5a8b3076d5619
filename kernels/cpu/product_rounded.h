// Products of e4m3 codes with inputs in e4m3, for any kWidth: what they are is said in
// kernels/formats/activations/activation_format.h. Tiles of codes become numbers (no scale), which are multiplied as
// other tiles are (product_codes.h); behind every chunk, its sums are scaled and added to the totals. A number is a
// bf16 number on either side, so the loaders of bf16 products serve.
//
// Bytes: those of the codes, once for kSlab rows. Operations: those of the dense product, and those of unpacking, once
// for kSlab rows.
#pragma once
#include "kernels/cpu/product_codes.h"

namespace foretoken {
namespace {

// Inputs begin ... begin + n of a panel in pairs; what is missing to the last four is 0.
inline void unpack_e4m3(const Codes& c, std::int64_t panel, std::int64_t begin, std::int64_t n, std::uint16_t* tile) {
  const std::byte* codes = c.codes + (panel * c.inputs + begin) * kPanel;
  const auto numbers = [](const std::byte* p) { return as_words(e4m3(p) * 256.0f); };
  for (std::int64_t k = 0; k < (n + 3) / 4 * 4; k += 2)
    for (int o = 0; o < kPanel; o += kWidth) {
      const std::byte* from = codes + k * kPanel + o;
      const Words even = k < n ? numbers(from) : Words{}, odd = k + 1 < n ? numbers(from + kPanel) : Words{};
      save(tile + (k / 2 * kPanel + o) * 2, Words((even >> 16) | odd));
    }
}

// The chunk's term of row r; `at`: of the group's scales, for kWidth outputs.
inline Floats e4m3_term(const Product& p, Floats sum, std::int64_t r, std::int64_t at) {
  return sum * (spread(p.rounded.scales[r]) * (load<Floats>(p.codes.scales + at) * 0x1p-8f));  // see Codes
}

// Some rows of P panels. A tile is a chunk of activation_format.h.
template <class W, int kMaxRows, int C, int P>
void rounded_slab(const Product& p, std::int64_t panel, std::int64_t first, std::int64_t rows) {
  constexpr std::int64_t kFloats = (P == 1 ? kSlab : kSlab + 1) * kPanel;
  alignas(64) std::uint16_t tile[P * kTileInputs * kPanel];
  alignas(64) float sums[kFloats];
  alignas(64) float totals[kFloats];
  const auto each = [&](const auto& f) {
    for (int q = 0; q < P; ++q)
      for (std::int64_t r = 0; r < rows; ++r)
        for (int c = 0; c < kPanel; c += kWidth) f(q, r, c, (q * kSlab + r) * kPanel + c);
  };
  each([&](int, std::int64_t, int, std::int64_t i) { save(totals + i, Floats{}), save(sums + i, Floats{}); });
  const std::int64_t group = p.codes.group, padded = (group + 3) / 4 * 4, items = p.x_stride / W::kInputs;
  const auto* x = static_cast<const typename W::X*>(p.x) + first * items;
  const auto* weights = reinterpret_cast<const std::byte*>(tile);
  for (std::int64_t g = 0; g < p.codes.groups; ++g) {
    for (std::int64_t k = 0; k < group; k += kTileInputs) {
      const std::int64_t n = group - k < kTileInputs ? group - k : kTileInputs, some = (n + 3) / 4 * 4 / W::kInputs;
      const auto* from = x + (g * padded + k) / W::kInputs;
      for (int q = 0; q < P; ++q) unpack_e4m3(p.codes, panel + q, g * group + k, n, tile + q * kTileInputs * kPanel);
      if constexpr (P > 1) {
        add_tile<W, 1, kPanel / kWidth, P>(weights, kTileBytes, from, items, some, sums);
      } else {
        for_blocks<kMaxRows>(rows, [&]<int R>(std::int64_t row) {
          add_tile<W, R, C, 1>(weights, kTileBytes, from + row * items, items, some, sums + row * kPanel);
        });
      }
      each([&](int q, std::int64_t r, int c, std::int64_t i) {
        const std::int64_t at = ((panel + q) * p.codes.groups + g) * kPanel + c;
        save(totals + i, load<Floats>(totals + i) + e4m3_term(p, load<Floats>(sums + i), first + r, at));
        save(sums + i, Floats{});
      });
    }
  }
  each([&](int q, std::int64_t r, int c, std::int64_t i) {
    const std::int64_t o = (panel + q) * kPanel + c;
    if (o < p.out) put(p, first + r, o, load<Floats>(totals + i));
  });
}

template <class W, int kMaxRows, int C> void rounded_product(const Product& p, std::int64_t begin, std::int64_t end) {
  std::int64_t panel = begin;
  for (; p.rows == 1 && panel + 2 <= end; panel += 2) rounded_slab<W, kMaxRows, C, 2>(p, panel, 0, 1);
  for (; panel < end; ++panel)
    for (std::int64_t row = 0; row < p.rows; row += kSlab)
      rounded_slab<W, kMaxRows, C, 1>(p, panel, row, p.rows - row < kSlab ? p.rows - row : kSlab);
}

}  // namespace
}  // namespace foretoken
