// Products over codes, for any kWidth: tiles of weights are unpacked to bf16 (unpack.h) and multiplied as the dense
// product does (product_rows.h): every output of every row has an accumulator that adds the inputs in order, kept in
// memory from one tile to the next.
//
// Bytes: those of the codes and scales, once for kSlab rows. Operations: those of the dense product, and those of
// unpacking, once for kSlab rows.
#pragma once
#include "kernels/cpu/product_rows.h"
#include "kernels/cpu/unpack.h"

namespace foretoken {
namespace {

using Unpack = void(const Codes& c, std::int64_t panel, std::int64_t begin, std::int64_t end, std::uint16_t* pairs);

constexpr std::int64_t kTileInputs = 128;  // 8 KB of bf16 for a panel
constexpr std::int64_t kSlab = 256;        // rows whose sums are kept: 32 KB

constexpr std::int64_t kTileBytes = kTileInputs * kPanel * 2;

// Adds the products of R rows with a tile of P panels, panel_bytes apart, to their sums, [P][kSlab][kPanel] in memory.
template <class W, int R, int C, int P> inline void add_tile(const std::byte* tile, std::int64_t panel_bytes,
                                                             const typename W::X* x, std::int64_t stride,
                                                             std::int64_t items, float* sums) {
  for (int column = 0; column < kPanel; column += C * kWidth) {
    const auto each = [&](const auto& f) {
      for (int r = 0; r < R; ++r)
        for (int q = 0; q < P; ++q)
          for (int c = 0; c < C; ++c) f(r, q, c, sums + (q * kSlab + r) * kPanel + column + c * kWidth);
    };
    Floats sum[R][P][C];
    each([&](int r, int q, int c, float* at) { sum[r][q][c] = load<Floats>(at); });
    accumulate<W, R, C, P, false>(tile + column * W::kBytes, panel_bytes, x, stride, items, nullptr, sum);
    each([&](int r, int q, int c, float* at) { save(at, sum[r][q][c]); });
  }
}

// Some rows of P panels.
template <class W, Unpack* kUnpack, int kMaxRows, int C, int P>
void slab(const Product& p, std::int64_t panel, std::int64_t first, std::int64_t rows) {
  alignas(64) std::uint16_t tile[P * kTileInputs * kPanel];
  alignas(64) float sums[P == 1 ? kSlab * kPanel : (kSlab + 1) * kPanel];
  const auto* bytes_of_tile = reinterpret_cast<const std::byte*>(tile);
  const std::int64_t items = p.x_stride / W::kInputs;
  const auto* x = static_cast<const typename W::X*>(p.x) + first * items;
  for (int q = 0; q < P; ++q) std::memset(sums + q * kSlab * kPanel, 0, std::size_t(rows * kPanel) * sizeof(float));
  for (std::int64_t k = 0; k < p.inputs; k += kTileInputs) {
    const std::int64_t n = p.inputs - k < kTileInputs ? p.inputs - k : kTileInputs;
    for (int q = 0; q < P; ++q) kUnpack(p.codes, panel + q, k, k + n, tile + q * kTileInputs * kPanel);
    const auto* some = x + k / W::kInputs;
    if constexpr (P > 1) {
      add_tile<W, 1, kPanel / kWidth, P>(bytes_of_tile, kTileBytes, some, items, n / W::kInputs, sums);
    } else {
      for_blocks<kMaxRows>(rows, [&]<int R>(std::int64_t row) {
        add_tile<W, R, C, 1>(bytes_of_tile, kTileBytes, some + row * items, items, n / W::kInputs, sums + row * kPanel);
      });
    }
  }
  for (int q = 0; q < P; ++q)
    for (std::int64_t r = 0; r < rows; ++r)
      for (int c = 0; c < kPanel; c += kWidth) {
        const std::int64_t o = (panel + q) * kPanel + c;
        if (o < p.out) put(p, first + r, o, load<Floats>(sums + (q * kSlab + r) * kPanel + c));
      }
}

// One row takes two panels at a time: additions to one accumulator wait for each other.
template <class W, Unpack* kUnpack, int kMaxRows, int C>
void product_of_codes(const Product& p, std::int64_t begin, std::int64_t end) {
  std::int64_t panel = begin;
  for (; p.rows == 1 && panel + 2 <= end; panel += 2) slab<W, kUnpack, kMaxRows, C, 2>(p, panel, 0, 1);
  for (; panel < end; ++panel)
    for (std::int64_t row = 0; row < p.rows; row += kSlab)
      slab<W, kUnpack, kMaxRows, C, 1>(p, panel, row, p.rows - row < kSlab ? p.rows - row : kSlab);
}

}  // namespace
}  // namespace foretoken
