// Codes of weight formats become the bf16 weights of a dense panel, some inputs at a time, in a tile that stays in the
// L1 cache: see Codes in operations.h. Dense products then read the tile, so a quantized matrix has the bits of its
// dense copy by construction.
//
// Codes of 4 bits: an output has 16 weights in a group, whatever the format. They are computed once a group, and a
// weight is a lookup. Codes of 8 bits are computed: number, scale, rounding, about 9 operations for kWidth weights. A
// header of an instruction set may define a faster lookup (unpack_avx2.h). Besides what vectors.h needs, the including
// file defines Floats bytes(p) and Floats e4m3(p): kWidth codes as numbers.
#pragma once
#include "kernels/cpu/operations.h"
#include "kernels/cpu/vectors.h"

namespace foretoken {
namespace {

// The upper half of a word is the bf16 number, rounded to nearest even; the lower half is undefined.
inline Words rounded(Floats f) {
  const Words u = as_words(f);
  return u + 0x7fffu + ((u >> 16) & 1u);
}

// Two vectors of weights as pairs of bf16 numbers, rounded to nearest even: the even input of an output is the lower
// half of its word.
inline Words pairs_of(Floats even, Floats odd) { return (rounded(even) >> 16) | (rounded(odd) & 0xffff0000u); }
// Of Codes::exact, in fewer operations. v rounded to bf16 is RN(v * 65537) - v * 65536: the product lies on the grid of
// bf16 numbers, but for the multiple of v, whose last bit is even, so that ties go to even.
inline Words exact_pairs(Floats even, Floats odd) {
  const auto half = [](Floats v) { return as_words(fused(v, spread(-65536.0f), v * 65537.0f)); };
  return (half(even) >> 16) | half(odd);
}

// Numbers less their zero: integers are codes less half of their range.
struct IntegersOf {
  static float shift(const Codes& c) { return c.half; }
  static Floats numbers(const std::byte* codes, Floats shift) { return bytes(codes) - shift; }
};
// Times 2^-8, which scales make up for; they have no zeros.
struct E4m3Of {
  static float shift(const Codes&) { return 0; }
  static Floats numbers(const std::byte* codes, Floats) { return e4m3(codes); }
};

// Some groups of one panel: bytes [inputs][kPanel] to pairs [inputs / 2][kPanel][2].
template <class Of, bool kZeros, bool kMinima> inline void unpack_bytes(const Codes& c, std::int64_t panel,
                                                                        std::int64_t begin, std::int64_t end,
                                                                        std::uint16_t* pairs) {
  constexpr int kVectors = kPanel / kWidth;
  const std::byte* codes = c.codes + (panel * c.inputs) * kPanel;
  for (std::int64_t k = begin; k < end;) {
    const std::int64_t group = k / c.group, stop = (group + 1) * c.group < end ? (group + 1) * c.group : end;
    const std::int64_t at = (panel * c.groups + group) * kPanel;
    Floats scale[kVectors], shift[kVectors], minimum[kVectors];
    for (int v = 0; v < kVectors; ++v) {
      scale[v] = load<Floats>(c.scales + at + v * kWidth);
      shift[v] = spread(Of::shift(c));
      if (kZeros) shift[v] += load<Floats>(c.zeros + at + v * kWidth);  // exact: both are small integers
      if (kMinima) minimum[v] = load<Floats>(c.minima + at + v * kWidth);
    }
    for (; k < stop; k += 2) {
      const std::byte* from = codes + k * kPanel;
      __builtin_prefetch(from + kCodesAhead, 0, 3);
      for (int v = 0; v < kVectors; ++v) {
        const Floats less = shift[kZeros ? v : 0];
        Floats even = scale[v] * Of::numbers(from + v * kWidth, less),
               odd = scale[v] * Of::numbers(from + kPanel + v * kWidth, less);
        if (kMinima) even -= minimum[v], odd -= minimum[v];
        save(pairs + ((k - begin) / 2 * kPanel + v * kWidth) * 2, pairs_of(even, odd));
      }
    }
  }
}

// The same for integers whose products with a scale are exact (Codes::exact), in fewer operations.
template <bool kZeros> inline void unpack_exact(const Codes& c, std::int64_t panel, std::int64_t begin,
                                                std::int64_t end, std::uint16_t* pairs) {
  constexpr int kVectors = kPanel / kWidth;
  const std::byte* codes = c.codes + (panel * c.inputs) * kPanel;
  for (std::int64_t k = begin; k < end;) {
    const std::int64_t group = k / c.group, stop = (group + 1) * c.group < end ? (group + 1) * c.group : end;
    const std::int64_t at = (panel * c.groups + group) * kPanel;
    Floats scale[kVectors], offset[kVectors];
    for (int v = 0; v < kVectors; ++v) {
      scale[v] = load<Floats>(c.scales + at + v * kWidth);
      offset[v] = scale[v] * -(kZeros ? load<Floats>(c.zeros + at + v * kWidth) + c.half : spread(c.half));
    }
    for (; k < stop; k += 2) {
      const std::byte* from = codes + k * kPanel;
      __builtin_prefetch(from + kCodesAhead, 0, 3);
      for (int v = 0; v < kVectors; ++v)
        save(pairs + ((k - begin) / 2 * kPanel + v * kWidth) * 2,
             exact_pairs(fused(scale[v], bytes(from + v * kWidth), offset[v]),
                         fused(scale[v], bytes(from + kPanel + v * kWidth), offset[v])));
    }
  }
}

template <class Of>
void unpack8(const Codes& c, std::int64_t panel, std::int64_t begin, std::int64_t end, std::uint16_t* pairs) {
  if (c.exact)
    c.zeros ? unpack_exact<true>(c, panel, begin, end, pairs) : unpack_exact<false>(c, panel, begin, end, pairs);
  else if (c.minima)
    c.zeros ? unpack_bytes<Of, true, true>(c, panel, begin, end, pairs)
            : unpack_bytes<Of, false, true>(c, panel, begin, end, pairs);
  else if (c.zeros)
    unpack_bytes<Of, true, false>(c, panel, begin, end, pairs);
  else
    unpack_bytes<Of, false, false>(c, panel, begin, end, pairs);
}

// 2:4 weights: of each four inputs of an output a pair of numbers, and a bit for each input.
inline void unpack_sparse(const Codes& c, std::int64_t panel, std::int64_t begin, std::int64_t end,
                          std::uint16_t* pairs) {
  typedef std::uint8_t Bytes __attribute__((vector_size(kWidth)));
  const std::byte* from = c.codes + (panel * c.inputs + begin) / 8 * kSparseEight;
  for (std::int64_t k = begin; k < end; k += 8, from += kSparseEight) {
    __builtin_prefetch(from + kCodesAhead, 0, 3);
    for (int four = 0; four < 2; ++four)
      for (int v = 0; v < kPanel; v += kWidth) {
        const Words both = load<Words>(from + four * kSparsePairs + v * 4), first = both & 0xffffu, second = both >> 16;
        const Words kept = __builtin_convertvector(load<Bytes>(from + 2 * kSparsePairs + v), Words) >> (4 * four);
        const auto is = [&](unsigned bits) { return reinterpret_cast<Words>((kept & bits) != 0u); };
        const auto number = [&](unsigned input, Words before) {
          return is(1u << input) & ((before & second) | (~before & first));
        };
        std::uint16_t* to = pairs + ((k - begin + 4 * four) / 2 * kPanel + v) * 2;
        save(to, Words(number(0, Words{}) | number(1, is(1)) << 16));
        save(to + 2 * kPanel, Words(number(2, is(3)) | (is(8) & second) << 16));
      }
  }
}

// The 16 weights of every output of a panel in one group: [kPanel][16].
inline void weights_of_codes(const Codes& c, std::int64_t panel, std::int64_t group, std::uint16_t (*weights)[16]) {
  const std::int64_t at = (panel * c.groups + group) * kPanel;
  for (int o = 0; o < kPanel; ++o) {
    const Floats zero = spread(c.zeros ? c.zeros[at + o] : 0), minimum = spread(c.minima ? c.minima[at + o] : 0);
    for (int i = 0; i < 16; i += kWidth) {
      std::uint32_t words[kWidth];
      save(words, Words(rounded(spread(c.scales[at + o]) * (load<Floats>(c.numbers + i) - zero) - minimum) >> 16));
      for (int j = 0; j < kWidth; ++j) weights[o][i + j] = std::uint16_t(words[j]);
    }
  }
}

// Blocks of kBlockInputs: [inputs / 32][kPanel][16] bytes, of which byte j holds input j in its lower and input 16 + j
// in its upper half.
[[maybe_unused]] void unpack4(const Codes& c, std::int64_t panel, std::int64_t begin, std::int64_t end,
                              std::uint16_t* pairs) {
  std::uint16_t weights[kPanel][16];
  std::int64_t group = -1;
  for (std::int64_t k = begin; k < end; k += kBlockInputs) {
    if (k / c.group != group) weights_of_codes(c, panel, group = k / c.group, weights);
    const std::byte* codes = c.codes + (panel * c.inputs + k) * kPanel / 2;
    std::uint16_t* to = pairs + (k - begin) * kPanel;
    for (int o = 0; o < kPanel; ++o)
      for (int j = 0; j < 16; ++j) {
        const unsigned both = std::to_integer<unsigned>(codes[o * 16 + j]);
        to[(j / 2 * kPanel + o) * 2 + j % 2] = weights[o][both & 15u];
        to[((8 + j / 2) * kPanel + o) * 2 + j % 2] = weights[o][both >> 4];
      }
  }
}

}  // namespace
}  // namespace foretoken
