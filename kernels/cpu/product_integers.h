// Products of integer codes with integers, for any kWidth: what they are is said in
// kernels/formats/activations/activation_format.h. A word holds four inputs of an output as unsigned codes, as quads8
// and quads4 lie in memory (operations.h); their offset is taken off with the sum of the row's numbers: sum x (c -
// offset) = sum x c - offset sum x, all of it in integers. Behind every group the sums are scaled and added to the
// totals.
//
// The including file defines Quads: X, four inputs of a row, and add(codes, x, sum) = sum + x . codes.
//
// Bytes: those of the codes, once for a block of rows; the panel then lies in the L2 cache. Operations: an instruction
// of Quads takes 2 (16 bits) or 4 (VNNI) inputs of kWidth outputs; codes of 4 bits take 3 more for 8 inputs of kWidth
// outputs of a block.
#pragma once
#include "kernels/cpu/operations.h"
#include "kernels/cpu/product_rows.h"
#include "kernels/cpu/vectors.h"

namespace foretoken {
namespace {

constexpr std::int64_t kQuadsAhead = 24 << 10;  // bytes by which codes are fetched to the L2 cache

// The group's term of row r; `at`: of the group's scales, for kWidth outputs.
inline Floats integer_term(const Product& p, Ints sum, std::int64_t r, std::int64_t group, std::int64_t at) {
  const std::int32_t of_row = p.rounded.sums[r * p.codes.groups + group];
  Ints offset = Ints{} + int(p.codes.half) * of_row;
  if (p.codes.zeros) offset += __builtin_convertvector(load<Floats>(p.codes.zeros + at), Ints) * of_row;
  return __builtin_convertvector(sum - offset, Floats) *
         (spread(p.rounded.scales[r]) * load<Floats>(p.codes.scales + at));
}

// R rows of C vectors of outputs of a panel. kNibbles: quads4.
template <class Quads, bool kNibbles, int R, int C>
void integer_block(const Product& p, std::int64_t panel, std::int64_t row, int column) {
  constexpr std::int64_t kStep = kPanel * 4;  // bytes of four inputs, or of eight nibbles
  const std::int64_t padded = (p.codes.group + 3) / 4 * 4, words = padded / (kNibbles ? 8 : 4), stride = p.x_stride / 4;
  const std::byte* w = p.codes.codes + panel * p.codes.groups * words * kStep + column * 4;
  const auto* x = static_cast<const typename Quads::X*>(p.x) + row * stride;
  Floats totals[R][C];
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r)
    for (int c = 0; c < C; ++c) totals[r][c] = Floats{};
  for (std::int64_t g = 0; g < p.codes.groups; ++g) {
    Ints sums[R][C];
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r)
      for (int c = 0; c < C; ++c) sums[r][c] = Ints{};
    for (std::int64_t k = 0; k < words; ++k, w += kStep, x += kNibbles ? 2 : 1) {
      for (int line = 0; line < C * kWidth * 4; line += 64) __builtin_prefetch(w + kQuadsAhead + line, 0, 2);
      Ints codes[C], upper[C];
      for (int c = 0; c < C; ++c) {
        codes[c] = load<Ints>(w + c * kWidth * 4);
        if (kNibbles) upper[c] = codes[c] >> 4 & 0x0f0f0f0f, codes[c] &= 0x0f0f0f0f;
      }
#pragma GCC unroll 16
      for (int r = 0; r < R; ++r) {
        for (int c = 0; c < C; ++c) sums[r][c] = Quads::add(codes[c], x[r * stride], sums[r][c]);
        for (int c = 0; c < C && kNibbles; ++c) sums[r][c] = Quads::add(upper[c], x[r * stride + 1], sums[r][c]);
      }
    }
    const std::int64_t at = (panel * p.codes.groups + g) * kPanel + column;
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r)
      for (int c = 0; c < C; ++c) totals[r][c] += integer_term(p, sums[r][c], row + r, g, at + c * kWidth);
  }
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r)
    for (int c = 0; c < C; ++c) {
      const std::int64_t o = panel * kPanel + column + c * kWidth;
      if (o < p.out) put(p, row + r, o, totals[r][c]);
    }
}

template <class Quads, bool kNibbles, int kMaxRows, int C>
void integer_product(const Product& p, std::int64_t begin, std::int64_t end) {
  for (std::int64_t panel = begin; panel < end; ++panel)
    for_blocks<kMaxRows>(p.rows, [&]<int R>(std::int64_t row) {
      for (int column = 0; column < kPanel; column += C * kWidth)
        integer_block<Quads, kNibbles, R, C>(p, panel, row, column);
    });
}

}  // namespace
}  // namespace foretoken
