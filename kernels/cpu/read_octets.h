// Weights in octets, read as the bf16 numbers that dot products take: the packings *_octets of operations.h. A reader
// has `start` for each group of a strip, and `read` for each kOctets octets; a weight has the bits that format.h says,
// and subnormal ones are 0, as the products take them.
#pragma once
#include <immintrin.h>

#include "kernels/cpu/operations.h"
#include "kernels/cpu/vectors.h"

namespace foretoken {
namespace {

constexpr int kStrips = kPanel / kStrip;
constexpr int kOctetBytes = kStrip * kOctetInputs * 2;  // of a strip, in bf16

constexpr int kAndOr = 0xea;  // of _mm512_ternarylogic: (a & b) | c

struct Octet {  // eight inputs of outputs 0 ... 3 and 4 ... 7 of a strip
  __m512i of[2];
};

inline __m512i narrowed(__m512 low, __m512 high) { return reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(high, low)); }

struct DenseOctets {
  static constexpr bool kDense = true, kFetches = true;
  static constexpr int kOctets = 1, kBytes = kOctetBytes;
  static const std::byte* data(const Product& p) { return static_cast<const std::byte*>(p.weights); }
  static std::int64_t group(const Product& p) { return p.inputs; }
  void start(const Product&, std::int64_t, int, std::int64_t) {}
  void read(const std::byte* from, Octet (&w)[1]) const {
    for (int c = 0; c < 2; ++c) w[0].of[c] = load<__m512i>(from + c * 64);
  }
};

struct TileOctets : DenseOctets {  // in a cache
  static constexpr bool kFetches = false;
};

// The scales of two outputs each, eight times.
struct ScalesOfOctets {
  __m512 of[4];
  void load(const float* scales) {
    const __m512 all = _mm512_castps256_ps512(_mm256_loadu_ps(scales));
    for (int i = 0; i < 4; ++i) {
      const __m512i two = _mm512_inserti64x4(_mm512_set1_epi32(2 * i), _mm256_set1_epi32(2 * i + 1), 1);
      of[i] = _mm512_permutexvar_ps(two, all);
    }
  }
};

// Integers of up to 8 bits, where 128 means 0: with the code as xx, 0x4700xx00 is the float 2^15 + 128 + number.
// kExact: see Codes::exact, without zero points: scale * number is scale * float - scale * (2^15 + 128), whose last
// term has at most 24 bits, in one rounding.
template <bool kExact> struct IntegerOctets {
  static constexpr bool kDense = false, kFetches = true;
  static constexpr int kOctets = 1, kBytes = kOctetBytes / 2;
  static constexpr float kZero = 32768 + 128;
  static const std::byte* data(const Product& p) { return p.codes.codes; }
  static std::int64_t group(const Product& p) { return p.codes.group; }

  ScalesOfOctets scale, offset, minimum;

  void start(const Product& p, std::int64_t panel, int strip, std::int64_t g) {
    static constexpr float kNone[kStrip] = {};
    const std::int64_t at = (panel * p.codes.groups + g) * kPanel + strip * kStrip;
    scale.load(p.codes.scales + at);
    if (kExact) {
      for (int i = 0; i < 4; ++i) offset.of[i] = scale.of[i] * -kZero;
    } else {
      offset.load(p.codes.zeros ? p.codes.zeros + at : kNone);
      minimum.load(p.codes.minima ? p.codes.minima + at : kNone);
    }
  }
  __m512 weights(__m512i codes, int i) const {
    const __m512i second = i == 0   ? _mm512_slli_epi32(codes, 8)
                           : i == 1 ? codes
                                    : _mm512_srli_epi32(codes, unsigned(i - 1) * 8);
    const __m512 floats = reinterpret_cast<__m512>(
        _mm512_ternarylogic_epi32(second, _mm512_set1_epi32(0xff00), _mm512_set1_epi32(0x47000000), kAndOr));
    if (kExact) return _mm512_fmadd_ps(scale.of[i], floats, offset.of[i]);
    return scale.of[i] * (floats - kZero - offset.of[i]) - minimum.of[i];
  }
  void read(const std::byte* from, Octet (&w)[1]) const {
    const __m512i codes = foretoken::load<__m512i>(from);
    for (int c = 0; c < 2; ++c) w[0].of[c] = narrowed(weights(codes, 2 * c), weights(codes, 2 * c + 1));
  }
};

// Codes of e4m3, whose numbers are times 2^-8.
struct E4m3Octets {
  static constexpr bool kDense = false, kFetches = true;
  static constexpr int kOctets = 1, kBytes = kOctetBytes / 2;
  static const std::byte* data(const Product& p) { return p.codes.codes; }
  static std::int64_t group(const Product& p) { return p.codes.group; }

  ScalesOfOctets scale;

  void start(const Product& p, std::int64_t panel, int strip, std::int64_t g) {
    scale.load(p.codes.scales + (panel * p.codes.groups + g) * kPanel + strip * kStrip);
  }
  void read(const std::byte* from, Octet (&w)[1]) const {
    const auto weights = [&](int i) { return scale.of[i] * e4m3(from + i * 16); };
    for (int c = 0; c < 2; ++c) w[0].of[c] = narrowed(weights(2 * c), weights(2 * c + 1));
  }
};

// Two of each four inputs: the first number of a four goes where its lowest bit is set, the second where the other is.
// Every four has two bits, so that no borrow leaves it.
struct SparseOctets {
  static constexpr bool kDense = false, kFetches = true;
  static constexpr int kOctets = 1, kBytes = kOctetBytes / 16 * 9;
  static const std::byte* data(const Product& p) { return p.codes.codes; }
  static std::int64_t group(const Product& p) { return p.inputs; }
  void start(const Product&, std::int64_t, int, std::int64_t) {}
  void read(const std::byte* from, Octet (&w)[1]) const {
    // Numbers 2 i and 2 i + 1 are of inputs 4 i ... 4 i + 3.
    const __m512i first =
                      _mm512_set_epi64(0x000e000e000e000e, 0x000c000c000c000c, 0x000a000a000a000a, 0x0008000800080008,
                                       0x0006000600060006, 0x0004000400040004, 0x0002000200020002, 0),
                  second = _mm512_add_epi16(first, _mm512_set1_epi16(1));
    for (int c = 0; c < 2; ++c) {
      const __m512i numbers = _mm512_castsi256_si512(load<__m256i>(from + c * 32));
      const auto kept = load<std::uint32_t>(from + 64 + c * 4), higher = kept & (kept - 0x11111111u);
      const __m512i low = _mm512_maskz_permutexvar_epi16(__mmask32(kept ^ higher), first, numbers);
      w[0].of[c] = _mm512_mask_permutexvar_epi16(low, __mmask32(higher), second, numbers);
    }
  }
};

// Codes of 4 bits: the sixteen weights of outputs 0 and 1, 2 and 3, 4 and 5, 6 and 7 of a strip, as bf16 numbers.
struct NibbleOctets {
  static constexpr bool kDense = false, kFetches = true;
  static constexpr int kOctets = 4, kBytes = kStrip * kBlockInputs / 2;
  static const std::byte* data(const Product& p) { return p.codes.codes; }
  static std::int64_t group(const Product& p) { return p.codes.group; }

  __m512i tables[4];

  void start(const Product& p, std::int64_t panel, int strip, std::int64_t g) {
    const Codes& codes = p.codes;
    const std::int64_t at = (panel * codes.groups + g) * kPanel + strip * kStrip;
    const __m512 numbers = _mm512_loadu_ps(codes.numbers);
    const auto weights = [&](int o) {
      __m512 n = numbers;
      if (codes.zeros) n = n - _mm512_set1_ps(codes.zeros[at + o]);
      n = _mm512_set1_ps(codes.scales[at + o]) * n;
      return codes.minima ? n - _mm512_set1_ps(codes.minima[at + o]) : n;
    };
    for (int i = 0; i < 4; ++i) tables[i] = narrowed(weights(2 * i), weights(2 * i + 1));
  }
  // A look-up of 16 bits takes six bits of a lane: the code, and which of four outputs.
  void read(const std::byte* from, Octet (&w)[4]) const {
    const __m512i output = _mm512_setr_epi64(0, 0, 0x0010001000100010, 0x0010001000100010, 0x0020002000200020,
                                             0x0020002000200020, 0x0030003000300030, 0x0030003000300030);
    for (int c = 0; c < 2; ++c) {
      const __m512i four = load<__m512i>(from + c * 64);
      for (int i = 0; i < 4; ++i) {
        const __m512i code = i == 0 ? four : _mm512_srli_epi16(four, unsigned(4 * i)),
                      place = _mm512_ternarylogic_epi32(code, _mm512_set1_epi16(15), output, kAndOr);
        w[i].of[c] = _mm512_permutex2var_epi16(tables[2 * c], place, tables[2 * c + 1]);
      }
    }
  }
};

}  // namespace
}  // namespace foretoken
