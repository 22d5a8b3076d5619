// FP8 numbers, e4m3; the greatest magnitude of a row becomes 448.
#include <bit>
#include <cmath>

#include "kernels/formats/activations/activation_format.h"

namespace foretoken::formats {
namespace {

// float_of_e4m3(e4m3_of(x)) of a finite x, in instructions of every machine. Beneath 2^-6 the numbers are multiples of
// 2^-9, the steps of a sum with 1.5 * 2^14; above, the lower 20 bits of the mantissa are rounded away.
inline float rounded(float x) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(x), sign = bits & 0x80000000u;
  const float magnitude = std::bit_cast<float>(bits ^ sign), cut = magnitude < 448.0f ? magnitude : 448.0f;
  const std::uint32_t u = std::bit_cast<std::uint32_t>(cut);
  const float large = std::bit_cast<float>((u + 0x7ffffu + (u >> 20 & 1u)) & 0xfff00000u),
              small = (cut + 24576.0f) - 24576.0f;
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(cut < 0x1p-6f ? small : large) | sign);
}

class E4m3Rows final : public ActivationFormat {
 public:
  std::string name() const override { return "fp8"; }
  std::string meaning() const override { return "e4m3, a scale for each row"; }
  Coding coding() const override { return Coding::e4m3; }
  float greatest() const override { return 448; }
  void round(std::span<float> x, float s) const override {
    for (float& v : x) v = rounded(v / s);
  }
};

}  // namespace

const ActivationFormat& e4m3_rows() {
  static const E4m3Rows format;
  return format;
}

}  // namespace foretoken::formats
