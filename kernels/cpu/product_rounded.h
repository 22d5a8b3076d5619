// Products over codes with rounded inputs, for any kWidth: what they are is said in
// kernels/formats/activations/activation_format.h. Tiles of codes become numbers (no scale), which are multiplied as
// other tiles are (product_codes.h); behind every chunk, its sums are scaled and added to the totals.
//
// Integers: a tile holds four inputs of an output in 32 bits, as unsigned codes, [inputs / 4][kPanel][4], as weights of
// 8 bits lie in memory (Packing::quads8), so that these are not unpacked; their offset
// is taken off with the sum of the row's numbers: sum x (c - offset) = sum x c - offset sum x, all of it in integers.
// The including file defines Quads, a loader whose sums are integers in the bits of Floats. e4m3: a number is a bf16
// number on either side, so the loaders of bf16 products serve.
//
// Bytes: those of the codes, once for kSlab rows. Operations: an instruction of Quads takes 2 (AVX2: 16 bits) or 4
// (VNNI) inputs of kWidth outputs.
#pragma once
#include "kernels/cpu/product_codes.h"

namespace foretoken {
namespace {

// Inputs begin ... begin + n of a panel as quads; what is missing to the last four is 0.
using UnpackQuads = void(const Codes& c, std::int64_t panel, std::int64_t begin, std::int64_t n, std::byte* quads);

[[maybe_unused]] void quads4(const Codes& c, std::int64_t panel, std::int64_t begin, std::int64_t n, std::byte* quads) {
  const std::byte* codes = c.codes + (panel * c.inputs + begin) * kPanel / 2;
  for (std::int64_t k = 0; k < n; ++k) {
    const std::int64_t within = k % kBlockInputs;
    const std::byte* block = codes + (k - within) * kPanel / 2 + within % 16;
    for (int o = 0; o < kPanel; ++o)
      quads[(k / 4 * kPanel + o) * 4 + k % 4] = within < 16 ? block[o * 16] & std::byte(15) : block[o * 16] >> 4;
  }
}

// kUnpack: nullptr where the codes are quads in memory.
template <UnpackQuads* kUnpack> struct IntegerChunks {
  static constexpr bool kWholeGroups = true, kUnpacks = kUnpack != nullptr;
  static constexpr std::int64_t kInputs = 2 * kTileInputs;  // of a tile, in the memory of one of bf16
  static void unpack(const Codes& c, std::int64_t panel, std::int64_t begin, std::int64_t n, std::uint16_t* tile) {
    if constexpr (kUnpacks) kUnpack(c, panel, begin, n, reinterpret_cast<std::byte*>(tile));
  }
  // The chunk's term of row r; `at`: of the group's scales, for kWidth outputs.
  static Floats term(const Product& p, Floats sum, std::int64_t r, std::int64_t group, std::int64_t at) {
    Ints offset = __builtin_convertvector(spread(p.codes.half), Ints);
    if (p.codes.zeros) offset += __builtin_convertvector(load<Floats>(p.codes.zeros + at), Ints);
    const Ints acc = reinterpret_cast<Ints>(sum) - offset * p.rounded.sums[r * p.codes.groups + group];
    return __builtin_convertvector(acc, Floats) * (spread(p.rounded.scales[r]) * load<Floats>(p.codes.scales + at));
  }
};

struct E4m3Chunks {
  static constexpr bool kWholeGroups = false, kUnpacks = true;
  static constexpr std::int64_t kInputs = kTileInputs;  // a chunk: kChunkInputs
  static void unpack(const Codes& c, std::int64_t panel, std::int64_t begin, std::int64_t n, std::uint16_t* tile) {
    const std::byte* codes = c.codes + (panel * c.inputs + begin) * kPanel;
    const auto numbers = [](const std::byte* p) { return as_words(e4m3(p) * 256.0f); };
    for (std::int64_t k = 0; k < (n + 3) / 4 * 4; k += 2)
      for (int o = 0; o < kPanel; o += kWidth) {
        const std::byte* from = codes + k * kPanel + o;
        const Words even = k < n ? numbers(from) : Words{}, odd = k + 1 < n ? numbers(from + kPanel) : Words{};
        save(tile + (k / 2 * kPanel + o) * 2, Words((even >> 16) | odd));
      }
  }
  static Floats term(const Product& p, Floats sum, std::int64_t r, std::int64_t, std::int64_t at) {
    return sum * (spread(p.rounded.scales[r]) * (load<Floats>(p.codes.scales + at) * 0x1p-8f));  // see Codes
  }
};

struct ChunkWeights {
  const std::byte* first;
  std::int64_t panel_bytes;  // from a panel to the next
};
// Inputs k ... k + n of a group as products read them, of P panels: in memory, or unpacked to the tile.
template <class Chunks, int P> inline ChunkWeights weights_of(const Product& p, std::int64_t panel, std::int64_t group,
                                                              std::int64_t k, std::int64_t n, std::uint16_t* tile) {
  if constexpr (Chunks::kUnpacks) {
    for (int q = 0; q < P; ++q)
      Chunks::unpack(p.codes, panel + q, group * p.codes.group + k, n, tile + q * kTileInputs * kPanel);
    return {reinterpret_cast<const std::byte*>(tile), kTileBytes};
  }
  const std::int64_t padded = (p.codes.group + 3) / 4 * 4;
  return {p.codes.codes + (panel * p.inputs + group * padded + k) * kPanel, p.inputs * kPanel};
}

// Some rows of P panels.
template <class W, class Chunks, int kMaxRows, int C, int P>
void rounded_slab(const Product& p, std::int64_t panel, std::int64_t first, std::int64_t rows) {
  constexpr std::int64_t kFloats = (P == 1 ? kSlab : kSlab + 1) * kPanel;
  alignas(64) std::uint16_t tile[Chunks::kUnpacks ? P * kTileInputs * kPanel : 1];
  alignas(64) float sums[kFloats];
  alignas(64) float totals[kFloats];
  const auto each = [&](const auto& f) {
    for (int q = 0; q < P; ++q)
      for (std::int64_t r = 0; r < rows; ++r)
        for (int c = 0; c < kPanel; c += kWidth) f(q, r, c, (q * kSlab + r) * kPanel + c);
  };
  each([&](int, std::int64_t, int, std::int64_t i) { save(totals + i, Floats{}), save(sums + i, Floats{}); });
  const std::int64_t group = p.codes.group, padded = (group + 3) / 4 * 4, items = p.inputs / W::kInputs;
  const auto* x = static_cast<const typename W::X*>(p.x) + first * items;
  for (std::int64_t g = 0; g < p.codes.groups; ++g) {
    for (std::int64_t k = 0; k < group; k += Chunks::kInputs) {
      const std::int64_t n = group - k < Chunks::kInputs ? group - k : Chunks::kInputs,
                         some = (n + 3) / 4 * 4 / W::kInputs;
      const auto* from = x + (g * padded + k) / W::kInputs;
      const auto [weights, panel_bytes] = weights_of<Chunks, P>(p, panel, g, k, n, tile);
      if constexpr (P > 1) {
        add_tile<W, 1, kPanel / kWidth, P>(weights, panel_bytes, from, items, some, sums);
      } else {
        for_blocks<kMaxRows>(rows, [&]<int R>(std::int64_t row) {
          add_tile<W, R, C, 1>(weights, panel_bytes, from + row * items, items, some, sums + row * kPanel);
        });
      }
      if (Chunks::kWholeGroups && k + n < group) continue;
      each([&](int q, std::int64_t r, int c, std::int64_t i) {
        const std::int64_t at = ((panel + q) * p.codes.groups + g) * kPanel + c;
        save(totals + i, load<Floats>(totals + i) + Chunks::term(p, load<Floats>(sums + i), first + r, g, at));
        save(sums + i, Floats{});
      });
    }
  }
  each([&](int q, std::int64_t r, int c, std::int64_t i) {
    const std::int64_t o = (panel + q) * kPanel + c;
    if (o < p.out) put(p, first + r, o, load<Floats>(totals + i));
  });
}

template <class W, class Chunks, int kMaxRows, int C>
void rounded_product(const Product& p, std::int64_t begin, std::int64_t end) {
  std::int64_t panel = begin;
  for (; p.rows == 1 && panel + 2 <= end; panel += 2) rounded_slab<W, Chunks, kMaxRows, C, 2>(p, panel, 0, 1);
  for (; panel < end; ++panel)
    for (std::int64_t row = 0; row < p.rows; row += kSlab)
      rounded_slab<W, Chunks, kMaxRows, C, 1>(p, panel, row, p.rows - row < kSlab ? p.rows - row : kSlab);
}

}  // namespace
}  // namespace foretoken
