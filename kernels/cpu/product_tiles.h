// Products of integer codes with integers of many rows, by AMX tiles: the sums of product_integers.h, and so its bits.
// A tile of codes is what lies in memory, sixteen quads of sixteen outputs; one of x is sixteen rows of as many quads.
//
// Bytes: those of the codes, once for a block of kBlockRows rows. Operations: an instruction multiplies 16 rows x 64
// inputs x 16 outputs in 16 cycles, 2048 a cycle. Two tiles of rows times two of outputs keep four of sums, so that an
// instruction takes one load of a tile. Behind every group each sum is scaled and added to its total, some 400 cycles
// for 32 rows of a panel, where the products of a group of 128 inputs take 128.
#pragma once
#include "kernels/cpu/product_integers.h"

namespace foretoken {
namespace {

constexpr int kTileRows = 16, kTileQuads = 16;
constexpr int kBlockRows = 64;  // 8 KB of sums and 8 KB of totals
constexpr std::int64_t kQuadBytes = kPanel * 4;
constexpr std::int64_t kChunkQuads = 128;  // of which 16 KB of unpacked codes lie in the L1 cache

// Loads and configurations of tiles are no reads of memory for GCC 12, which would store later what they read.
inline void order_stores() { __asm__ volatile("" ::: "memory"); }

// Tiles 0 to 3 are sums, [two tiles of rows][two of outputs]; 4 and 5 are of x, 6 and 7 of codes.
struct alignas(64) TileShapes {
  std::uint8_t palette = 1, start = 0, reserved[14] = {};
  std::uint16_t bytes[16] = {};  // of a row of a tile
  std::uint8_t rows[16] = {};

  TileShapes(int upper, int lower, int quads) {
    for (int t = 0; t < 8; ++t) {
      const bool codes = t >= 6, second = t == 2 || t == 3 || t == 5;
      rows[t] = std::uint8_t(codes ? quads : second ? lower : upper);
      bytes[t] = std::uint16_t(t == 4 || t == 5 ? 4 * quads : 64);
    }
  }
};

// The quads of a tile: the most that divide those of a group.
inline int quads_of_tile(std::int64_t quads) {
  int most = kTileQuads;
  while (quads % most) --most;
  return most;
}

// A block of rows times a panel.
struct TileBlock {
  alignas(64) std::int32_t sums[kBlockRows][kPanel];  // of a group
  alignas(64) float totals[kBlockRows][kPanel];
  alignas(64) std::byte unpacked[kChunkQuads * kQuadBytes];
  int shaped_upper = 0, shaped_lower = 0;  // rows of the tiles as configured

  void shape(int upper, int lower, int quads) {
    if (upper == shaped_upper && (lower == 0 || lower == shaped_lower)) return;
    const TileShapes shapes(upper, lower ? lower : kTileRows, quads);
    order_stores();
    _tile_loadconfig(&shapes);
    shaped_upper = upper, shaped_lower = lower ? lower : kTileRows;
  }
};

// The quads of codes of 4 bits, `quads` of them.
inline void unpack_quads(const std::byte* codes, std::int64_t quads, std::byte* to) {
  for (std::int64_t k = 0; k < quads; k += 2, codes += kQuadBytes, to += 2 * kQuadBytes) {
    for (int c = 0; c < kQuadBytes; c += 64) {
      const Ints both = load<Ints>(codes + c);
      save(to + c, both & 0x0f0f0f0f);
      save(to + kQuadBytes + c, both >> 4 & 0x0f0f0f0f);
    }
  }
}

// Adds x . codes of `quads` quads to the sums of a tile of rows, or of two. `ahead`: bytes by which codes are fetched
// to the L2 cache, or 0.
template <bool kTwo> inline void multiply_tiles(const std::int8_t* x, std::int64_t stride, const std::byte* codes,
                                                std::int64_t quads, int of_tile, std::int64_t ahead, bool first,
                                                std::int32_t* sums) {
  constexpr std::int64_t kRow = kPanel * sizeof(std::int32_t);
  std::int32_t* lower = sums + kTileRows * kPanel;
  if (first) {
    _tile_zero(0);
    _tile_zero(1);
    if (kTwo) _tile_zero(2);
    if (kTwo) _tile_zero(3);
  } else {
    _tile_loadd(0, sums, kRow);
    _tile_loadd(1, sums + 16, kRow);
    if (kTwo) _tile_loadd(2, lower, kRow);
    if (kTwo) _tile_loadd(3, lower + 16, kRow);
  }
  for (std::int64_t k = 0; k < quads; k += of_tile, x += 4 * of_tile, codes += of_tile * kQuadBytes) {
    for (std::int64_t line = 0; ahead && line < of_tile * kQuadBytes; line += 64)
      __builtin_prefetch(codes + ahead + line, 0, 2);
    _tile_loadd(4, x, stride);
    _tile_loadd(6, codes, kQuadBytes);
    _tile_loadd(7, codes + 64, kQuadBytes);
    _tile_dpbsud(0, 4, 6);
    _tile_dpbsud(1, 4, 7);
    if (kTwo) {
      _tile_loadd(5, x + kTileRows * stride, stride);
      _tile_dpbsud(2, 5, 6);
      _tile_dpbsud(3, 5, 7);
    }
  }
  _tile_stored(0, sums, kRow);
  _tile_stored(1, sums + 16, kRow);
  if (kTwo) _tile_stored(2, lower, kRow);
  if (kTwo) _tile_stored(3, lower + 16, kRow);
}

// The sums of one group for rows [row, row + rows).
template <bool kNibbles>
void sums_of_group(const Product& p, std::int64_t panel, std::int64_t row, int rows, std::int64_t g, TileBlock& block) {
  const std::int64_t quads = (p.codes.group + 3) / 4;
  const int of_tile = quads_of_tile(quads);
  const std::byte* codes = p.codes.codes + (panel * p.codes.groups + g) * quads * kQuadBytes / (kNibbles ? 2 : 1);
  const std::int8_t* x = static_cast<const std::int8_t*>(p.x) + row * p.x_stride + g * quads * 4;
  // Quads of a chunk; an even number, since quads of 4 bits are unpacked in twos.
  const std::int64_t chunk = kNibbles ? kChunkQuads / (2 * of_tile) * (2 * of_tile) : quads;
  for (std::int64_t from = 0; from < quads; from += chunk) {
    const std::int64_t count = quads - from < chunk ? quads - from : chunk;
    const std::byte* const w = kNibbles ? block.unpacked : codes + from * kQuadBytes;
    if (kNibbles) unpack_quads(codes + from / 2 * kQuadBytes, count, block.unpacked);
    order_stores();
    for (int r = 0; r < rows; r += 2 * kTileRows) {
      const int upper = rows - r < kTileRows ? rows - r : kTileRows, rest = rows - r - upper;
      const int lower = rest < kTileRows ? rest : kTileRows;
      block.shape(upper, lower, of_tile);
      const auto multiply = lower ? multiply_tiles<true> : multiply_tiles<false>;
      multiply(x + r * p.x_stride + from * 4, p.x_stride, w, count, of_tile,
               !kNibbles && row + r == 0 ? kQuadsAhead : 0, from == 0, block.sums[r]);
    }
  }
}

template <bool kNibbles> void product_by_tiles(const Product& p, std::int64_t begin, std::int64_t end) {
  TileBlock block;
  for (std::int64_t panel = begin; panel < end; ++panel) {
    for (std::int64_t row = 0; row < p.rows; row += kBlockRows) {
      const int rows = int(p.rows - row < kBlockRows ? p.rows - row : kBlockRows);
      std::memset(block.totals, 0, sizeof(block.totals));
      for (std::int64_t g = 0; g < p.codes.groups; ++g) {
        sums_of_group<kNibbles>(p, panel, row, rows, g, block);
        const std::int64_t at = (panel * p.codes.groups + g) * kPanel;
        for (int r = 0; r < rows; ++r)
          for (int c = 0; c < kPanel; c += kWidth) {
            float* total = block.totals[r] + c;
            save(total, load<Floats>(total) + integer_term(p, load<Ints>(block.sums[r] + c), row + r, g, at + c));
          }
      }
      for (int r = 0; r < rows; ++r)
        for (int c = 0; c < kPanel; c += kWidth)
          if (const std::int64_t o = panel * kPanel + c; o < p.out)
            put(p, row + r, o, load<Floats>(block.totals[r] + c));
    }
  }
  _tile_release();
}

}  // namespace
}  // namespace foretoken
