// Products with bf16 dot instructions, of the packings *_octets (operations.h): a vector holds eight inputs of four
// outputs, so an output has four accumulators, one for each pair of an octet, which are added at the end. Eight inputs
// of an output lie together, as a table of its sixteen weights needs them: with outputs side by side, weights of codes
// would have to be transposed.
//
// Bytes: those of the weights, once for kRowsOfTile rows. Operations for 32 weights: a dot product for each row, and to
// read the weights once, for kRowsOfTile rows or for a block of at most kRowsOfBlock: about 3 instructions of codes of
// 4 bits (a look-up in tables that are made for each group), 7 of 8 bits (number, scale, rounding).
//
// Measured on a core of a Zen 4 with weights in the L2 cache, cycles for 32 weights, of which the dot products take one
// for each row; memory of 20 GB/s a core would need 11.7 (bf16), 5.9 (int8) and 3.1 (int4, groups of 128):
//              1 row   8 rows   64 rows
//   bf16         3.0      8.6        70
//   int8         5.3     13.8        74
//   int4         2.9     10.7        73
// With 8 rows multiplications by scales wait for the units of the dot products.
#pragma once
#include <immintrin.h>

#include "kernels/cpu/product_rows.h"
#include "kernels/cpu/read_octets.h"

namespace foretoken {
namespace {

constexpr int kRowsOfBlock = 10;           // whose sums are in registers
constexpr std::int64_t kRowsOfTile = 256;  // for which weights are unpacked once
constexpr std::int64_t kFetch = 24 << 10;  // bytes by which weights are fetched to the L2 cache

// The sums of the outputs of a strip: of pairs 0 and 2, 1 and 3, then of both.
inline __m256 outputs_of(__m512 first, __m512 second) {
  const __m512 halves = _mm512_unpacklo_ps(first, second) + _mm512_unpackhi_ps(first, second);
  const __m512 whole = halves + _mm512_permute_ps(halves, 0x4e);
  const __m512i places = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 0, 4, 8, 12, 1, 5, 9, 13);
  return _mm512_castps512_ps256(_mm512_permutexvar_ps(places, whole));
}

inline void put_strip(const Product& p, std::int64_t row, std::int64_t o, __m512 first, __m512 second) {
  if (o >= p.out) return;
  float* y = p.y + row * p.y_stride + o;
  const __mmask8 some = p.out - o >= kStrip ? 0xff : __mmask8((1u << (p.out - o)) - 1);
  __m256 sums = outputs_of(first, second);
  if (p.accumulate) sums = _mm256_maskz_loadu_ps(some, y) + sums;
  _mm256_mask_storeu_ps(y, some, sums);
}

inline __m512 dot(__m512 sum, __m512i x, __m512i w) {
  return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(x), reinterpret_cast<__m512bh>(w));
}

template <int R> struct Sums {
  __m512 of[R][2];
};

// Adds an octet of R rows times a strip.
template <int R> inline void add_octet(const std::uint16_t* x, std::int64_t stride, const Octet& w, Sums<R>& sums) {
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) {
    const __m512i eight = _mm512_broadcast_i32x4(load<__m128i>(x + r * stride));
    for (int c = 0; c < 2; ++c) sums.of[r][c] = dot(sums.of[r][c], eight, w.of[c]);
  }
}

// Some octets of all outputs of a panel: one chunk, as it lies in memory or in a tile.
struct Chunk {
  const std::byte* data;
  std::int64_t first, octets;  // its first octet in the panel, and how many
  bool last;                   // of the panel
};

// The sums of R rows of a strip before a chunk, and what becomes of them behind it: they are kept, [rows][kStrips], or
// the chunk is the last one.
template <int R> inline Sums<R> sums_before(const Chunk& chunk, int strip, const Sums<1>* kept) {
  Sums<R> sums;
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r)
    for (int c = 0; c < 2; ++c) sums.of[r][c] = chunk.first > 0 ? kept[r * kStrips + strip].of[0][c] : __m512{};
  return sums;
}
template <int R> inline void keep_or_put(const Product& p, std::int64_t panel, const Chunk& chunk, int strip,
                                         std::int64_t row, const Sums<R>& sums, Sums<1>* kept) {
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r)
    if (chunk.last)
      put_strip(p, row + r, panel * kPanel + strip * kStrip, sums.of[r][0], sums.of[r][1]);
    else
      for (int c = 0; c < 2; ++c) kept[r * kStrips + strip].of[0][c] = sums.of[r][c];
}

// R rows of S strips of a chunk.
template <class Reader, int R, int S>
void strips(const Product& p, std::int64_t panel, const Chunk& chunk, int strip, std::int64_t row, Sums<1>* kept) {
  constexpr int kInputs = Reader::kOctets * kOctetInputs;
  const std::int64_t begin = chunk.first * kOctetInputs, end = begin + chunk.octets * kOctetInputs,
                     group = Reader::group(p), strip_bytes = chunk.octets / Reader::kOctets * Reader::kBytes;
  const std::byte* w = chunk.data + strip * strip_bytes;
  const auto* x = static_cast<const std::uint16_t*>(p.x) + row * p.x_stride + begin;
  Sums<R> sums[S];
  for (int s = 0; s < S; ++s) sums[s] = sums_before<R>(chunk, strip + s, kept);
  for (std::int64_t k = begin; k < end;) {
    const std::int64_t g = k / group, stop = (g + 1) * group < end ? (g + 1) * group : end;
    Reader readers[S];
    for (int s = 0; s < S; ++s) readers[s].start(p, panel, strip + s, g);
    for (; k < stop; k += kInputs, w += Reader::kBytes, x += kInputs) {
      for (int s = 0; s < S; ++s) {
        const std::byte* from = w + s * strip_bytes;
        for (int line = 0; line < Reader::kBytes && Reader::kFetches; line += 64)
          __builtin_prefetch(from + kFetch + line, 0, 2);
        Octet octets[Reader::kOctets];
        readers[s].read(from, octets);
        for (int i = 0; i < Reader::kOctets; ++i) add_octet<R>(x + i * kOctetInputs, p.x_stride, octets[i], sums[s]);
      }
    }
  }
  for (int s = 0; s < S; ++s) keep_or_put<R>(p, panel, chunk, strip + s, row, sums[s], kept);
}

// All octets of a chunk in bf16, to a tile.
template <class Reader> void unpack_chunk(const Product& p, std::int64_t panel, const Chunk& chunk, std::byte* tile) {
  const std::int64_t of_group = Reader::group(p) / kOctetInputs;
  const std::byte* from = chunk.data;
  for (int s = 0; s < kStrips; ++s) {
    Reader reader;
    for (std::int64_t k = chunk.first; k < chunk.first + chunk.octets; k += Reader::kOctets) {
      if (k == chunk.first || k % of_group == 0) reader.start(p, panel, s, k / of_group);
      for (int line = 0; line < Reader::kBytes; line += 64) __builtin_prefetch(from + kFetch + line, 0, 2);
      Octet octets[Reader::kOctets];
      reader.read(from, octets);
      for (const Octet& octet : octets)
        for (int c = 0; c < 2; ++c, tile += 64) _mm512_store_si512(tile, octet.of[c]);
      from += Reader::kBytes;
    }
  }
}

// At most kRowsOfTile rows of a chunk. Several blocks of rows share its unpacked weights.
template <class Reader> void rows_of_chunk(const Product& p, std::int64_t panel, Chunk chunk, std::int64_t row,
                                           std::int64_t rows, Sums<1>* kept) {
  const auto blocks = [&]<class From>(const From&) {
    for_blocks<kRowsOfBlock>(rows, [&]<int R>(std::int64_t r) {
      for (int s = 0; s < kStrips; ++s) strips<From, R, 1>(p, panel, chunk, s, row + r, kept + r * kStrips);
    });
  };
  if (rows == 1) {
    for (int s = 0; s < kStrips; s += 2) strips<Reader, 1, 2>(p, panel, chunk, s, row, kept);
  } else if (Reader::kDense || rows <= kRowsOfBlock) {
    blocks(Reader());
  } else {
    alignas(64) std::byte tile[Reader::kDense ? 64 : kOctetChunk / kOctetInputs * kStrips * kOctetBytes];
    unpack_chunk<Reader>(p, panel, chunk, tile);
    chunk.data = tile;
    blocks(TileOctets());
  }
}

template <class Reader> void product_of_octets(const Product& p, std::int64_t begin, std::int64_t end) {
  constexpr std::int64_t kOctets = kOctetChunk / kOctetInputs;
  alignas(64) Sums<1> kept[kRowsOfTile * kStrips];
  const std::int64_t octets = p.inputs / kOctetInputs, octet_bytes = kStrips * Reader::kBytes / Reader::kOctets;
  for (std::int64_t panel = begin; panel < end; ++panel)
    for (std::int64_t row = 0; row < p.rows; row += kRowsOfTile)
      for (std::int64_t k = 0; k < octets; k += kOctets) {
        const std::int64_t n = octets - k < kOctets ? octets - k : kOctets;
        const Chunk chunk{Reader::data(p) + (panel * octets + k) * octet_bytes, k, n, k + n == octets};
        rows_of_chunk<Reader>(p, panel, chunk, row, p.rows - row < kRowsOfTile ? p.rows - row : kRowsOfTile, kept);
      }
}

}  // namespace
}  // namespace foretoken
