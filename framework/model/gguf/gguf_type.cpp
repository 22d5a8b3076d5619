#include "framework/model/gguf/gguf_type.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/error.h"

namespace foretoken {
namespace {

using Byte = std::uint8_t;

float f16_at(const Byte* at) {
  std::uint16_t bits;
  std::memcpy(&bits, at, 2);
  return float_from_f16(bits);
}

// The first half of a group is in the low nibbles, the second in the high ones.
void nibbles(const Byte* from, int bytes, Byte* codes) {
  for (int i = 0; i < bytes; ++i) codes[i] = from[i] & 0xf, codes[bytes + i] = from[i] >> 4;
}

// Adds the fifth bits, bit i of a little-endian number for code i.
void fifth_bits(const Byte* from, Byte* codes) {
  for (int i = 0; i < 32; ++i) codes[i] = Byte(codes[i] | (from[i / 8] >> (i % 8) & 1) << 4);
}

void q4_0(const Byte* b, Byte* codes, const GgufGroups& g) {  // f16 scale, 16 bytes
  g.scales[0] = f16_at(b);
  nibbles(b + 2, 16, codes);
}

void q4_1(const Byte* b, Byte* codes, const GgufGroups& g) {  // f16 scale, f16 offset that is added, 16 bytes
  g.scales[0] = f16_at(b), g.minima[0] = -f16_at(b + 2);
  nibbles(b + 4, 16, codes);
}

void q5_0(const Byte* b, Byte* codes, const GgufGroups& g) {  // f16 scale, 4 bytes of fifth bits, 16 bytes
  g.scales[0] = f16_at(b);
  nibbles(b + 6, 16, codes);
  fifth_bits(b + 2, codes);
}

void q5_1(const Byte* b, Byte* codes, const GgufGroups& g) {  // as q4_1 with 4 bytes of fifth bits
  g.scales[0] = f16_at(b), g.minima[0] = -f16_at(b + 2);
  nibbles(b + 8, 16, codes);
  fifth_bits(b + 4, codes);
}

void q8_0(const Byte* b, Byte* codes, const GgufGroups& g) {  // f16 scale, 32 signed bytes
  g.scales[0] = f16_at(b);
  for (int i = 0; i < 32; ++i) codes[i] = Byte(b[2 + i] + 128);
}

// An exponent plus 127, 16 bytes. The greatest exponents make infinite weights, or mean NaN.
void mxfp4(const Byte* b, Byte* codes, const GgufGroups& g) {
  g.scales[0] = b[0] < 253 ? std::ldexp(1.0f, b[0] - 127) : std::numeric_limits<float>::quiet_NaN();
  nibbles(b + 1, 16, codes);
  // As in checkpoints (microscaling.cpp): the exponent of a group of zeros asks no device for a wider range.
  if (std::all_of(codes, codes + 32, [](Byte code) { return code % 8 == 0; })) g.scales[0] = 0;
}

// Eight scales and eight minima of 6 bits in 12 bytes: those of groups 0 to 3 are the low bits of bytes 0 to 3 and 4 to
// 7; groups 4 to 7 have their low 4 bits in bytes 8 to 11 and their high 2 bits above those of groups 0 to 3.
void k_scales(const Byte* b, const Byte* packed, const GgufGroups& g) {
  const float scale = f16_at(b), minimum = f16_at(b + 2);
  for (int i = 0; i < 8; ++i) {
    const int low = i % 4;
    const int s = i < 4 ? packed[i] & 63 : (packed[8 + low] & 0xf) | (packed[low] >> 6) << 4;
    const int m = i < 4 ? packed[4 + i] & 63 : packed[8 + low] >> 4 | (packed[4 + low] >> 6) << 4;
    g.scales[std::size_t(i)] = scale * float(s), g.minima[std::size_t(i)] = minimum * float(m);
  }
}

void q4_k(const Byte* b, Byte* codes, const GgufGroups& g) {  // 2 f16, 12 bytes of scales, 128 bytes
  k_scales(b, b + 4, g);
  for (int i = 0; i < 4; ++i) nibbles(b + 16 + 32 * i, 32, codes + 64 * i);
}

void q5_k(const Byte* b, Byte* codes, const GgufGroups& g) {  // as q4_k with 32 bytes of fifth bits before the nibbles
  k_scales(b, b + 4, g);
  for (int i = 0; i < 4; ++i) nibbles(b + 48 + 32 * i, 32, codes + 64 * i);
  for (int i = 0; i < 256; ++i) codes[i] = Byte(codes[i] | (b[16 + i % 32] >> (i / 32) & 1) << 4);
}

// 128 bytes of low nibbles, 64 bytes of high pairs, 16 signed scales, f16 scale. In each half of 128 codes, code 32 k +
// l has nibble k / 2 of low byte 32 (k % 2) + l, and pair k of high byte l.
void q6_k(const Byte* b, Byte* codes, const GgufGroups& g) {
  const float scale = f16_at(b + 208);
  for (int i = 0; i < 16; ++i) g.scales[std::size_t(i)] = scale * float(static_cast<std::int8_t>(b[192 + i]));
  for (int half = 0; half < 2; ++half) {
    const Byte *low = b + 64 * half, *high = b + 128 + 32 * half;
    for (int k = 0; k < 4; ++k)
      for (int l = 0; l < 32; ++l)
        codes[128 * half + 32 * k + l] =
            Byte((low[32 * (k % 2) + l] >> 4 * (k / 2) & 0xf) | (high[l] >> 2 * k & 3) << 4);
  }
}

constexpr GgufType kTypes[] = {
    {0, "F32", 1, 4, DType::f32},
    {1, "F16", 1, 2, DType::f16},
    {30, "BF16", 1, 2, DType::bf16},
    {8, "Q8_0", 32, 34, DType::u8, 8, 32, 128, false, q8_0},
    {2, "Q4_0", 32, 18, DType::u8, 4, 32, 8, false, q4_0},
    {3, "Q4_1", 32, 20, DType::u8, 4, 32, 0, true, q4_1},
    {6, "Q5_0", 32, 22, DType::u8, 5, 32, 16, false, q5_0},
    {7, "Q5_1", 32, 24, DType::u8, 5, 32, 0, true, q5_1},
    {12, "Q4_K", 256, 144, DType::u8, 4, 32, 0, true, q4_k},
    {13, "Q5_K", 256, 176, DType::u8, 5, 32, 0, true, q5_k},
    {14, "Q6_K", 256, 210, DType::u8, 6, 16, 32, false, q6_k},
    {39, "MXFP4", 32, 17, DType::u8, 4, 32, 0, false, mxfp4, true},
};

struct Other {
  std::uint32_t number;
  const char* name;
};
constexpr Other kOthers[] = {{4, "Q4_2"},      {5, "Q4_3"},      {9, "Q8_1"},      {10, "Q2_K"},    {11, "Q3_K"},
                             {15, "Q8_K"},     {16, "IQ2_XXS"},  {17, "IQ2_XS"},   {18, "IQ3_XXS"}, {19, "IQ1_S"},
                             {20, "IQ4_NL"},   {21, "IQ3_S"},    {22, "IQ2_S"},    {23, "IQ4_XS"},  {24, "I8"},
                             {25, "I16"},      {26, "I32"},      {27, "I64"},      {28, "F64"},     {29, "IQ1_M"},
                             {31, "Q4_0_4_4"}, {32, "Q4_0_4_8"}, {33, "Q4_0_8_8"}, {34, "TQ1_0"},   {35, "TQ2_0"}};

}  // namespace

const GgufType& gguf_type(std::uint32_t number, const std::string& who) {
  std::string known;
  for (const GgufType& t : kTypes) {
    if (t.number == number) return t;
    known += (known.empty() ? "" : ", ") + std::string(t.name);
  }
  std::string name = "number " + std::to_string(number);
  for (const Other& o : kOthers)
    if (o.number == number) name = o.name;
  throw Error(who + " has the type " + name + ", which is not supported; quantize the model to one of " + known);
}

}  // namespace foretoken
